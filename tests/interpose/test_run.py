"""`spillway run`: stock programs under the preloaded library, on the simulated card."""
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
PROGRAMS = ROOT / "tests" / "programs"
OWN = pathlib.Path(__file__).with_name("programs")
SPILLWAY = str(BUILD / "bin" / "spillway")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


class Ended:
    def __init__(self, completed, folder):
        self.status, self.output, self.errors = completed.returncode, completed.stdout, completed.stderr
        lines = [line for line in completed.stderr.splitlines() if line.startswith("spillway: ")]
        self.line = lines[-1] if lines else ""
        self.reports = {path.name: subprocess.run([SPILLWAY, "report", path], capture_output=True, text=True).stdout
                        for path in sorted(pathlib.Path(folder).glob("*.spill"))}

    def number(self, pattern):
        found = re.search(pattern, self.line)
        return int(found.group(1)) if found else None


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def simulate(self, *command, card=("--gpu", "a100-40gb"), timeout=280, **settings):
        words = [SPILLWAY, "simulate", *card, "--", *command]
        completed = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout,
                                   cwd=self.folder, env={**os.environ, **settings})
        return Ended(completed, self.folder)

    def run_on(self, *command, options=(), **others):
        return self.simulate(SPILLWAY, "run", *options, "--", *command, **others)

    def plain(self, *command, options=()):
        """Without a device."""
        words = [SPILLWAY, "run", *options, "--", *command]
        return Ended(subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=self.folder), self.folder)


class Rescue(Case):
    """Another library is short of memory while PyTorch hoards it."""
    program = [*TORCHRUN, OWN / "nccl_beside_cache.py"]
    card = ("--gpu", "a100-40gb", "--gpus", "2")

    def test_without_spillway_the_communicator_fails(self):
        ended = self.simulate(*self.program, card=self.card)
        self.assertNotEqual(ended.status, 0)
        self.assertIn("NCCL error", ended.errors)

    def test_the_frameworks_cache_serves_it(self):
        ended = self.run_on(*self.program, card=self.card)
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("reduced", ended.output)
        self.assertEqual(ended.number(r"(\d+) memory failures met, 2 rescued"), 2, ended.line)
        self.assertEqual(len(ended.reports), 2, "a report for each rank that met a failure")
        for report in ended.reports.values():
            self.assertIn("asked by libnccl.so.2", report)
            self.assertRegex(report, r"framework_cache +bit exact .* GiB")
            self.assertIn("outcome: granted", report)
        for name in ended.reports:
            self.assertIn(name, ended.line)

    def test_the_first_use_of_other_libraries_is_served_too(self):
        for library, refusal in (("cublas", "CUBLAS_STATUS_ALLOC_FAILED"), ("cufft", "CUFFT_ALLOC_FAILED"),
                                 ("cusolver", "CUSOLVER_STATUS_ALLOC_FAILED"), ("cudnn", "ALLOCATION_FAILED")):
            with self.subTest(library):
                program = [sys.executable, OWN / "library_beside_cache.py", library]
                self.assertIn(refusal, self.simulate(*program).errors)
                ended = self.run_on(*program)
                self.assertEqual(ended.output, "used\n", ended.errors)
                self.assertEqual(ended.number(r"met, (\d+) rescued"), 1, ended.line)

    def test_without_that_strategy_nothing_does(self):
        ended = self.run_on(*self.program, card=self.card, options=["--strategies", "release_cache"])
        self.assertNotEqual(ended.status, 0)
        self.assertEqual(ended.number(r"met, (\d+) rescued"), 0, ended.line)

    def test_observe_only_counts(self):
        ended = self.run_on(*self.program, card=self.card, options=["--mode", "observe"])
        self.assertNotEqual(ended.status, 0)
        self.assertIn("2 memory failures met, only observed", ended.line)
        self.assertEqual(ended.reports, {})

    def test_pytorchs_own_failure_is_left_to_it(self):
        """Its allocator holds its lock and empties its own cache: no strategy may enter it."""
        ended = self.run_on(sys.executable, "-c", """
import torch
kept = [torch.empty(8 << 30, dtype=torch.uint8, device="cuda") for _ in range(4)]
del kept[1:]
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("refused", torch.cuda.memory_reserved() >> 30)
print(torch.empty(24 << 30, dtype=torch.uint8, device="cuda").numel() >> 30)
""")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(ended.output.split(), ["refused", "8", "24"])
        self.assertIn("1 memory failure met, 0 rescued, 1 not", ended.line, "what PyTorch deals with is none")
        for report in ended.reports.values():
            self.assertIn("asked by libc10_cuda.so", report)
            self.assertNotIn("framework_cache", report)


    def test_a_core_that_does_not_start_is_no_silence(self):
        """Its settings may come from the environment, where `run` does not see them."""
        program = "import torch; torch.empty(1 << 40, dtype=torch.uint8, device='cuda')"
        ended = self.run_on(sys.executable, "-c", program, SPILLWAY_STRATEGIES="magic")
        self.assertEqual(ended.status, 1)
        self.assertIn("nothing is rescued: SPILLWAY_STRATEGIES: there is no strategy 'magic'", ended.errors)
        self.assertRegex(ended.line, r"[1-9] memory failures? met, 0 rescued")


