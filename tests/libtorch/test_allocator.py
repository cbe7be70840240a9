"""Spillway as PyTorch's CUDA allocator: statistics and installation."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import simulated

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def python(code, **settings):
    return simulated.run(sys.executable, "-c", code, **settings)


class Statistics(unittest.TestCase):
    def test_say_what_the_native_allocators_say(self):
        native = simulated.run_program("allocator_statistics.py")
        ours = simulated.run_program("allocator_statistics.py", allocator="spillway")
        self.assertEqual((native.status, ours.status), (0, 0), native.errors + ours.errors)
        self.assertEqual(ours.output, native.output)
        self.assertEqual(len(native.output), 12)
        self.assertEqual(ours.violations(), "")

    def test_each_key_means_what_it_means_natively(self):
        """All but those of physical memory: Spillway maps pages where the native allocator has segments to split."""
        own = ("reserved_bytes.", "reserved_bytes_by_private_pools.", "segment.", "inactive_split", "num_device_alloc",
               "num_device_free")
        steps = {}
        for allocator in ("native", "spillway"):
            with_spillway = [simulated.PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
            outcome = simulated.run(sys.executable, *with_spillway, PROGRAMS / "statistics_program.py", values="zeros")
            self.assertEqual(outcome.status, 0, outcome.errors)
            steps[allocator] = [json.loads(line) for line in outcome.output]
        self.assertGreater(len(steps["native"]), 12)
        for (step, native), (same, ours) in zip(steps["native"], steps["spillway"], strict=True):
            self.assertEqual(step, same)
            self.assertEqual(set(ours), set(native), step)
            self.assertGreater(len(ours), 100)
            for key, value in native.items():
                if not key.startswith(own):
                    self.assertEqual(ours[key], value, f"{key} at '{step}'")
            self.assertEqual(ours["num_device_alloc"] > 0, native["num_device_alloc"] > 0, step)
            self.assertEqual(ours["num_device_free"] > 0, native["num_device_free"] > 0, step)
            self.assertLessEqual(ours["allocated_bytes.all.current"], ours["reserved_bytes.all.current"])
        self.assertEqual(steps["spillway"][-1][1]["reserved_bytes.all.current"], 0)

    def test_a_reset_brings_every_peak_to_what_is_now(self):
        for install in ("", "import spillway; spillway.install()\n"):
            outcome = python(install + """
import torch
kept, gone = (torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (16, 64))
torch.cuda.memory_stats()
del gone
torch.cuda.empty_cache()
torch.cuda.memory_stats()
torch.cuda.reset_peak_memory_stats()
stats = torch.cuda.memory_stats()
print([name for name in stats if name.endswith(".peak") and stats[name] != stats[name[:-4] + "current"]])
""")
            self.assertEqual(outcome.output, ["[]"], outcome.errors)

    def test_a_snapshot_adds_up_to_the_statistics_on_each_device(self):
        for with_spillway in ([], [simulated.PROGRAMS / "with_spillway.py"]):
            outcome = simulated.run(sys.executable, *with_spillway, PROGRAMS / "consistency_program.py", values="zeros",
                                    SPILLWAY_SIM_DEVICES="2")
            self.assertEqual(outcome.status, 0, outcome.errors)
            self.assertEqual(len(outcome.output), 16)
            self.assertEqual([line for line in outcome.output if not line.endswith(" []")], [])

    def test_a_snapshot_tiles_its_segments(self):
        outcome = python("""
import spillway, torch, pickle, tempfile
spillway.install()
a, b = torch.ones(1000, device="cuda"), torch.ones(5 << 20, device="cuda")
del a
segments = torch.cuda.memory_snapshot()
assert segments
for s in segments:
    assert sum(x["size"] for x in s["blocks"]) == s["total_size"]
    assert s["allocated_size"] == sum(x["size"] for x in s["blocks"] if x["state"] == "active_allocated")
assert sum(s["requested_size"] for s in segments) == 20 << 20
with tempfile.NamedTemporaryFile() as f:
    torch.cuda.memory._dump_snapshot(f.name)
    assert pickle.load(f)["segments"]
assert "CUDA memory summary" in torch.cuda.memory_summary()
print("good")
""")
        self.assertEqual(outcome.output, ["good"], outcome.errors)


class Memory(unittest.TestCase):
    def test_a_fraction_is_a_limit(self):
        outcome = python("""
