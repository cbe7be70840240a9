"""The archive of tools/gpu-archive, unpacked where neither the sources nor the build are in sight."""
import os
import pathlib
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


class Unpacked(unittest.TestCase):
    making = []  # options of tools/gpu-archive

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

    @classmethod
    def make(cls, out):
        command = [sys.executable, ROOT / "tools/gpu-archive", out, "--build", BUILD, "--no-build", *cls.making]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def run_there(self, *words, status=0, timeout=200, **settings):
        """With nothing of Spillway's in the environment. `status` None: any."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder),
                       "SPILLWAY_PYTHON": str(self.python)}
        command = [*(_COVER if covers else []), *(str(word) for word in words)]
        ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=timeout,
                               env={**environment, **settings})
        if status is not None:
            self.assertEqual(ended.returncode, status, f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
        return ended
