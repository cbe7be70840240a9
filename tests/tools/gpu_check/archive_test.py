"""The archive of tools/gpu-archive, unpacked where neither the sources nor the build are in sight, on the simulator."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["SPILLWAY_BUILD_DIR"]).resolve()
PYTHON = os.environ.get("SPILLWAY_PYTHON", sys.executable)
REMAIN, DAMAGED = 10, 4
CARD = "t4-16gb"

# An empty file system over each folder, seen by the command alone.
_COVER = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
          f"for folder in '{ROOT}' '{BUILD}'; do [ ! -d \"$folder\" ] || mount -t tmpfs none \"$folder\" || exit 125; "
          'done; cd /; exec "$@"', "sh"]
covers = subprocess.run([*_COVER, "true"], capture_output=True).returncode == 0
if not covers:
    print("this system refuses namespaces: the build stays in sight of what runs here", file=sys.stderr)


def python_outside(folder):
    """The interpreter, copied where its environment lies in the build: the sources and the build are hidden. What it
    imports stays where it is, behind a link."""
    path = pathlib.Path(PYTHON)
    found = path.parent.resolve() / path.name
    if not found.is_relative_to(BUILD):
        return found
    shutil.copytree(found.parent.parent, folder / "python", symlinks=True)
    return folder / "python/bin" / found.name


class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="spillway-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.python = python_outside(cls.folder)
        cls.printed = cls.make(cls.folder / "dist")
        cls.archive = cls.folder / "dist/spillway-gpu-check.tar.xz"
        with tarfile.open(cls.archive) as packed:
            cls.members = packed.getmembers()
            packed.extractall(cls.folder)
        cls.tree = cls.folder / "spillway-gpu-check"

    @staticmethod
    def make(out):
        command = [sys.executable, ROOT / "tools/gpu-archive", out, "--build", BUILD, "--no-build"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def run_there(self, *words, status=0, **settings):
        """With nothing of Spillway's in the environment."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder),
                       "SPILLWAY_PYTHON": str(self.python)}
        command = [*(_COVER if covers else []), *(str(word) for word in words)]
        ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=200,
                               env={**environment, **settings})
        self.assertEqual(ended.returncode, status, f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
        return ended

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

    def test_it_stops_in_time_and_goes_on(self):
        found = self.folder / "found"
        words = [self.tree / "gpu-check", "--simulated", CARD, "--only", "probe", "--folder", found]
        first = self.run_there(*words, "--seconds", "12", status=REMAIN)
        self.assertIn("- not done yet: probe: ", first.stdout)
        began = set(json.loads((found / "state.json").read_text())["parts"])
        second = self.run_there(*words)
        self.assertTrue(began)
        self.assertNotIn("| facts |", second.stdout, "what was found is not asked again")
        report = (found / "results.md").read_text()
        for line in ("| facts | pass | Tesla T4", "| page costs | pass |", "| answers of the driver |",
                     "20 of 20 parts"):
            self.assertIn(line, report)
        self.assertIn('card = "t4-16gb"', (found / "machine.toml").read_text())
        self.assertTrue((found / "raw/probe-page_costs.json").exists())
        self.run_there(self.tree / "build/bin/spillway", "simulate", "--config", found / "machine.toml", "--",
                       self.tree / "build/bin/gpu_probe", "facts")

    def test_programs_find_torch_and_the_allocator(self):
        found = self.folder / "programs"
        ended = self.run_there(self.tree / "tools/gpu-check", "--list")
        self.assertIn("checks: rescue in place", ended.stdout)
        code = ("import sys; sys.path.insert(0, 'tools'); from gpu_check import allocator; "
                "from gpu_check.machine import Machine; import pathlib; "
                f"print(allocator.allocator_in_pytorch(Machine('--gpu', '{CARD}'), pathlib.Path('{found}')))")
        found.mkdir()
        ended = self.run_there("env", "-C", self.tree, self.python, "-c", code)
        self.assertIn("requested bytes equal the native allocator's", ended.stdout)


if __name__ == "__main__":
    unittest.main()