class Replace(Case):
    def test_spillway_is_the_allocator_of_an_unchanged_program(self):
        ended = self.run_on(sys.executable, "-c",
                            "import torch; torch.ones(4, device='cuda'); print(torch.cuda.get_allocator_backend())",
                            options=["--mode", "replace"])
        self.assertEqual((ended.status, ended.output.strip()), (0, "spillway"), ended.errors)
        self.assertEqual(ended.reports, {}, "a run without failures leaves no file")

    def test_also_where_cuda_was_used_before_torch_came(self):
        ended = self.run_on(sys.executable, "-c", """
import ctypes
count = ctypes.c_int()
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
import torch
torch.ones(4, device="cuda")
print(torch.cuda.get_allocator_backend())
""", options=["--mode", "replace"])
        self.assertEqual((ended.status, ended.output.strip()), (0, "spillway"), ended.errors)

    def test_the_programs_own_choice_of_an_allocator_stands(self):
        program = ("import torch; torch.ones(4, device='cuda'); print(torch.cuda.get_allocator_backend())")
        ended = self.run_on(sys.executable, "-c", program, options=["--mode", "replace"],
                            PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertEqual((ended.status, ended.output.strip()), (0, "cudaMallocAsync"), ended.errors)
        self.assertIn("PyTorch's own allocator stayed", ended.errors)

    def test_what_is_fragmented_natively_fits(self):
        program = [sys.executable, OWN / "fragmenting.py"]
        native = self.simulate(*program, card=("--capacity", "4GiB"))
        self.assertIn("OutOfMemoryError", native.errors)
        ended = self.run_on(*program, options=["--mode", "replace"], card=("--capacity", "4GiB"))
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(ended.line, r"met, [1-9]\d* rescued")
        self.assertTrue(any("stitch" in report for report in ended.reports.values()))

    def test_true_values_under_a_limit_are_bitwise_those_of_a_run_without(self):
        program = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "3", "512"]
        card = ("--capacity", "4GiB", "--values", "compute")
        native = self.simulate(*program, card=card)
        ended = self.run_on(*program, options=["--mode", "replace", "--limit", "400MiB"], card=card)
        self.assertEqual((native.status, ended.status), (0, 0), native.errors + ended.errors)
        self.assertEqual(ended.output, native.output)
        self.assertEqual(len(native.output.splitlines()), 4, "three losses, and the bytes at the end")

    def test_what_other_libraries_hold_is_no_other_process(self):
        ended = self.run_on(sys.executable, "-c", """
import ctypes, torch
kept, pointer = torch.ones(4, device="cuda"), ctypes.c_uint64()
assert ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3 << 30)) == 0
torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
""", card=("--capacity", "4GiB"), options=["--mode", "replace"])
        self.assertIn("the CUDA context and other libraries hold 3.00 GiB", ended.errors)

    def test_a_limit_that_is_too_small_ends_as_pytorch_does(self):
        ended = self.run_on(sys.executable, "-c", "import torch; torch.empty(1 << 30, device='cuda')",
                            options=["--mode", "replace", "--limit", "1GiB"])
        self.assertEqual(ended.status, 1)
        self.assertIn("OutOfMemoryError", ended.errors)
        self.assertIn("0 rescued, 1 not", ended.line)


