"""What `spillway run` passes on: codes, signals, input and output, options."""
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
import unittest

from case import BUILD, SPILLWAY, Case


class PassesThrough(Case):
    """A program is not changed by being run."""

    def test_exit_codes(self):
        for code in (0, 1, 17, 255):
            self.assertEqual(self.plain("sh", "-c", f"exit {code}").status, code)

    def test_a_signal_that_ends_it_is_128_and_its_number(self):
        self.assertEqual(self.plain("sh", "-c", "kill -9 $$").status, 137)

    def test_input_and_output(self):
        words = [SPILLWAY, "run", "--", "cat"]
        ended = subprocess.run(words, input="as it is\n", capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((ended.returncode, ended.stdout), (0, "as it is\n"))

    def test_a_program_without_cuda(self):
        ended = self.plain(sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).dlsym is not None)")
        self.assertEqual((ended.status, ended.output), (0, "True\n"))
        self.assertEqual(ended.line, "spillway: the program did not use CUDA")

    def test_each_call_of_each_thread_is_counted(self):
        ended = self.run_on(BUILD / "bin" / "interpose_counted_calls")
        self.assertIn("2 processes, 19200531 driver calls, 0 launches", ended.line, ended.errors)

    def test_symbols_of_other_libraries_are_found_without_an_error(self):
        for run in (self.simulate, self.run_on):
            ended = run(BUILD / "bin" / "interpose_other_symbols")
            self.assertEqual(ended.status, 0, ended.errors)

    def test_functions_of_a_newer_driver_are_named(self):
        driver = BUILD / "lib" / "test" / "fake_driver"
        ended = self.plain("env", f"LD_LIBRARY_PATH={driver}", str(BUILD / "bin" / "interpose_unlisted_program"))
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("the program calls functions of the driver that this version does not know, and memory that they "
                      "take is not counted: cuLaunchNewer, cuMemTakeNewer, cuMemFree of CUDA 99.2\n", ended.errors)

    def test_nothing_is_loaded_while_exit_takes_libraries_down(self):
        """Spillway first looks for PyTorch when the program has used the card for a quarter of a second. PyTorch's
        libraries are down by then, and a library that needs them would have them started again: they abort."""
        ended = self.run_on(sys.executable, "-c", f"""
import ctypes, torch
ctypes.CDLL({str(BUILD / "lib" / "test" / "libslow_end.so")!r})  # loaded last, so it ends after PyTorch's
driver, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
ctypes.CDLL(None).exit(0)
""")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(ended.line, r"\b4 driver calls", "Spillway was at work")

    def test_quiet_says_nothing(self):
        self.assertEqual(self.plain("true", options=["--quiet"]).errors, "")

    def test_what_is_preloaded_already_stays(self):
        words = [SPILLWAY, "run", "--", "sh", "-c", "echo $LD_PRELOAD"]
        ended = subprocess.run(words, capture_output=True, text=True, cwd=self.folder,
                               env={**os.environ, "LD_PRELOAD": "libm.so.6"})
        self.assertRegex(ended.stdout, r"/libspillway_preload\.so:libm\.so\.6$")

    def test_a_command_that_is_not_there(self):
        ended = self.plain("no-such-command")
        self.assertEqual(ended.status, 127)
        self.assertIn("cannot run 'no-such-command'", ended.errors)

    def test_a_program_with_other_rights_is_refused(self):
        program = pathlib.Path(self.folder) / "program"
        program.write_bytes(pathlib.Path("/bin/true").read_bytes())
        if os.geteuid() == 0:
            os.chown(program, 65534, 65534)
            program.chmod(0o755 | stat.S_ISUID)
        else:
            program = next(path for path in map(pathlib.Path, ("/usr/bin/su", "/bin/su", "/usr/bin/passwd"))
                           if path.exists() and path.stat().st_mode & stat.S_ISUID)
        ended = self.plain(str(program))
        self.assertEqual(ended.status, 2)
        self.assertIn("other rights than yours", ended.errors)

    def test_wrong_options_are_refused_before_the_start(self):
        for options, text in ((["--mode", "observe", "--limit", "8GiB"], "--limit: in --mode observe"),
                              (["--mode", "observe", "--reserve", "8GiB"], "--reserve: in --mode observe"),
                              (["--limit", "1KiB"], "--limit is '1KiB'"),
                              (["--limit", "4GiB", "--reserve", "4GiB"], "less than --limit"),
                              (["--mode", "replace", "--limit", "lots"], "--limit is 'lots'"),
                              (["--mode", "observe", "--guarantee", "8GiB"], "--guarantee"),
                              (["--mode", "replace", "--limit", "4GiB", "--guarantee", "8GiB"], "more than --limit"),
                              (["--guarantee", "1"], "--guarantee is '1'"),
                              (["--strategies", "magic"], "there is no strategy 'magic'"),
                              (["--peer-budget", "8GiB"], "--peer-budget is of Spillway's own allocator"),
                              (["--mode", "replace", "--peer-budget", "-1"], "--peer-budget: '-1' is no amount"),
                              (["--trace", "/no/such/folder/x.spill"], "there is no folder '/no/such/folder'")):
            ended = self.plain("touch", "started", options=options)
            self.assertEqual(ended.status, 2)
            self.assertIn(text, ended.errors)
            self.assertFalse((pathlib.Path(self.folder) / "started").exists())

    def test_a_terminated_run_ends_its_program(self):
        words = [SPILLWAY, "run", "--", sys.executable, "-c",
                 "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              cwd=self.folder) as running:
            program = int(running.stdout.readline())
            running.send_signal(signal.SIGTERM)
            self.assertEqual(running.wait(timeout=20), 128 + signal.SIGTERM)
        for _ in range(100):
            if not pathlib.Path(f"/proc/{program}").exists():
                return
            time.sleep(0.05)
        self.fail("the program outlived its run")


if __name__ == "__main__":
    unittest.main()
