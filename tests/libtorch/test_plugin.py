"""Spillway for a LibTorch that it is not built for: the refusal, and the plug-in of two functions and eight hooks."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import simulated


def python(code, **settings):
    return simulated.run(sys.executable, "-c", code, **settings)


def with_plugin(code, **settings):
    return python("import spillway, torch\nspillway.install_plugin()\n" + code, **settings)


class Refusal(unittest.TestCase):
    def run_on_another_libtorch(self, minor, code):
        """A stand-in that says it is LibTorch 2.`minor`, for which there are no kernels either: values are zeros."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "other.c"
            source.write_text("unsigned long aoti_torch_abi_version(void) "
                              f"{{ return (2ul << 56) | ({minor}ul << 48); }}")
            library = pathlib.Path(folder) / "libother.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            # The simulated runtime would look for kernels of that version too.
            return python(code, LD_PRELOAD=str(library), SPILLWAY_SIM_KERNELS=str(simulated.for_libtorch("kernels")))

    def test_another_minor_version_is_refused_before_the_shim_is_loaded(self):
        outcome = self.run_on_another_libtorch(99, """
import spillway, torch
try:
    spillway.install()
except RuntimeError as error:
    print(error)
print("libspillway_torch" in open("/proc/self/maps").read(), torch.ones(2, device="cuda").numel(),
      torch.cuda.memory.get_allocator_backend())
""")
        self.assertRegex(outcome.output[0], "the process runs LibTorch 2.99 and this Spillway is built for LibTorch "
                         rf"([0-9., ]+, )?{re.escape(simulated.LIBTORCH)}\b")
        self.assertIn("spillway.install_plugin()", outcome.output[0])
        self.assertEqual(outcome.output[1:], ["False 2 native"], outcome.errors)

    def test_the_plugin_serves_the_version_that_was_refused(self):
        outcome = self.run_on_another_libtorch(98, """
import spillway, torch
try:
    spillway.install()
except RuntimeError:
    spillway.install_plugin()
print(torch.arange(1000.0, device="cuda").numel(), torch.cuda.memory._get_current_allocator())
""")
        self.assertTrue(outcome.output[0].startswith("1000 "), outcome.errors)
        self.assertEqual(outcome.violations(), "")