class Pools(Case):
    """The other way round: PyTorch is short of memory while another library hoards it, in the driver's pools."""
    program = [sys.executable, OWN / "hoarding_pool.py", "20"]
    on_default = [*program, "default"]

    def test_natively_pytorch_fails(self):
        ended = self.simulate(*self.on_default)
        self.assertIn("the pool keeps 20 GiB", ended.output)
        self.assertIn("OutOfMemoryError", ended.errors)

    def test_the_pools_give_back_what_they_only_keep(self):
        for mode in ("rescue", "replace"):
            for pool in ("default", "own"):
                with self.subTest(mode=mode, pool=pool):
                    ended = self.run_on(*self.program, pool, options=["--mode", mode])
                    self.assertEqual(ended.status, 0, ended.errors)
                    self.assertIn("PyTorch has 23 GiB, the pool 1", ended.output)
                    self.assertIn("1 memory failure met, 1 rescued", ended.line)
        self.assertTrue(all(re.search(r"trim_pools +1 +1 +19.00 GiB", it) for it in ended.reports.values()))

    def test_without_that_strategy_nothing_does(self):
        ended = self.run_on(*self.on_default, options=["--strategies", "framework_cache,release_cache,ask_peers"])
        self.assertIn("OutOfMemoryError", ended.errors)

    def test_nothing_is_trimmed_where_no_pool_is_used(self):
        ended = self.run_on(sys.executable, "-c",
                            "import torch; torch.empty(1 << 40, dtype=torch.uint8, device='cuda')")
        self.assertNotIn("trim_pools", next(iter(ended.reports.values())))

    def test_not_while_a_stream_is_captured(self):
        program = """
import torch
graph, captured = torch.cuda.CUDAGraph(), torch.cuda.Stream()
exec(open(PROGRAM).read().split("need =")[0])
with torch.cuda.stream(captured):
    graph.capture_begin(capture_error_mode="relaxed")
    result = runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(23 * GIB))
    graph.capture_end()
print("in a capture:", result, reserved() // GIB)
result = runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(23 * GIB))
print("after it:", result, reserved() // GIB)
""".replace("PROGRAM", repr(str(OWN / "hoarding_pool.py")))
        ended = self.run_on(sys.executable, "-c", program, "20", "default")
        self.assertIn("in a capture: 2 20\nafter it: 0 1\n", ended.output, ended.errors)