import spillway, torch
spillway.install()
torch.cuda.set_per_process_memory_fraction(0.25)
a = torch.empty(800 << 20, dtype=torch.uint8, device="cuda")
try:
    torch.empty(400 << 20, dtype=torch.uint8, device="cuda")
    print("served beyond the fraction")
except torch.OutOfMemoryError as error:
    print("Spillway: " in str(error))
""")
        self.assertEqual(outcome.output, ["True"], outcome.errors)

    def test_a_failure_tells_what_is_held_and_not_in_use(self):
        outcome = python("""
import spillway, torch
spillway.install()
kept, idle = (torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (300, 200))
del idle
try:
    torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(str(error).split("Of the allocated memory ")[1].splitlines()[0])
""", capacity="1GiB", SPILLWAY_STRATEGIES="none")
        self.assertRegex(outcome.output[0], r"^300\.00 MiB is allocated by PyTorch, and [1-9]\d*\.\d\d MiB is reserved "
                                            r"by PyTorch but unallocated\.$", outcome.errors)

    def test_a_freed_block_waits_for_the_streams_that_use_it(self):
        outcome = python("""
import spillway, torch
spillway.install()
side = torch.cuda.Stream()
a = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
address = a.data_ptr()
with torch.cuda.stream(side):
    for _ in range(50):
        a.add_(1)
a.record_stream(side)
del a
stats = torch.cuda.memory_stats()
b = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
print(stats["allocated_bytes.all.current"], stats["active_bytes.all.current"], b.data_ptr() != address)
""")
        self.assertEqual(outcome.output, [f"0 {64 << 20} True"], outcome.errors)
        self.assertEqual(outcome.violations(), "")

    def test_a_size_that_no_tensor_has_is_refused_in_pytorchs_words(self):
        outcome = python("""
import spillway, torch
spillway.install()
for bytes_ in (1 << 60, (1 << 60) - 1):
    try:
        torch.empty(bytes_, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print(str(error)[:66])
print(torch.cuda.memory_stats()["num_ooms"], torch.ones(1, device="cuda").item())
""")
        self.assertEqual(outcome.output[:1], ["CUDA out of memory. Tried to allocate more than 1EB memory."],
                         outcome.errors)
        self.assertEqual(outcome.output[1:], ["CUDA out of memory. Tried to allocate 1073741824.00 GiB. GPU 0 has",
                                              "1 1.0"])

    def test_switched_off_each_block_is_a_call_of_the_drivers_as_natively(self):
        code = """
import sys, torch
if sys.argv[1] == "spillway":
    import spillway
    spillway.install()
MIB = 1 << 20
new = lambda bytes_: torch.empty(bytes_, dtype=torch.uint8, device="cuda")
taken = lambda: torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]
cached = new(20 * MIB)
before = taken()
is_enabled = getattr(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: "unknown")  # not in 2.11
say = lambda step: print(step, torch.cuda.memory_allocated(), taken() - before, is_enabled())
torch.cuda.caching_allocator_enable(False)
apart = new(6 * MIB)
say("off")
raw = torch.cuda.caching_allocator_alloc(2 * MIB)
say("raw")
torch.cuda.caching_allocator_delete(raw)
del apart, cached
say("freed")
apart = new(2 * MIB)
torch.cuda.caching_allocator_enable(True)
again = new(20 * MIB)
say("on")
del apart
say("freed on")
"""
        native, ours = (simulated.run(sys.executable, "-c", code, allocator) for allocator in ("native", "spillway"))
        self.assertEqual((native.status, ours.status), (0, 0), native.errors + ours.errors)
        self.assertEqual(ours.output, native.output)
        self.assertRegex(ours.output[0], f"off {20 << 20} {6 << 20} (False|unknown)")
        self.assertEqual(ours.violations(), "")

    def test_observers_see_a_failure(self):
        outcome = python("""
