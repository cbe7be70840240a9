"""Registered memory that moves to a file."""
import pathlib
import sys
import unittest

from case import BUILD, Case


class Nvme(Case):
    """Blocks that the program registers lie in a file while it does not use them."""
    registering = f"""
import ctypes, os, signal, sys, torch
spillway = ctypes.CDLL({str(BUILD / "lib" / "libspillway.so")!r})
spillway.spillway_last_error.restype = ctypes.c_char_p
MIB = 1 << 20
def call(name, tensor, *more):
    status = getattr(spillway, "spillway_block_" + name)(ctypes.c_void_p(tensor.data_ptr()), *more)
    if status:
        print(name, status, spillway.spillway_last_error().decode().splitlines()[0])
    return status == 0
blocks = []
for i in range(10):
    torch.manual_seed(i)
    blocks.append(torch.rand(2 * MIB).to("cuda"))
    call("add", blocks[-1], ctypes.c_uint64(8 * MIB))
"""

    def setUp(self):
        super().setUp()
        self.disk = pathlib.Path(self.folder) / "a:disk"
        self.disk.mkdir()

    def ended(self, program, *options, size="64MiB", **settings):
        path = pathlib.Path(self.folder) / "program.py"
        path.write_text(self.registering + program)
        return self.run_on(sys.executable, path, card=("--capacity", "100MiB", "--values", "compute"),
                           options=["--mode", "replace", "--host-budget", "0", "--max-slowdown", "none",
                                    *(["--nvme", f"{self.disk}:{size}"] if size else []), *options], **settings)

    rounds = """
for round in range(3):
    for i, block in enumerate(blocks):
        work = torch.full((10 * MIB,), 1.0, device="cuda")
        assert call("touch", block)
        torch.manual_seed(i)
        assert torch.equal(block.cpu(), torch.rand(2 * MIB) + round), (round, i)
        block += 1
        assert call("done", block)
        del work
print("whole")
"""

    def test_values_are_bitwise_what_they_were(self):
        ended = self.ended(self.rounds)
        self.assertEqual((ended.status, ended.output), (0, "whole\n"), ended.errors)
        report = next(iter(ended.reports.values()))
        self.assertRegex(report, r"spill_to_nvme +\d+ +\d+ .*MiB")
        self.assertRegex(report, r"of these to a file [\d.]+ MiB")
        self.assertEqual(list(self.disk.iterdir()), [])

    def test_without_a_file_the_same_program_dies(self):
        ended = self.ended(self.rounds, size="")
        self.assertIn("OutOfMemoryError", ended.errors)

    def test_a_file_that_is_too_small_is_said(self):
        ended = self.ended(self.rounds, size="4MiB")
        self.assertRegex(ended.errors, r"not spill_to_nvme: .* must go, and the file takes")

    def test_a_killed_program_leaves_nothing(self):
        ended = self.ended("""
work = torch.full((10 * MIB,), 1.0, device="cuda")
print(os.listdir(sys.argv[0].rsplit("/", 1)[0] + "/a:disk"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""")
        self.assertEqual((ended.status, ended.output), (137, "[]\n"), ended.errors)
        self.assertEqual(list(self.disk.iterdir()), [])
        self.assertTrue(any("spill_to_nvme" in report for report in ended.reports.values()))

    def test_what_can_not_be_used_is_said_before_the_start_or_at_it(self):
        for value, text in (("/scratch", "a folder and a size with a colon between"),
                            (f"{self.disk}/none:8GiB", "there is no folder"), ("/proc:8GiB", "no file can be made"),
                            (f"{self.disk}:lots", "'lots' is no amount of memory")):
            ended = self.plain("touch", "started", options=["--nvme", value])
            self.assertEqual(ended.status, 2)
            self.assertIn("--nvme: ", ended.errors)
            self.assertIn(text, ended.errors)
            self.assertFalse((pathlib.Path(self.folder) / "started").exists())
        ended = self.ended("print('runs')", size="", SPILLWAY_NVME="/proc:8GiB")
        self.assertEqual((ended.status, ended.output), (0, "runs\n"), ended.errors)
        self.assertIn("spillway: nothing is moved to a file: SPILLWAY_NVME: no file can be made in '/proc'",
                      ended.errors)


if __name__ == "__main__":
    unittest.main()