class Plugin(unittest.TestCase):
    def test_every_hook_that_this_version_has_is_set(self):
        outcome = python("""
import spillway, torch
names = {name for name in dir(torch._C._CUDAPluggableAllocator) if name.startswith("set_")}
print(sorted(names ^ set(spillway._SETTERS)))
""")
        self.assertEqual(outcome.output, ["[]"], outcome.errors)

    def test_each_hook_reaches_the_core(self):
        """What PyTorch calls through the setters, and what the core then says."""
        outcome = with_plugin("""
import ctypes, os
core = ctypes.CDLL(os.environ["SPILLWAY_LIBRARIES"] + "/libspillway.so")
class Memory(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("device", ctypes.c_int32)] + [
        (name, ctypes.c_uint64) for name in "limit live rounding stranded cached pending pools context others free "
        "reserved peak_live peak_reserved failures rescued unwound gave_up rescued_bytes rescue_us driver_calls "
        "peak_allocated device_bytes".split()]
def memory():
    out = Memory(size=ctypes.sizeof(Memory))
    assert core.spillway_query(0, ctypes.byref(out)) == 0
    return out
torch.cuda.init()
a = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
assert memory().live == 64 << 20
del a
assert memory().cached == 64 << 20
torch.cuda.empty_cache()
assert memory().cached == 0, "set_reset_fn"
torch.cuda.set_per_process_memory_fraction(0.25)
assert memory().limit == 1 << 30, "set_memory_fraction_fn"
print("good")
""")
        self.assertEqual(outcome.output, ["good"], outcome.errors)

    def test_losses_are_bitwise_the_native_allocators(self):
        native = simulated.run_program("values_gpt2.py", "cuda")
        program = str(simulated.PROGRAMS / "values_gpt2.py")
        ours = with_plugin("import runpy, sys\n"
                           "torch.cuda.memory_allocated = lambda: 0  # the plug-in has no statistics\n"
                           f"sys.argv = [{program!r}, 'cuda']\nrunpy.run_path({program!r}, run_name='__main__')")
        self.assertEqual((native.status, ours.status), (0, 0), native.errors + ours.errors)
        self.assertEqual(len(native.output), 6)
        self.assertEqual(ours.output, native.output)
        self.assertEqual(ours.violations(), "")
        self.assertEqual(ours.simulator_remarks(), [])

    def test_a_freed_block_waits_for_the_streams_that_use_it(self):
        outcome = with_plugin("""
side = torch.cuda.Stream()
a = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
address = a.data_ptr()
with torch.cuda.stream(side):
    for _ in range(50):
        a.add_(1)
a.record_stream(side)
del a
b = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
b.zero_()
print(b.data_ptr() != address)
""")
        self.assertEqual(outcome.output, ["True"], outcome.errors)
        self.assertEqual(outcome.violations(), "")

    def test_out_of_memory_is_pytorchs_error_and_the_program_goes_on(self):
        outcome = with_plugin("""
kept = torch.ones(64 << 20, device="cuda")
try:
    torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(error)
w = torch.ones(32 << 20, device="cuda", requires_grad=True)
torch.cuda.set_per_process_memory_fraction(0.13)
try:
    (w * w).sum().backward()
except torch.OutOfMemoryError:
    print("backward")
torch.cuda.set_per_process_memory_fraction(1.0)
(w * w).sum().backward()
print(w.grad[0].item(), kept.sum().item())
""")
        self.assertRegex(outcome.output[0], r"^CUDA out of memory\. Tried to allocate 8\.00 GiB\. GPU 0 has a "
                         r"total capacity of 4\.00 GiB of which .* is free\. Of the allocated memory 256\.00 MiB is")
        self.assertTrue(outcome.output[1].startswith("Spillway: "), outcome.output)
        self.assertEqual(outcome.output[2:], ["backward", f"2.0 {float(64 << 20)}"], outcome.errors)

    def test_a_captured_graph_keeps_its_memory(self):
        outcome = with_plugin("""
x = torch.zeros(1 << 20, device="cuda")
graph = torch.cuda.CUDAGraph()
side = torch.cuda.Stream()
with torch.cuda.graph(graph, stream=side):
    y = x * 2
    z = y + 1
inside = {y.data_ptr(), z.data_ptr()}
del y, z
torch.cuda.empty_cache()
others = [torch.empty(1 << 20, device="cuda") for _ in range(8)]
with torch.cuda.stream(side):
    others += [torch.empty(1 << 20, device="cuda") for _ in range(8)]
assert not inside & {t.data_ptr() for t in others}, "the graph's memory was given away"
graph.replay()
torch.cuda.synchronize()
del graph
print("good")
""", values="zeros")
        self.assertEqual(outcome.output, ["good"], outcome.errors)
        self.assertEqual(outcome.violations(), "")

    def test_requests_of_nothing(self):
        outcome = with_plugin("""
for _ in range(3):
    tensors = [torch.empty(0, device="cuda") for _ in range(4)]
    del tensors
print(torch.empty(0, device="cuda").sum().item())
""")
        self.assertEqual(outcome.output, ["0.0"], outcome.errors)

    def test_a_memory_pool_of_the_native_allocator_on_the_plugin(self):
        """MemPool takes an allocator: PyTorch's own then gets this pool's segments from Spillway."""
        outcome = python("""
import ctypes, os, torch
path = os.environ["SPILLWAY_LIBRARIES"] + "/libspillway_plugin.so"
plugin = torch.cuda.memory.CUDAPluggableAllocator(path, "spillway_plugin_allocate", "spillway_plugin_free")
pool = torch.cuda.MemPool(plugin.allocator())
with torch.cuda.use_mem_pool(pool):
    a = torch.ones(1 << 20, device="cuda")
print(a.sum().item(), sum(s["total_size"] for s in pool.snapshot()) >= 4 << 20)
del a, pool
torch.cuda.empty_cache()
print(torch.cuda.memory_reserved())
""")
        self.assertEqual(outcome.output, [f"{float(1 << 20)} True", "0"], outcome.errors)
        self.assertEqual(outcome.violations(), "")


class Installation(unittest.TestCase):
    def test_after_cuda_is_refused(self):
        outcome = python("""
import spillway, torch
torch.ones(1, device="cuda")
try:
    spillway.install_plugin()
except RuntimeError as error:
    print(error)
print(torch.ones(2, device="cuda").sum().item(), torch.cuda.memory_allocated() > 0)
""")
        self.assertIn("before the first use of a CUDA device", outcome.output[0])
        self.assertEqual(outcome.output[1:], ["2.0 False"], outcome.errors)

    def test_twice_is_once_and_both_is_an_error(self):
        outcome = with_plugin("""
a = torch.ones(3, device="cuda")
spillway.install_plugin()
print((a + torch.ones(3, device="cuda")).sum().item())
try:
    spillway.install()
except RuntimeError as error:
    print(error)
""")
        self.assertEqual(outcome.output[0], "6.0", outcome.errors)
        self.assertIn("another allocator ('pluggable')", outcome.output[1])
        outcome = python("import spillway\nspillway.install()\ntry:\n    spillway.install_plugin()\n"
                         "except RuntimeError as error:\n    print(error)")
        self.assertIn("already, by spillway.install()", outcome.output[0])

    def test_a_forked_child_may_free_what_it_inherited(self):
        outcome = with_plugin("""
import os
a = torch.ones(1 << 20, device="cuda")
child = os.fork()
if child == 0:
    del a
    try:
        torch.cuda.caching_allocator_alloc(100)
    except RuntimeError:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), a.sum().item())
""")
        self.assertEqual(outcome.output, [f"7 {float(1 << 20)}"], outcome.errors)

    def test_tensors_that_outlive_the_interpreter(self):
        outcome = with_plugin("""
import atexit, builtins, sys
builtins.kept = torch.ones(1 << 20, device="cuda")
sys.kept_too = [torch.ones(5, device="cuda")]
atexit.register(lambda: print(torch.ones(2, device="cuda").sum().item()))
""")
        self.assertEqual((outcome.status, outcome.output), (0, ["2.0"]), outcome.errors)
        self.assertEqual(outcome.violations(), "")


if __name__ == "__main__":
    unittest.main()