import spillway, torch
spillway.install()
seen = []
torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print(len(seen), seen[0][0], seen[0][1] == 1 << 40)
""")
        self.assertEqual(outcome.output, ["1 0 True"], outcome.errors)

    def test_a_forked_child_may_free_what_it_inherited(self):
        for allocator in ("native", "spillway"):
            outcome = simulated.run_program("forked_child.py", allocator=allocator)
            self.assertEqual(outcome.status, 0, outcome.errors)

    def test_a_fraction_does_not_lift_the_limit(self):
        core = simulated.BUILD / "lib" / "libspillway.so"
        call = ("torch.cuda.init(); import ctypes\n"
                f"ctypes.CDLL('{core}').spillway_limit(0, ctypes.c_uint64(20 << 20))")
        for limited, settings in (("", {"SPILLWAY_LIMIT": "20MiB"}), (call, {})):
            script = (f"import torch, spillway; spillway.install(); {limited}\n"
                      "torch.cuda.set_per_process_memory_fraction(0.9)\n"
                      "try: torch.empty(500 << 20, dtype=torch.uint8, device='cuda')\n"
                      "except torch.OutOfMemoryError: raise SystemExit(7)")
            outcome = simulated.run(sys.executable, "-c", script, capacity="1GiB", **settings)
            self.assertEqual(outcome.status, 7, outcome.errors)

    def test_a_limit_that_is_lowered_after_the_fraction_stays(self):
        core = simulated.BUILD / "lib" / "libspillway.so"
        script = ("import ctypes, torch, spillway\n"
                  "def fits(mib, fraction):\n"
                  "    torch.cuda.set_per_process_memory_fraction(fraction)\n"
                  "    try: return torch.empty(mib << 20, dtype=torch.uint8, device='cuda').numel() > 0\n"
                  "    except torch.OutOfMemoryError: return False\n"
                  "spillway.install()\n"
                  "torch.cuda.set_per_process_memory_fraction(0.9)\n"
                  f"ctypes.CDLL('{core}').spillway_limit(0, ctypes.c_uint64(20 << 20))\n"
                  "print(fits(30, 0.8), fits(16, 0.8), fits(16, 0.01), fits(30, 1.0), fits(16, 1.0))")
        outcome = simulated.run(sys.executable, "-c", script, capacity="1GiB")
        self.assertEqual(outcome.output, ["False True False False True"], outcome.errors)

    def test_two_devices(self):
        outcome = python("""
import spillway, torch
spillway.install()
a = torch.arange(1000.0, device="cuda:1")
b = a.to("cuda:0") + 1
print(torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1), b.sum().item())
c = b[::2].to("cuda:1").double()
print((c.cpu() == torch.arange(1000.0)[::2] + 1).all().item())
try:
    a + b
except RuntimeError as error:
    print("two devices" in str(error))
del a, b, c
print(torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1))
""", SPILLWAY_SIM_DEVICES="2")
        self.assertEqual(outcome.output, ["4096 4096 500500.0", "True", "True", "0 0"], outcome.errors)
        self.assertEqual(outcome.violations(), "")


class Installation(unittest.TestCase):
    def test_twice_is_once(self):
        outcome = python("import spillway, torch\nspillway.install()\ntorch.ones(1, device='cuda')\n"
                         "spillway.install()\nprint(torch.ones(2, device='cuda').sum().item())")
        self.assertEqual(outcome.output, ["2.0"], outcome.errors)

    def test_after_cuda_is_refused(self):
        outcome = python("""
import spillway, torch
torch.ones(1, device="cuda")
try:
    spillway.install()
except RuntimeError as error:
    print(error)
print(torch.ones(2, device="cuda").sum().item())
""")
        self.assertIn("before the first use of a CUDA device", outcome.output[0])
        self.assertEqual(outcome.output[1:], ["2.0"], outcome.errors)

    def test_the_shim_itself_refuses_another_version(self):
        """A C++ program that loads it directly: it looks before it uses anything of LibTorch's."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "other.c"
            source.write_text("unsigned long aoti_torch_abi_version(void) { return (2ul << 56) | (99ul << 48); }")
            library = pathlib.Path(folder) / "libother.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            outcome = simulated.run(sys.executable, "-c", "import ctypes, os, torch\n"
                                    "folder = os.environ['SPILLWAY_LIBRARIES']\n"
                                    f"shim = ctypes.CDLL(folder + '/{simulated.for_libtorch('torch').name}')\n"
                                    "shim.spillway_torch_error.restype = ctypes.c_char_p\n"
                                    "print(shim.spillway_torch_install(), shim.spillway_torch_error().decode())",
                                    LD_PRELOAD=str(library))
        self.assertIn(f"1 the process runs LibTorch 2.99 and this library is for LibTorch {simulated.LIBTORCH}",
                      outcome.output[0])

    def test_missing_libraries_are_named(self):
        outcome = python("import spillway\ntry:\n    spillway.install()\n"
                         "except RuntimeError as error:\n    print(error)", SPILLWAY_LIBRARIES="/nowhere")
        self.assertIn("/nowhere", outcome.output[0])


if __name__ == "__main__":
    unittest.main()
