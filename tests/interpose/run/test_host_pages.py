"""Blocks in host memory: on machines that name no node for it, read by the CPU, and moved under kernels."""
import sys
import unittest

from case import Case

MOVED = """
import ctypes, sys, torch
driver = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20

def is_on_host(tensor):
    kind = ctypes.c_uint()
    assert driver.cuPointerGetAttribute(ctypes.byref(kind), 2, ctypes.c_uint64(tensor.data_ptr())) == 0
    return kind.value == 1

tensors = [torch.full((10 * MIB,), 7 + at, dtype=torch.int32, device="cuda") for at in range(2)]
kept = torch.empty(96 * MIB, dtype=torch.uint8, device="cuda")
moved = [at for at, tensor in enumerate(tensors) if is_on_host(tensor)]
print("moved", moved, flush=True)
"""
READ = """
for at in moved:
    for offset in (0, 40 * MIB - 4):
        print("CPU", ctypes.c_int32.from_address(tensors[at].data_ptr() + offset).value - at, flush=True)
    ctypes.c_int32.from_address(tensors[at].data_ptr()).value = 99
    print("GPU", tensors[at][0].item(), tensors[at][1].item() - at)
"""


# One thread adds to a block while another asks for memory, so that the block is moved again and again meanwhile.
UNDER_KERNELS = """
import sys, threading

import torch

MIB = 1 << 20
KERNELS, BLOCK = 40, 48 * MIB


def ask(done, served):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while not done.is_set():
            try:
                more = torch.empty(BLOCK, dtype=torch.uint8, device="cuda")
                served.append(1)
                del more
            except torch.OutOfMemoryError:
                pass


def main():
    block = torch.zeros(BLOCK // 4, dtype=torch.int32, device="cuda")
    done, served = threading.Event(), []
    asking = threading.Thread(target=ask, args=(done, served))
    asking.start()
    for _ in range(KERNELS):
        block.add_(1)
    done.set()
    asking.join()
    print("served" if served else "never served", len(served), file=sys.stderr)
    counts = block.cpu().unique().tolist()
    print(counts == [KERNELS] or counts)

main()
"""


class HostPages(Case):
    def spilled(self, program, *profiles, **others):
        card = ["--values", "compute", "--capacity", "112MiB"]
        for profile in profiles:
            card += ["--profile", profile]
        return self.run_on(sys.executable, "-c", program, card=card, **others,
                           options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"])

    def config(self, text):
        path = f"{self.folder}/machine.toml"
        with open(path, "w") as out:
            out.write(text)
        return path

    def test_a_machine_that_names_no_node_spills(self):
        ended = self.spilled(MOVED, "virtual-machine")
        self.assertRegex(ended.output, r"^moved \[\d", ended.errors)

    def test_the_cpu_reads_and_writes_what_was_moved(self):
        for profiles in ([], ["virtual-machine"]):
            with self.subTest(profiles):
                ended = self.spilled(MOVED + READ, *profiles)
                self.assertEqual(ended.status, 0, ended.output + ended.errors)
                self.assertRegex(ended.output, r"^moved \[\d(, \d)?\]\n(CPU 7\nCPU 7\nGPU 99 7\n)+$")

    def test_without_the_drivers_access_it_is_moved_all_the_same(self):
        path = self.config("[driver]\nhost_access = false\n")
        ended = self.spilled(MOVED, SPILLWAY_SIM_CONFIG=path)
        self.assertRegex(ended.output, r"^moved \[\d", ended.errors)
        ended = self.spilled(MOVED + READ, SPILLWAY_SIM_CONFIG=path)
        self.assertEqual(ended.status, 128 + 11, "as on hardware, the CPU faults")

    def test_what_kernels_write_while_it_is_moved(self):
        card = ("--values", "compute", "--gpus", "1", "--capacity", "1GiB")
        options = ["--mode", "replace", "--limit", "80MiB", "--host-budget", "1GiB", "--max-slowdown", "none"]
        ended = self.run_on(sys.executable, "-c", UNDER_KERNELS, card=card, options=options)
        self.assertEqual(ended.output, "True\n", ended.errors)
        self.assertRegex("".join(ended.reports.values()), r"spill_to_host +\d+ +\d+ .*MiB")


if __name__ == "__main__":
    unittest.main()