class Limit(Case):
    """One limit for all that a program takes, in every mode that refuses anything."""
    gpt2 = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "3", "512"]
    computing = ("--capacity", "4GiB", "--values", "compute")
    nccl = [*TORCHRUN, OWN / "nccl_beside_cache.py"]

    def native(self, what, limit="100MiB", mode="rescue", prefix=()):
        ended = self.run_on(*prefix, sys.executable, OWN / "native_calls.py", what, card=("--capacity", "4GiB"),
                            options=["--limit", limit, "--mode", mode], timeout=120, SPILLWAY_BUILD_DIR=str(BUILD))
        self.assertEqual(ended.status, 0, ended.errors)
        return json.loads(ended.output)

    def peak(self, limit, mode):
        report = pathlib.Path(self.folder) / "referee.json"
        ended = self.run_on(*self.gpt2, card=self.computing, options=["--mode", mode, "--limit", limit],
                            SPILLWAY_SIM_REPORT=str(report))
        return ended, json.loads(report.read_text())["devices"][0]["peak_bytes"]

    def test_pytorch_meets_it_as_the_cards_end(self):
        ended = self.run_on(*self.gpt2, card=self.computing, options=["--limit", "40MiB"])
        self.assertEqual(ended.status, 1)
        self.assertRegex(ended.errors, r"OutOfMemoryError.* GPU 0 has a total capacity of 40\.00 MiB")
        report = next(iter(ended.reports.values()))
        self.assertRegex(report, r"of 40\.00 MiB were free")

    def test_with_enough_the_program_is_the_same_and_never_passes_it(self):
        native = self.simulate(*self.gpt2, card=self.computing)
        for mode in ("rescue", "replace"):
            with self.subTest(mode):
                ended, peak = self.peak("160MiB", mode)
                self.assertEqual((ended.status, ended.output), (0, native.output), ended.errors)
                self.assertLessEqual(peak, 160 << 20)
        self.assertGreater(peak, 100 << 20, "so that the limit was near")

    def test_a_late_communicator_is_served_within_it(self):
        """PyTorch has filled the limit, on a card with much room."""
        ended = self.run_on(*self.nccl, card=("--gpu", "a100-40gb", "--gpus", "2"), options=["--limit", "12GiB"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("reduced", ended.output)
        self.assertEqual(ended.number(r"(\d+) memory failures met, 2 rescued"), 2, ended.line)

    def test_so_the_test_above_can_fail(self):
        ended = self.run_on(*self.nccl, card=("--gpu", "a100-40gb", "--gpus", "2"),
                            options=["--limit", "12GiB", "--strategies", "none"])
        self.assertIn("NCCL error", ended.errors)

    def test_each_kind_of_allocation_counts_until_it_is_freed(self):
        seen = self.native("kinds")
        self.assertEqual(seen, {"cuMemAlloc": 4, "cuMemAllocPitch": 8, "cuMemAllocAsync": 2,
                                "cuMemAllocAsync_ptsz": 2, "cuMemAllocFromPoolAsync": 2, "cuMemCreate": 4,
                                "mapped": 4})

    def test_memory_of_graphs_counts_from_the_launch_until_it_is_trimmed(self):
        self.assertEqual(self.native("graphs"), {"captured": 4, "launched": 64, "again": 64, "beside": 2, "trimmed": 4,
                                                 "node": 24, "freed": 24, "left": 0})

    def test_threads_that_race_never_pass_it(self):
        seen = self.native("race")
        self.assertGreater(seen["refused"], 0)
        self.assertLessEqual(seen["peak"], 100 << 20)
        self.assertGreater(seen["peak"], 90 << 20)
        self.assertEqual(seen["left"], 0)

    def test_threads_that_map_where_others_unmap_are_counted(self):
        slow = BUILD / "lib" / "test" / "libslow_unmap.so"
        for prefix in ([], ["env", f"SPILLWAY_DRIVER={slow}"]):
            seen = self.native("handed_over", prefix=prefix)
            self.assertEqual(seen, {"account": 80, "charged": 80, "left": 0})

    def test_the_driver_tells_the_room_within_it(self):
        for mode in ("rescue", "replace"):
            self.assertEqual(self.native("room", mode=mode),
                             {"before": [100, 100, 100], "after": [60, 100, 100], "too_much": 2, "fits": 0})

    def test_what_is_allocated_in_a_context_goes_with_it(self):
        self.assertEqual(self.native("contexts"), {"left": 0})

    def test_a_forked_child_begins_with_nothing(self):
        self.assertEqual(self.native("child"), {"child": 0, "parent": 4 << 20})

    def test_spillways_allocator_and_driver_calls_share_it(self):
        ended = self.run_on(sys.executable, "-c", f"""
import ctypes, sys, torch
sys.path.insert(0, {str(OWN)!r})
from simulator_control import budget
MIB = 1 << 20
driver, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
kept = torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
def native(size):
    return driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
print(native(512 * MIB), native(256 * MIB), budget().taken_bytes[0] // MIB, budget().native_bytes[0] // MIB)
try:
    torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("refused")
print(driver.cuMemFree_v2(pointer), torch.empty(256 * MIB, dtype=torch.uint8, device="cuda").numel() // MIB)
""", card=("--capacity", "4GiB"), SPILLWAY_BUILD_DIR=str(BUILD),
                            options=["--mode", "replace", "--limit", "1GiB", "--strategies", "none"])
        self.assertEqual(ended.output.split(), ["2", "0", "856", "256", "refused", "0", "256"], ended.errors)


class Reserve(Case):
    """What comes late and can not be moved finds room."""
    program = [sys.executable, OWN / "late_library.py"]

    def test_without_it_nothing_is_left(self):
        for prefix in ([], [SPILLWAY, "run", "--"], [SPILLWAY, "run", "--limit", "10GiB", "--"]):
            ended = self.simulate(*prefix, *self.program)
            self.assertIn("CUBLAS_STATUS_ALLOC_FAILED", ended.errors)

    def test_another_library_gets_what_pytorch_could_not(self):
        for options in ([], ["--limit", "10GiB"], ["--mode", "replace", "--host-budget", "0"]):
            with self.subTest(options):
                ended = self.run_on(*self.program, options=["--reserve", "256MiB", *options])
                self.assertEqual(ended.status, 0, ended.errors)
                self.assertIn("multiplied", ended.output)

    def test_what_a_pool_keeps_is_no_new_memory(self):
        ended = self.run_on(sys.executable, "-c", """
import torch
for _ in range(2):
    kept = torch.empty(28 << 30, dtype=torch.uint8, device="cuda")
    del kept
    torch.cuda.synchronize()
free = torch.cuda.mem_get_info()[0]
try:
    torch.empty(36 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("refused with", free >> 30, "GiB told free")
""", options=["--reserve", "8GiB"], PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(ended.output, "refused with 3 GiB told free\n")

    def test_free_memory_is_told_without_it(self):
        ended = self.run_on(sys.executable, "-c", "import torch; print(*torch.cuda.mem_get_info())",
                            card=("--capacity", "4GiB"), options=["--limit", "1GiB", "--reserve", "256MiB"])
        self.assertEqual(ended.output.split(), [str(768 << 20), str(1 << 30)], ended.errors)


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


class Processes(Case):
    def test_children_by_fork_and_by_exec_count_for_themselves(self):
        ended = self.run_on(sys.executable, PROGRAMS / "forked_child.py")
        native = self.simulate(sys.executable, PROGRAMS / "forked_child.py")
        self.assertEqual((ended.status, ended.output), (native.status, native.output), ended.errors)

    def test_workers_of_a_data_loader(self):
        arguments = [sys.executable, PROGRAMS / "data_loading.py", "--steps", "2"]
        native = self.simulate(*arguments)
        ended = self.run_on(*arguments)
        self.assertEqual((native.status, ended.status), (0, 0), ended.errors)
        memory = re.compile(r"memory_allocated=\d+")
        self.assertEqual(memory.findall(ended.output), memory.findall(native.output))
        self.assertIn("no memory failure", ended.line)

    def test_a_program_that_is_killed_has_counted(self):
        ended = self.run_on(sys.executable, "-c", """
import os, signal, torch
torch.ones(4, device="cuda")
os.kill(os.getpid(), signal.SIGKILL)
""")
        self.assertEqual(ended.status, 137)
        self.assertGreater(ended.number(r"(\d+) driver calls"), 100)


class Spill(Case):
    """Memory of live tensors goes to the host, at the same address."""
    gpt2 = [sys.executable, PROGRAMS / "gpt2_training.py", "--batch", "28", "--steps", "4"]
    small = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "4", "640"]
    computing = ("--values", "compute", "--capacity")

    def test_a_batch_that_fails_natively_trains(self):
        ended = self.simulate(*self.gpt2)
        self.assertNotEqual(ended.status, 0)
        self.assertIn("OutOfMemoryError", ended.errors)
        # The simulated kernels take no time of their own, so that the link's looks long.
        ended = self.run_on(*self.gpt2, options=["--mode", "replace", "--host-budget", "32GiB",
                                                 "--max-slowdown", "none"])
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

    def test_what_would_slow_the_program_too_much_is_refused_and_said(self):
        ended = self.run_on(*self.gpt2, options=["--mode", "replace", "--host-budget", "32GiB",
                                                         "--max-slowdown", "1.0"])
        self.assertNotEqual(ended.status, 0)
        self.assertRegex(ended.errors, r"not spill_to_host: .* times as long, and 1\.0 is the most")

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
            self.assertRegex(ended(how).errors, r"not spill_to_host: of .* must go, only 40.00 MiB are not pinned")
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
                                 r"not spill_to_host: of .* must go, only (38|40).00 MiB are not pinned")
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


class PeerDevice(Case):
    """Memory of live tensors goes to another card of the program, at the same address."""
    small = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "4", "640"]
    computing = ("--values", "compute", "--capacity")
    replace = ["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"]

    def setUp(self):
        super().setUp()
        self.ledger = f"spillway-test-peer-{os.getpid()}"
        self.addCleanup(pathlib.Path(f"/dev/shm/{self.ledger}").unlink, missing_ok=True)

    def ended(self, *options, capacity="104MiB", simulated=()):
        card = (*self.computing, capacity, "--gpus", "2", *simulated)
        return self.run_on(*self.small, card=card, options=[*self.replace, *options], SPILLWAY_LEDGER=self.ledger,
                           SPILLWAY_SIM_REPORT=f"{self.folder}/sim-%p.json")

    def peaks(self):
        """Of the second card, in the processes that touched any."""
        reports = [json.loads(path.read_text()) for path in pathlib.Path(self.folder).glob("sim-*.json")]
        return [report["devices"][1]["peak_bytes"] for report in reports if len(report["devices"]) == 2]

    def test_values_are_bitwise_those_of_a_run_with_room(self):
        with_room = self.simulate(*self.small, card=(*self.computing, "4GiB"))
        native = self.simulate(*self.small, card=(*self.computing, "200MiB", "--gpus", "2"))
        self.assertIn("OutOfMemoryError", native.errors)
        ended = self.ended("--strategies", "stitch,release_cache,spill_to_peer", "--peer-budget", "104MiB")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("0x1", ended.output)
        self.assertEqual(ended.output, with_room.output)
        report = next(iter(ended.reports.values()))
        self.assertRegex(report, r"spill_to_peer +\d+ +\d+ .*MiB")
        self.assertGreater(max(self.peaks()), 20 << 20, "the pages lie on the other card")
        self.assertLessEqual(max(self.peaks()), 104 << 20)

    def test_a_link_of_its_own_goes_before_host_memory(self):
        ended = self.ended()
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(next(iter(ended.reports.values())), r"spill_to_peer +\d+ +\d+ .*MiB")
        self.assertGreater(max(self.peaks()), 20 << 20)

    def test_without_peer_access_the_host_serves(self):
        config = pathlib.Path(self.folder) / "machine.toml"
        config.write_text('peer_access = false\ndevices = 2\nvalues = "compute"\ncapacity = "104MiB"\n')
        words = ["--config", str(config)]
        ended = self.run_on(*self.small, card=words, options=self.replace, SPILLWAY_LEDGER=self.ledger,
                            SPILLWAY_SIM_REPORT=f"{self.folder}/sim-%p.json")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(next(iter(ended.reports.values())), r"spill_to_host +\d+ +\d+ .*MiB")
        self.assertEqual(max(self.peaks()), 0)
        # And the simulated driver refuses what was never asked for.
        mapping = """
import ctypes, torch
driver, size, pages = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(2 << 20), (ctypes.c_int * 8)(1, 0, 1, 1)
torch.cuda.init()
at, handle, word = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64
print(driver.cuMemAddressReserve(ctypes.byref(at), size, size, word(0), word(0)),
      driver.cuMemCreate(ctypes.byref(handle), size, pages, word(0)),
      driver.cuMemMap(at, size, ctypes.c_size_t(0), handle, word(0)),
      *(driver.cuMemSetAccess(at, size, (ctypes.c_int * 3)(1, device, 3), ctypes.c_size_t(1)) for device in (0, 1)))
"""
        self.assertEqual(self.simulate(sys.executable, "-c", mapping, card=words).output, "0 0 0 217 0\n")

    def test_a_card_without_a_budget_is_left_alone(self):
        ended = self.ended("--peer-budget", "0")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(max(self.peaks()), 0)

    def test_another_program_on_that_card_gets_its_memory_back(self):
        """As soon as it asks, the guests leave."""
        other = f"""
import pathlib, time, torch
folder = pathlib.Path({self.folder!r})
while not (folder / "spilled").exists(): time.sleep(0.05)
block = torch.empty(90 << 20, dtype=torch.uint8, device="cuda")
print("other has", block.numel() >> 20)
(folder / "served").touch()
"""
        program = f"""
import pathlib, time, torch
folder = pathlib.Path({self.folder!r})
blocks = [torch.full((10 << 20,), i, dtype=torch.uint8, device="cuda") for i in range(14)]
(folder / "spilled").touch()
for _ in range(600):
    if (folder / "served").exists(): break
    time.sleep(0.05)
print("values", all(bool((block == i).all()) for i, block in enumerate(blocks)))
"""
        for name, text in (("other.py", other), ("program.py", program)):
            (pathlib.Path(self.folder) / name).write_text(text)
        run = " ".join([SPILLWAY, "run", *self.replace])
        script = f"""CUDA_VISIBLE_DEVICES=1 {SPILLWAY} run -- {sys.executable} other.py & other=$!
            {run} --peer-budget 100MiB -- {sys.executable} program.py; status=$?; wait $other || exit 9; exit $status"""
        ended = self.simulate("sh", "-c", script, card=(*self.computing, "104MiB", "--gpus", "2"),
                              SPILLWAY_LEDGER=self.ledger)
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("values True", ended.output)
        self.assertIn("other has 90", ended.output)
        self.assertTrue(any("spill_to_peer" in report for report in ended.reports.values()))


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


