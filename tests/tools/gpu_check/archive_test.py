"""The archive of tools/gpu-archive, unpacked where neither the sources nor the build are in sight, on the simulator."""
import json
import re
import shutil
import unittest

from unpacked import CARD, DAMAGED, REMAIN, Unpacked


class Archive(Unpacked):
    def test_it_can_be_carried(self):
        self.assertLess(self.archive.stat().st_size, 60 << 20)
        self.assertRegex(self.printed, r"\(\d+\.\d MiB, unpacked")
        self.assertEqual([entry.name for entry in self.members if not (entry.isfile() or entry.isdir())], [])
        self.assertIn("spillway-gpu-check/.deps/corpus.txt", [entry.name for entry in self.members])

    def test_it_is_made_the_same_again(self):
        self.make(self.folder / "again")
        again = self.folder / "again/spillway-gpu-check.tar.xz"
        self.assertEqual(self.archive.read_bytes(), again.read_bytes())

    def test_a_changed_byte_is_found(self):
        tree = self.folder / "changed"
        shutil.copytree(self.tree, tree)
        core = tree / "build/lib/libspillway.so"
        content = bytearray(core.read_bytes())
        content[4000] ^= 1
        core.write_bytes(content)
        ended = self.run_there(tree / "gpu-check", "--simulated", "--only", "probe", status=DAMAGED)
        self.assertIn("build/lib/libspillway.so is not the file that was packed", ended.stderr)

    def test_it_loads_nothing_of_the_build(self):
        spillway, loaded = self.tree / "build/bin/spillway", set()
        for program in ("gpu_probe", "example_drop_cache", "spillway"):
            words = [spillway, "simulate", "--gpu", CARD, "--", self.tree / "build/bin" / program, "--list"]
            ended = self.run_there("sh", "-c", 'LD_DEBUG=files "$@"; true', "sh", *words)
            loaded |= set(re.findall(r"calling init: (\S+)", ended.stderr))
        self.assertGreater(len(loaded), 5)
        known = re.compile(r"/(usr/)?(local/)?lib(64)?/([\w-]+/)?(ld-linux-x86-64|libc|libm|libdl|libpthread|libgcc_s|"
                           r"libstdc\+\+)\.so\.\d+")
        strange = [path for path in loaded if not path.startswith(str(self.tree)) and not known.fullmatch(path)]
        self.assertEqual(strange, [])

    def test_the_probe_makes_the_machine_of_the_simulator(self):
        found = self.folder / "probed"
        self.run_there(self.tree / "gpu-check", "--simulated", CARD, "--only", "probe", "--folder", found)
        report = (found / "results.md").read_text()
        for line in ("| facts | pass | Tesla T4", "| page costs | pass |", "| answers of the driver |",
                     "20 of 20 parts"):
            self.assertIn(line, report)
        self.assertIn('card = "t4-16gb"', (found / "machine.toml").read_text())
        self.assertTrue((found / "raw/probe-page_costs.json").exists())
        self.run_there(self.tree / "build/bin/spillway", "simulate", "--config", found / "machine.toml", "--",
                       self.tree / "build/bin/gpu_probe", "facts")

    def test_it_stops_within_a_group_and_goes_on(self):
        """Three calls, which do not come to the group's end; complete.py comes to the end of all groups."""
        found, seen = self.folder / "found", []
        words = [self.tree / "gpu-check", "--simulated", CARD, "--only", "beyond", "--folder", found, "--seconds", "10"]
        for _ in range(3):
            ended = self.run_there(*words, status=REMAIN)
            self.assertIn("- not done yet: beyond the card: ", ended.stdout)
            parts = json.loads((found / "results.json").read_text())["parts"]
            rows = [row for part in parts if part.get("state") == "pass" for row in part["rows"]]
            self.assertGreater(len(rows), len(seen))
            self.assertEqual([row for row in seen if row in ended.stdout], [], "what was found is not asked again")
            report = (found / "results.md").read_text().splitlines()
            self.assertEqual([line for line in report if line in rows], rows, "each is there once")
            seen = rows

    def test_programs_find_torch_and_the_allocator(self):
        found = self.folder / "programs"
        ended = self.run_there(self.tree / "tools/gpu-check", "--list")
        self.assertIn("checks: rescue in place", ended.stdout)
        code = ("import sys; sys.path.insert(0, 'tools'); from gpu_check.checks import allocator; "
                "from gpu_check.machine import Machine; import pathlib; "
                f"print(allocator.allocator_in_pytorch(Machine('--gpu', '{CARD}'), pathlib.Path('{found}')))")
        found.mkdir()
        ended = self.run_there("env", "-C", self.tree, self.python, "-c", code)
        self.assertIn("requested bytes equal the native allocator's", ended.stdout)


if __name__ == "__main__":
    unittest.main()
