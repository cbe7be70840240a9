"""Memory that moves to the host."""
import json
import pathlib
import re
import sys
import unittest

from case import BUILD, OWN, PROGRAMS, Case


class Spill(Case):
    """Memory of live tensors goes to the host, at the same address."""
    gpt2 = [sys.executable, PROGRAMS / "gpt2_training.py", "--batch", "30", "--steps", "4"]
    small = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "4", "640"]
    computing = ("--values", "compute", "--capacity")

    def test_a_batch_that_fails_natively_trains(self):
        ended = self.simulate(*self.gpt2)
        self.assertNotEqual(ended.status, 0)
        self.assertIn("OutOfMemoryError", ended.errors)
        # The simulated kernels take no time of their own, so that the link's looks long: no bound holds there.
        ended = self.run_on(*self.gpt2, options=["--mode", "replace", "--host-budget", "32GiB"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("step 3:", ended.output)
        self.assertRegex(next(iter(ended.reports.values())), r"spill_to_host +\d+ +\d+ .*GiB")

    def test_values_are_bitwise_those_of_a_run_with_room(self):
        with_room = self.simulate(*self.small, card=(*self.computing, "4GiB"))
        native = self.simulate(*self.small, card=(*self.computing, "200MiB"))
        self.assertIn("OutOfMemoryError", native.errors)
        ended = self.run_on(*self.small, card=(*self.computing, "104MiB"),
                            options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("0x1", ended.output)
        self.assertEqual(ended.output, with_room.output)
        self.assertRegex(next(iter(ended.reports.values())), r"spill_to_host +\d+ +\d+ .*MiB")

    def test_a_model_of_tensors_without_a_page_to_themselves_trains_on_half_of_its_peak(self):
        program = """
import torch
torch.manual_seed(0)
layers = [torch.nn.Linear(640, 640) for _ in range(14)]  # 1.6 MiB each
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
for _ in range(4):
    loss = model(torch.randn(32, 640).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex(), torch.cuda.max_memory_allocated() >> 20)
"""
        with_room = self.simulate(sys.executable, "-c", program, card=(*self.computing, "4GiB"))
        peak = int(with_room.output.split()[-1])
        self.assertGreater(peak, 80, with_room.errors)
        ended = self.run_on(sys.executable, "-c", program, card=(*self.computing, "44MiB"),
                            options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(ended.output, with_room.output)

    def test_what_slows_the_program_too_much_is_used_where_nothing_else_helps_and_said_once(self):
        ended = self.run_on(*self.gpt2, options=["--mode", "replace", "--host-budget", "32GiB",
                                                         "--max-slowdown", "1.0"])
        self.assertEqual(ended.status, 0, ended.errors)
        said = re.findall(r"spill_to_host: .* times as long, and --max-slowdown allows 1\.0", ended.errors)
        self.assertEqual(len(said), 1, ended.errors)

    def test_without_host_memory_it_is_refused_and_said(self):
        ended = self.run_on(*self.gpt2, options=["--mode", "replace", "--host-budget", "64MiB"])
        self.assertNotEqual(ended.status, 0)
        self.assertIn("of the budget of host memory", ended.errors)

    def test_a_tensor_that_was_moved_comes_back_to_be_shared(self):
        ended = self.run_on(sys.executable, OWN / "sharing_moved.py", card=(*self.computing, "192MiB"),
                            options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(ended.output, r"^before \[1(, 2)?\]\nread True written\nafter \[2\] True True\n$")

    def test_memory_that_was_handed_on_stays(self):
        program = """
import ctypes, sys, torch
driver = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
tensors = [torch.empty(40 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
handle, descriptor = ctypes.c_ulonglong(), ctypes.c_int()
assert driver.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(tensors[0].data_ptr())) == 0
if sys.argv[1] == "exported":
    assert driver.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, 1, ctypes.c_ulonglong(0)) == 0
if sys.argv[1] != "retained":
    assert driver.cuMemRelease(handle) == 0
print(torch.empty(96 * MIB, dtype=torch.uint8, device="cuda").numel() // MIB)
"""
        def ended(how):
            return self.run_on(sys.executable, "-c", program, how, card=("--capacity", "112MiB"),
                               options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"])
        for how in ("retained", "exported"):
            self.assertRegex(ended(how).errors, r"not spill_to_host: of .* must go, only 40.00 MiB can: the rest")
        self.assertEqual(ended("released").output, "96\n")

    def test_memory_that_is_registered_for_rdma_stays(self):
        """By a library that is looked up in itself, with and without a version, or bound to the first in scope."""
        program = """
import ctypes, sys, torch
how, library, kept = sys.argv[1:]
MIB = 1 << 20
verbs = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL if how == "bound" else ctypes.RTLD_LOCAL)
if how == "bound":
    register, deregister = ctypes.CDLL(None).ibv_reg_mr, ctypes.CDLL(None).ibv_dereg_mr
elif how == "versioned":
    find = ctypes.CDLL(None).dlvsym
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    register, deregister = (ctypes.CFUNCTYPE(kind)(find(verbs._handle, name, b"IBVERBS_1.1")) for name, kind in
                            ((b"ibv_reg_mr", ctypes.c_void_p), (b"ibv_dereg_mr", ctypes.c_int)))
else:
    register, deregister = verbs.ibv_reg_mr, verbs.ibv_dereg_mr
register.restype = ctypes.c_void_p
before = torch.empty(MIB * 3 // 2 + 512, dtype=torch.uint8, device="cuda")
tensors = [torch.empty(40 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
assert tensors[0].data_ptr() % 4096 == 512, "to be rounded down into the hole before it"
del before
def registered(tensor, bytes_):
    return register(None, ctypes.c_void_p(tensor.data_ptr() // 4096 * 4096), ctypes.c_size_t(bytes_), 1)
assert not registered(tensors[1], 0), "the device refuses no byte, and the pin is taken back"
region = registered(tensors[0], 40 * MIB)
assert region and verbs.registered() == 1
if kept == "deregistered":
    assert deregister(ctypes.c_void_p(region)) == 0 and verbs.registered() == 0
print(torch.empty(96 * MIB, dtype=torch.uint8, device="cuda").numel() // MIB)
"""
        library = BUILD / "lib/test/fake_verbs/libibverbs.so.1"
        for how in ("looked up", "versioned", "bound"):
            def ended(kept):
                return self.run_on(sys.executable, "-c", program, how, library, kept, card=("--capacity", "112MiB"),
                                   options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"])
            with self.subTest(how):
                self.assertRegex(ended("kept").errors,
                                 r"not spill_to_host: of .* must go, only (38|40).00 MiB can")
                after = ended("deregistered")
                self.assertEqual(after.output, "96\n", after.errors)

    def test_no_copy_runs_while_its_pages_are_exchanged(self):
        report = pathlib.Path(self.folder) / "referee.json"
        ended = self.run_on(BUILD / "bin" / "interpose_racing_copies", card=("--capacity", "112MiB"), timeout=120,
                            options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"],
                            SPILLWAY_SIM_REPORT=str(report))
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("copies while memory was moved: some", ended.output)
        self.assertIn("served 300", ended.output)
        self.assertRegex(next(iter(ended.reports.values())), r"spill_to_host +\d+ +\d+ .*[MG]iB")
        self.assertEqual(json.loads(report.read_text())["violations"]["texts"], [])


class Slowdown(Case):
    """What moved memory makes of the program's steps: predicted, and measured."""
    card = ("--capacity", "256MiB", "--profile", "timed-kernels")

    def run_slow(self, *options):
        ended = self.run_on(sys.executable, OWN / "slowdown" / "slower_than_predicted.py", card=self.card,
                            options=["--mode", "replace", "--host-budget", "1GiB", *options], PYTHONPATH=str(OWN))
        self.assertEqual(ended.status, 0, ended.errors)
        return ended, {name: float(ms) for name, ms in re.findall(r"^(\w+) ([\d.]+)$", ended.output, re.M)}

    def test_both_are_said_at_the_end_and_in_the_report(self):
        ended, ms = self.run_slow("--max-slowdown", "1.5")
        said = re.search(r"moved memory made the program's steps ([\d.]+) times as long \(([\d.]+) times predicted\)",
                         ended.errors)
        self.assertIsNotNone(said, ended.errors)
        measured, predicted = map(float, said.groups())
        self.assertAlmostEqual(measured, ms["moved"] / ms["before"], delta=0.2)
        self.assertGreater(measured, 2 * predicted, "most uses are of work that nobody sees")
        self.assertIn(f"{measured:.1f} times as long", next(iter(ended.reports.values())))

    def run_operators(self, which):
        """What the first move makes of a step, as predicted and as measured."""
        card = (*self.card, "--values", "zeros")
        ended = self.run_on(sys.executable, OWN / "slowdown" / "operators_over_link.py", which, card=card,
                            options=["--mode", "replace", "--host-budget", "1GiB", "--max-slowdown", "none"],
                            PYTHONPATH=str(OWN))
        self.assertEqual(ended.status, 0, ended.errors)
        ms = {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+)$", ended.output, re.M)}
        said = re.search(r"made the program's steps ([\d.]+) times as long \(([\d.]+) times predicted\)",
                         ended.errors)
        self.assertIsNotNone(said, ended.errors)
        measured, predicted = map(float, said.groups())
        self.assertAlmostEqual(measured, ms["moved"] / ms["before"], delta=0.05 * measured)
        return predicted, measured

    def test_products_are_predicted_by_how_often_they_read_an_operand(self):
        predicted, measured = self.run_operators("products")
        self.assertGreater(measured, 4, "each weight is read six times")
        self.assertAlmostEqual(predicted, measured, delta=0.1 * measured)

    def test_operators_in_place_are_predicted_one_by_one(self):
        predicted, measured = self.run_operators("in-place")
        self.assertGreater(measured, 4)
        self.assertAlmostEqual(predicted, measured, delta=0.1 * measured)

    def test_views_are_predicted_by_what_they_have(self):
        predicted, measured = self.run_operators("views")
        self.assertGreater(measured, 2)
        self.assertAlmostEqual(predicted, measured, delta=0.15 * measured)

    def test_it_comes_back_as_soon_as_there_is_room_if_it_is_slower_than_promised(self):
        patient, slow = self.run_slow("--max-slowdown", "none")
        self.assertGreater(slow["after"], 2 * slow["before"], patient.errors)
        ended, ms = self.run_slow("--max-slowdown", "1.5")
        self.assertAlmostEqual(ms["after"], ms["before"], delta=0.1)
        self.assertEqual(len(re.findall("because of memory that was moved", ended.errors)), 1, ended.errors)


if __name__ == "__main__":
    unittest.main()
