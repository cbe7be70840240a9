"""Values on the simulated card are the CPU's, with PyTorch's own allocator and with Spillway's in its place."""
import subprocess
import sys
import unittest

import simulated

ALLOCATORS = ("native", "spillway")


class Values(unittest.TestCase):
    def run_cleanly(self, program, *arguments, **settings):
        outcome = simulated.run_program(program, *arguments, **settings)
        self.assertEqual(outcome.status, 0, outcome.errors[-3000:])
        self.assertEqual(outcome.simulator_remarks(), [])
        self.assertEqual(outcome.report["violations"]["count"], 0)
        self.assertEqual(outcome.violations(), "")
        self.assertEqual(outcome.output[-1], "left 0")
        return outcome


class Training(Values):
    def compare(self, program, steps):
        on_cpu = subprocess.run([sys.executable, simulated.PROGRAMS / program, "cpu"], capture_output=True,
                                text=True, check=True).stdout.splitlines()
        self.assertEqual(len(on_cpu), steps)
        for allocator in ALLOCATORS:
            with self.subTest(allocator):
                on_card = self.run_cleanly(program, "cuda", allocator=allocator)
                self.assertEqual(on_card.output[:-1], on_cpu)

    def test_gpt2s_losses_are_bitwise_the_cpus(self):
        self.compare("values_gpt2.py", 5)

    def test_t5s_losses_and_weights_are_bitwise_the_cpus(self):
        self.compare("values_t5.py", 4)


class Operators(Values):
    def test_results_changes_and_gradients_are_bitwise_the_cpus(self):
        for allocator in ALLOCATORS:
            with self.subTest(allocator):
                outcome = self.run_cleanly("values_operators.py", allocator=allocator)
                self.assertRegex(outcome.output[-2], r"^operators [4-9]\d\d differences 0$", outcome.output)


class Checks(Values):
    def check(self, program, least, *arguments, **settings):
        for allocator in ALLOCATORS:
            with self.subTest(allocator):
                outcome = self.run_cleanly(program, *arguments, allocator=allocator, **settings)
                words = outcome.output[-2].split()
                self.assertEqual((words[0], words[2:]), ("checks", ["failed", "0"]), outcome.output)
                self.assertGreaterEqual(int(words[1]), least)

    def test_random_numbers_repeat(self):
        self.check("values_random.py", 25)

    def test_what_cuda_libraries_compute_is_bitwise_the_cpus(self):
        self.check("values_libraries.py", 50)

    def test_sparse_tensors_have_the_cpus_values(self):
        self.check("values_sparse.py", 30)

    def test_kernels_that_are_no_operators_of_pytorchs_have_the_cpus_values(self):
        library = simulated.for_libtorch("test_other_library")
        for when in ([], ["early"]):
            self.check("values_other_kernels.py", 6, library, *when)

    def test_graphs_compute_at_each_replay_what_was_captured(self):
        self.check("values_graphs.py", 50)

    def test_graphs_compute_on_a_named_card_too(self):
        self.check("values_graphs.py", 50, capacity="8GiB", SPILLWAY_SIM_CARD="h100-80gb")

    def test_failures_are_noticed_and_survived(self):
        self.check("values_failures.py", 30, capacity="1GiB")