class Peers(Case):
    """Two programs on one card, of which one has cached what the other needs."""

    def both(self, modes, **settings):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        prefix = [f"{SPILLWAY} run --mode {mode} -- " if mode else "" for mode in modes]
        script = f"{prefix[0]}{program} hoard & {prefix[1]}{program} need; status=$?; wait $! || exit 9; exit $status"
        return self.simulate("sh", "-c", script, SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}", **settings)

    def tearDown(self):
        pathlib.Path(f"/dev/shm/spillway-test-{os.getpid()}").unlink(missing_ok=True)

    def test_natively_one_of_them_dies(self):
        ended = self.both([None, None])
        self.assertEqual(ended.status, 1)
        self.assertIn("OutOfMemoryError", ended.errors)
        self.assertIn("reserves 30", ended.output)

    def test_both_finish(self):
        for modes in (("rescue", "rescue"), ("replace", "replace"), ("rescue", "replace")):
            with self.subTest(modes=modes):
                for name in ("hoarded", "needed"):
                    (pathlib.Path(self.folder) / name).unlink(missing_ok=True)
                ended = self.both(modes)
                self.assertEqual(ended.status, 0, ended.errors)
                self.assertIn("need: has 20", ended.output)
                self.assertIn("hoard: still has 1048576 and reserves 0", ended.output)
                self.assertRegex(ended.errors, r"met, [1-9]\d* rescued")
                self.assertTrue(any(re.search(r"ask_peers +\d+ +[1-9]", it) for it in ended.reports.values()))

    def test_one_that_is_not_asked_keeps_its_cache(self):
        """So the test above can fail."""
        ended = self.both(["rescue", "observe"])
        self.assertEqual(ended.status, 1)
        self.assertIn("reserves 30", ended.output)

    def test_the_ledger_can_be_off(self):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        script = f"{SPILLWAY} run -- {program} hoard & {SPILLWAY} run -- {program} need; status=$?; wait; exit $status"
        ended = self.simulate("sh", "-c", script, SPILLWAY_LEDGER="off")
        self.assertEqual(ended.status, 1)
        self.assertIn("could not ask other processes for memory: SPILLWAY_LEDGER is off", ended.errors)


    def test_a_guarantee_is_kept_to_the_page(self):
        """Spillway's allocator gives what is beyond it: 15 of 30 GiB, and the other program needs 11."""
        ended = self.both(["replace --guarantee 15GiB", "replace"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("need: has 20", ended.output)
        self.assertIn("reserves 15", ended.output)

    def test_what_can_only_be_given_whole_is_kept_under_a_guarantee(self):
        """PyTorch's own allocator empties its cache or does not."""
        ended = self.both(["rescue --guarantee 15GiB", "rescue"])
        self.assertEqual(ended.status, 1)
        self.assertIn("reserves 30", ended.output)

    def test_at_its_own_limit_a_process_asks_nobody(self):
        """What the others could give is of no use there."""
        ended = self.both(["rescue", "rescue --limit 4GiB"])
        self.assertEqual(ended.status, 1)
        self.assertIn("reserves 30", ended.output)

    def test_top_shows_what_is_held_without_pytorch(self):
        program = """
import ctypes, subprocess, sys, time
driver, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3 << 30)) == 0
time.sleep(1.5)
sys.exit(subprocess.run(sys.argv[1:]).returncode)"""
        ended = self.run_on(sys.executable, "-c", program, SPILLWAY, "top", "--once", "--json",
                            options=["--limit", "8GiB"], SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}")
        share = json.loads(ended.output)["devices"][0]["processes"][0]
        self.assertEqual({key: share[key] for key in ("held_bytes", "cached_bytes", "held_by", "limit_bytes")},
                         {"held_bytes": 3 << 30, "cached_bytes": None, "held_by": "driver calls",
                          "limit_bytes": 8 << 30})

    def test_top_shows_the_latest_shortage(self):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        script = f"""{SPILLWAY} run -- {program} hoard & {SPILLWAY} run -- {sys.executable} -c "{self.asking()}"
            status=$?; touch needed; wait; exit $status"""
        ended = self.simulate("sh", "-c", script, SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}")
        self.assertEqual(ended.status, 0, ended.errors)
        shown = next(json.loads(line) for line in ended.output.splitlines() if line.startswith("{"))
        asked = next(process for process in shown["processes"] if process["last_incident"])
        last = asked["last_incident"]
        self.assertEqual((last["number"], last["outcome"], last["asked_bytes"]), (1, "served", 20 << 30))
        self.assertGreater(last["gained_bytes"], 20 << 30)
        self.assertRegex(last["tried"], r"ask_peers \d+ MiB in \d+ us")
        self.assertEqual([(one["name"], one["tried"], one["useful"]) for one in asked["strategies"]],
                         [("ask_peers", 1, 1)])

    def asking(self):
        return f"""
import os, subprocess, time, torch
while not os.path.exists('{self.folder}/hoarded'): time.sleep(0.1)
kept = torch.empty(20 << 30, dtype=torch.uint8, device='cuda')
time.sleep(1.5)
subprocess.run(['{SPILLWAY}', 'top', '--once', '--json'], check=True)"""

    def test_top_shows_who_holds_what(self):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        script = f"""{SPILLWAY} run --guarantee 1GiB -- {program} hoard &
            while [ ! -e hoarded ]; do sleep 0.1; done; sleep 1
            {SPILLWAY} top --once --json; touch needed; wait"""
        ended = self.simulate("sh", "-c", script, SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}")
        self.assertEqual(ended.status, 0, ended.errors)
        shown = json.loads(ended.output.splitlines()[0])
        process, device = shown["processes"][0], shown["devices"][0]
        self.assertRegex(process["program"], r"^python.* hoard$")
        self.assertEqual((process["mode"], process["guarantee_bytes"]), ("rescue", 1 << 30))
        self.assertEqual(device["processes"][0]["held_by"], "PyTorch")
        self.assertEqual(device["processes"][0]["cached_bytes"] >> 30, 30)
        self.assertGreater(device["used_bytes"], device["held_bytes"])


class Configuration(Case):
    """The options of `run` from a file."""

    def configured(self, text, *command, options=()):
        path = pathlib.Path(self.folder) / "run.toml"
        path.write_text(text)
        return self.plain(*(command or ["touch", "started"]), options=["--config", str(path), *options])

    def shown(self, text, options=()):
        names = ("MODE", "LIMIT", "RESERVE", "GUARANTEE", "STRATEGIES", "TRACE")
        script = "; ".join(f"echo ${{SPILLWAY_{name}-unset}}" for name in names)
        ended = self.configured(text, "sh", "-c", script, options=options)
        self.assertEqual(ended.status, 0, ended.errors)
        return dict(zip((name.lower() for name in names), ended.output.split())), ended

    def test_every_option_can_come_from_it(self):
        values, ended = self.shown(f"""
            mode = "replace"
            limit = "4GiB"
            reserve = "1GiB"
            guarantee = {1 << 30}
            strategies = "stitch,release_cache"
            trace = "{self.folder}/x-%p.spill"
            quiet = true""")
        self.assertEqual(values, {"mode": "replace", "limit": str(4 << 30), "reserve": str(1 << 30),
                                  "guarantee": str(1 << 30),
                                  "strategies": "stitch,release_cache", "trace": f"{self.folder}/x-%p.spill"})
        self.assertEqual(ended.errors, "")

    def test_the_command_line_wins(self):
        values, _ = self.shown('mode = "replace"\nlimit = "4GiB"', options=["--limit", "5GiB"])
        self.assertEqual((values["mode"], values["limit"]), ("replace", str(5 << 30)))

    def test_what_is_wrong_in_it_is_said(self):
        for text, said in (('limt = "4GiB"', "line 1: unknown key 'limt'. Did you mean 'limit'?"),
                           ('mode = "rescue"\nquiet = "yes"', "line 2: 'quiet' must be true or false"),
                           ("limit = 1.5", "line 1: 'limit' must be a text in quotes, or a number of bytes"),
                           ("limit = -1", "line 1: 'limit' must be a text"),
                           ('mode = "magic"', "--mode is 'magic', and must be one of observe rescue replace"),
                           ('mode = "replace"\nlimit = "lots"', "--limit is 'lots'"),
                           ("[run]\nmode = 'replace'", "line 1: unknown key 'run'"),
                           ("mode = ", "line 1: "), ("x" * (2 << 20), "it has more than 1 MiB"), ("\0\xff", "line 1")):
            with self.subTest(text[:40]):
                ended = self.configured(text)
                self.assertEqual(ended.status, 2)
                self.assertIn(said, ended.errors)
                self.assertFalse((pathlib.Path(self.folder) / "started").exists())

    def test_a_file_that_is_not_there(self):
        ended = self.plain("true", options=["--config", "/no/such.toml"])
        self.assertEqual(ended.status, 2)
        self.assertIn("'/no/such.toml': it can not be read", ended.errors)


class Library(unittest.TestCase):
    def test_it_needs_nothing_but_the_c_library(self):
        """More would break programs that bring libraries of their own."""
        path = BUILD / "lib" / "libspillway_preload.so"
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        self.assertEqual(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic), ["libc.so.6"])

    def test_it_shows_hooks_and_nothing_else(self):
        path = BUILD / "lib" / "libspillway_preload.so"
        names = subprocess.run(["nm", "-D", "--defined-only", "-P", path], capture_output=True, text=True, check=True)
        others = [line.split()[0] for line in names.stdout.splitlines() if not re.match(r"cu[A-Z]", line)]
        self.assertEqual(sorted(others), ["dlsym", "dlvsym", "ibv_dereg_mr", "ibv_reg_mr", "ibv_reg_mr_iova",
                                          "ibv_reg_mr_iova2", "spillway_unhooked_dlsym"])


if __name__ == "__main__":
    unittest.main()
