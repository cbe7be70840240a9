"""Installed files, and running them where the build and the sources are out of sight."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build")).resolve()
CMAKE = os.environ.get("SPILLWAY_CMAKE", "cmake")
NINJA = os.environ.get("SPILLWAY_NINJA", "ninja")
DEPS = (ROOT / ".deps").resolve()
OWN = pathlib.Path(__file__).resolve().parent

# An empty file system over each folder, seen by the command alone.
_COVERED = [BUILD, ROOT / "python", ROOT / "include"]
_COVER = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
          "for folder in " + " ".join(f"'{folder}'" for folder in _COVERED) + "; do "
          'mount -t tmpfs none "$folder" || exit 125; done; exec "$@"', "sh"]
covers = subprocess.run([*_COVER, "true"], capture_output=True).returncode == 0
if not covers:
    print("this system refuses namespaces: the build stays in sight of what runs here; the installed files are still "
          "searched for its paths", file=sys.stderr)


def search_path(path):
    """What the file asks the loader to search for libraries; "" for nothing, and for what is no program."""
    if path.read_bytes()[:4] != b"\x7fELF":
        return ""
    printed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return ":".join(re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", printed))


class Case(unittest.TestCase):
    """A temporary folder for each class; nothing in it is below the sources."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="spillway-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        shutil.copytree(OWN / "programs", cls.folder / "programs")
        shutil.copytree(OWN / "consumer", cls.folder / "consumer")

    @classmethod
    def install(cls):
        tree = cls.folder / "installed"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", tree], check=True, capture_output=True)
        return tree

    def run_hidden(self, *command, status=0, **settings):
        """Ends with `status`, from the temporary folder, with nothing of Spillway's in the environment."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("SPILLWAY", "PYTHON", "LD_"))}
        words = [str(word) for word in command]
        ended = subprocess.run([*(_COVER if covers else []), *words], cwd=self.folder, capture_output=True, text=True,
                               timeout=200, env={**environment, **{name: str(it) for name, it in settings.items()}})
        self.assertEqual(ended.returncode, status, f"{' '.join(words)}\n{ended.stdout}{ended.stderr}")
        return ended

    def configure_consumer(self, source, out, tree, status=0):
        return self.run_hidden(CMAKE, "-S", source, "-B", out, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={NINJA}",
                               f"-DCMAKE_PREFIX_PATH={tree}", status=status)

    def build_consumer(self, tree):
        """The C program, as its own project builds it from the package."""
        out = self.folder / "consumer-build"
        self.configure_consumer(self.folder / "consumer", out, tree)
        self.run_hidden(CMAKE, "--build", out)
        return out / "consumer"

    def assert_consumer_works(self, tree, consumer):
        """Alone, and when the preloaded library brings the core as well."""
        spillway = tree / "bin" / "spillway"
        simulate = [spillway, "simulate", "--capacity", "1GiB", "--"]
        expected = "limit 64 of 1024 MiB\ncuMemAlloc: 2\ncores: 1\n"
        self.assertEqual(self.run_hidden(*simulate, consumer).stdout, expected)
        preloaded = self.run_hidden(*simulate, spillway, "run", "--", consumer)
        self.assertEqual(preloaded.stdout, expected)
        self.assertIn("1 memory failure", preloaded.stderr)

    def assert_names_nothing_of_this_machine(self, tree):
        files = [path for path in tree.rglob("*") if path.is_file()]
        self.assertGreater(len(files), 20)
        for path in files:
            held = path.read_bytes()
            for name in (BUILD, ROOT, DEPS, "/.deps/"):
                self.assertFalse(str(name).encode() in held, f"{path.relative_to(tree)} names {name}")
            self.assertIn(search_path(path), ("", "$ORIGIN"), path.relative_to(tree))
