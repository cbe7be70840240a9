"""PYTORCH_CUDA_ALLOC_CONF with Spillway as PyTorch's allocator: honoured, or refused as the native one refuses."""
import sys
import unittest

import simulated

CODE = """
import sys, torch
if sys.argv[1] == "spillway":
    import spillway
    spillway.install()
MIB = 1 << 20
new = lambda bytes_: torch.empty(bytes_, dtype=torch.uint8, device="cuda")
try:
    torch.cuda.init()
    print("fraction", torch.cuda.get_per_process_memory_fraction())
    held = [new(bytes_) for bytes_ in (1, 600, 3000, 100_000, 5 * MIB + 1, 12 * MIB, 150 * MIB)]
    keys = ("allocated_bytes.all.current", "requested_bytes.all.current", "max_split_size",
            "oversize_allocations.current", "oversize_allocations.peak", "oversize_allocations.allocated")
    say = lambda: print([torch.cuda.memory_stats()[key] for key in keys])
    say()
    held += [new(2500 * MIB)]
    say()
    del held
    say()
except Exception as error:
    print(type(error).__name__, str(error)[:47])
"""

# What torch.cuda.memory._snapshot() says of the settings.
NAMED = """
import sys, torch
if sys.argv[1] == "spillway":
    import spillway
    spillway.install()
torch.cuda.init()
for name, value in sorted(torch.cuda.memory._snapshot()["allocator_settings"].items()):
    print(name, value)
"""

CHANGING = """
import sys, torch
if sys.argv[1] == "spillway":
    import spillway
    spillway.install()
MIB = 1 << 20
new = lambda bytes_: torch.empty(bytes_, dtype=torch.uint8, device="cuda")
torch.cuda.init()
for settings in ("", "roundup_power2_divisions:4", "garbage_collection_threshold:0.5,max_split_size_mb:100",
                 "roundup_power2_divisions:[2:8,256:2,>:1]", "roundup_power2_divisions:8,max_split_size_mb:2", "",
                 "throw_on_cudamalloc_oom:True"):
    try:
        torch.cuda.memory._set_allocator_settings(settings)
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__)
    held = [new(bytes_) for bytes_ in (600, 200_000, 22 * MIB, 42 * MIB, 150 * MIB, 1040 * MIB)]
    stats = torch.cuda.memory_stats()
    print(settings, [stats[key] for key in ("active_bytes.all.current", "requested_bytes.all.current",
                                            "oversize_allocations.current")])
    del held
    torch.cuda.empty_cache()
try:
    new(1 << 40)
except torch.OutOfMemoryError as error:
    print(str(error)[:68], torch.cuda.memory_stats().get("num_oom_rejections"))
"""


def run(allocator, settings, code=CODE):
    return simulated.run(sys.executable, "-c", code, allocator, values="zeros", PYTORCH_CUDA_ALLOC_CONF=settings)


class Settings(unittest.TestCase):
    def compare(self, settings, code=CODE):
        native, ours = run("native", settings, code), run("spillway", settings, code)
        self.assertEqual((native.status, ours.status), (0, 0), native.errors + ours.errors)
        self.assertEqual(ours.output, native.output, settings)
        return ours.output

    @unittest.skipIf(simulated.MINOR < 10, "the setting came with 2.10")
    def test_a_fraction_limits_from_the_start(self):
        output = self.compare("per_process_memory_fraction:0.5")
        self.assertEqual(output[0], "fraction 0.5")
        self.assertTrue(output[-1].startswith("OutOfMemoryError"), output)

    def test_divisions_round_what_is_allocated_and_not_what_was_asked_for(self):
        everywhere = self.compare("roundup_power2_divisions:4")
        self.assertNotEqual(everywhere, self.compare("roundup_power2_divisions:[2:2,>:1]"))

    def test_oversize_blocks_are_counted(self):
        self.assertIn(", 104857600, 2, 2, 2]", self.compare("max_split_size_mb:100")[2])

    def test_what_bounds_the_native_cache_is_accepted(self):
        newer = ("large_segment_size_mb:40",) if simulated.MINOR >= 11 else ()
        for settings in ("expandable_segments:True", "garbage_collection_threshold:0.8", *newer):
            self.assertEqual(len(self.compare(settings)), 4)

    def test_a_snapshot_names_them(self):
        given = "expandable_segments:True,max_split_size_mb:100,garbage_collection_threshold:0.8"
        output = self.compare(given, NAMED)
        self.assertIn("expandable_segments True", output)
        self.assertIn(f"PYTORCH_CUDA_ALLOC_CONF {given}", output)

    def test_nonsense_is_refused(self):
        for settings in ("nonsense:1", "max_split_size_mb:5", "garbage_collection_threshold:2"):
            native, ours = run("native", settings), run("spillway", settings)
            self.assertEqual(ours.status, native.status, settings)
            if native.status == 0:
                self.assertEqual(ours.output, native.output, settings)
                self.assertRegex(ours.output[0], "^ValueError" if simulated.MINOR >= 10 else "Error", settings)
            else:  # 2.9 ends the process
                self.assertEqual(self.reason(ours), self.reason(native), settings)

    def reason(self, ended):
        (line,) = [line for line in str(ended.errors).splitlines() if line.strip().startswith("what():")]
        return line

    def test_settings_that_change_while_the_program_runs_count(self):
        output = self.compare("", CHANGING)
        self.assertIn("ValueError" if simulated.MINOR >= 10 else "RuntimeError", output)
        allocated = {line.partition(" [")[2] for line in output if line.startswith(("roundup", " ["))}
        self.assertGreater(len(allocated), 3, output)
        if simulated.MINOR >= 12:  # the first that has the setting
            self.assertIn("preemptively rejected", output[-1])

    def test_another_backend_is_no_place_for_spillway(self):
        ours = run("spillway", "backend:cudaMallocAsync")
        self.assertEqual(ours.status, 1)
        self.assertIn("another allocator ('cudaMallocAsync') already stands in for PyTorch's", ours.errors)


if __name__ == "__main__":
    unittest.main()