class Known(unittest.TestCase):
    """Where nothing is computed, what follows from what the host wrote is known all the same."""

    UNKNOWN = ["unknown 0.0 0 262144", "finite False False True torch.Size([262144]) False", "checked (512, 512)",
               "scaled 131072.0", "returned 0 262144",
               "again [500, 0]", "the host's numbers are its own True", "no more 0", "captured [0, 0, 0, 0]"]

    def test_sizes_and_decisions_are_the_cpus(self):
        program = "sizes_by_values.py"
        on_cpu = subprocess.run([sys.executable, simulated.PROGRAMS / program, "--device", "cpu"], capture_output=True,
                                text=True, check=True).stdout.splitlines()
        for allocator in ALLOCATORS:
            with self.subTest(allocator):
                outcome = simulated.run_program(program, values="zeros", capacity="64GiB", allocator=allocator)
                self.assertEqual(outcome.status, 0, outcome.errors[-3000:])
                self.assertEqual(outcome.simulator_remarks(), [])
                self.assertEqual(outcome.output[:len(on_cpu) + len(self.UNKNOWN)], on_cpu + self.UNKNOWN)

    def test_sparse_tensors_have_no_known_values_and_no_complaint(self):
        code = ("import torch\nwhere = torch.tensor([[0, 1, 1], [2, 0, 2]])\n"
                "host = torch.sparse_coo_tensor(where, torch.ones(3), (2, 3), check_invariants=True)\n"
                "card = host.cuda().coalesce()\nresult = torch.sparse.mm(card, torch.ones(3, 5, device='cuda'))\n"
                "print(list(result.shape), card.is_coalesced(), card.cpu().is_sparse)")
        outcome = simulated.run(sys.executable, "-c", code, values="zeros")
        self.assertEqual(outcome.status, 0, outcome.errors[-3000:])
        self.assertNotIn("RecordFunction", outcome.errors)
        self.assertEqual(outcome.output, ["[2, 5] True True"])

    def test_a_value_that_is_printed_makes_no_context_on_another_card(self):
        code = ("import torch\nx = torch.randn(1, device='cuda:1')\nstr(x)\n"
                "print(torch._C._cuda_hasPrimaryContext(0), torch._C._cuda_hasPrimaryContext(1))")
        outcome = simulated.run(sys.executable, "-c", code, values="zeros", SPILLWAY_SIM_DEVICES="2")
        self.assertEqual(outcome.output, ["False True"], outcome.errors[-3000:])


class Limits(unittest.TestCase):
    def test_waits_for_values_are_told_to_the_sync_debug_mode(self):
        code = ("import torch\nx = torch.ones(3, device='cuda')\ntorch.cuda.set_sync_debug_mode('error')\n"
                "for wait in (lambda: x.sum().item(), x.cpu, lambda: torch.ones(3).cuda()):\n"
                "    try:\n        wait()\n        print('no error')\n"
                "    except RuntimeError as error:\n        print(error)")
        outcome = simulated.run(sys.executable, "-c", code)
        self.assertEqual(outcome.output, ["called a synchronizing CUDA operation"] * 3, outcome.errors[-3000:])

    def test_an_operator_that_fails_at_a_launch_fails_the_launch(self):
        code = ("import torch\nwhere = torch.tensor([0], device='cuda')\nrows = torch.ones(3, 2, device='cuda')\n"
                "graph = torch.cuda.CUDAGraph()\n"
                "with torch.cuda.graph(graph):\n    found = torch.nn.functional.embedding(where, rows)\n"
                "graph.replay()\nprint(found.tolist(), flush=True)\nwhere.fill_(7)\ngraph.replay()")
        outcome = simulated.run(sys.executable, "-c", code)
        self.assertEqual(outcome.output, ["[[1.0, 1.0]]"], outcome.errors[-3000:])
        self.assertNotEqual(outcome.status, 0)
        self.assertIn("in a graph: index out of range", "".join(outcome.simulator_remarks()))
        self.assertIn("AcceleratorError: CUDA error", outcome.errors)

    def test_kernels_refuse_a_process_without_a_simulator(self):
        code = ("import ctypes, torch\n"
                f"lib = ctypes.CDLL('{simulated.for_libtorch('kernels')}')\n"
                "print(lib.spillway_kernels_install(), lib.spillway_kernels_install())")
        outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(outcome.stdout.strip(), "1 1")
        self.assertEqual(outcome.stderr.count("no simulated CUDA driver"), 1)


if __name__ == "__main__":
    unittest.main()
