"""The wheel, installed by pip into a fresh environment that only borrows PyTorch, and used from another folder."""
import importlib.metadata
import shutil
import signal
import subprocess
import sys
import unittest
import zipfile

from installed import ROOT, Case

TORCH = importlib.metadata.version("torch").split(".")
SHIM = "libspillway_torch_{}_{}.so".format(*TORCH)
KERNELS = "libspillway_kernels_{}_{}.so".format(*TORCH)  # on the simulated card, with values or without


class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tree = cls.install()
        subprocess.run([ROOT / "tools" / "wheel", cls.folder / "out", "--tree", tree, "--try", cls.folder / "env"],
                       check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)
        (cls.wheel,) = (cls.folder / "out").iterdir()
        cls.spillway = cls.folder / "env" / "bin" / "spillway"
        cls.python = cls.folder / "env" / "bin" / "python"
        cls.training = cls.folder / "programs" / "training.py"

    def simulate(self, *command, **others):
        return self.run_hidden(self.spillway, "simulate", "--capacity", "4GiB", "--", *command, **others)

    def assert_libraries_are_the_packages(self, paths, *names):
        package = next((self.folder / "env" / "lib").glob("python3*")) / "site-packages" / "spillway" / "lib"
        self.assertEqual(paths, sorted(str(package / name) for name in names))

    def test_its_files_are_whole_and_name_nothing_of_this_machine(self):
        unpacked = self.folder / "unpacked"
        unpacked.mkdir()
        # Checks every file against RECORD.
        subprocess.run([sys.executable, "-m", "wheel", "unpack", "--dest", unpacked, self.wheel], check=True,
                       stdout=subprocess.DEVNULL)
        self.assert_names_nothing_of_this_machine(unpacked)

    def test_it_is_typed_and_brings_no_pytorch(self):
        self.assertRegex(self.wheel.name, r"^spillway-\d+\.\d+\.\d+-py3-none-manylinux_2_\d\d_x86_64\.whl$")
        with zipfile.ZipFile(self.wheel) as held:
            names = held.namelist()
            (metadata,) = (held.read(name).decode() for name in names if name.endswith("/METADATA"))
        self.assertIn("spillway/py.typed", names)
        self.assertNotIn("Requires-Dist", metadata)

    def test_the_command_is_the_program_itself(self):
        version = self.run_hidden(self.spillway, "--version").stdout
        self.assertEqual(version, self.run_hidden(self.python, "-m", "spillway", "--version").stdout)
        self.assertIn(f"-{version.split()[1]}-", self.wheel.name)
        self.assertEqual(self.simulate("sh", "-c", "exit 7", status=7).stdout, "")
        self.simulate("sh", "-c", "kill -TERM $$", status=-signal.SIGTERM)
        ignored = self.simulate("grep", "SigIgn", "/proc/self/status").stdout.split()[1]
        self.assertEqual(int(ignored, 16), 0, "Python's ignored signals are not passed on")

    def test_a_program_is_simulated_rehearsed_and_run(self):
        self.assertTrue(self.simulate(self.python, self.training).stdout.startswith("trained\n"))
        rehearsed = self.run_hidden(self.spillway, "rehearse", "--gpu", "t4-16gb", "--steps", "2", "--", self.python,
                                    self.training)
        self.assertIn(f"fits: {self.python} {self.training}\n", rehearsed.stdout)
        replaced = self.simulate(self.spillway, "run", "--mode", "replace", "--", self.python, self.training)
        self.assert_libraries_are_the_packages(
            replaced.stdout.splitlines()[1:], "libspillway.so", "libspillway_plugin.so", "libspillway_preload.so",
            KERNELS, SHIM)
        self.assertIn("no memory failure", replaced.stderr)

    def test_a_program_installs_it(self):
        trained = self.simulate(self.python, self.training, "--install")
        self.assert_libraries_are_the_packages(
            trained.stdout.splitlines()[1:], "libspillway.so", "libspillway_plugin.so", KERNELS, SHIM)

    def test_missing_files_are_named(self):
        package = next(self.folder.glob("env/lib/python3*/site-packages/spillway"))
        torn = self.folder / "torn"
        shutil.copytree(package, torn / "spillway", ignore=shutil.ignore_patterns("lib", "bin"))
        ask = "import spillway\ntry:\n    spillway.core()\nexcept RuntimeError as error:\n    print(error)"
        asked = self.run_hidden(sys.executable, "-c", ask, PYTHONPATH=torn).stdout
        self.assertIn(f"Spillway's libraries are not in {torn}/spillway/lib or ", asked)
        self.assertIn("install the package again", asked)
        asked = self.run_hidden(sys.executable, "-c", ask, PYTHONPATH=torn, SPILLWAY_LIBRARIES="/nowhere").stdout
        self.assertTrue(asked.startswith("Spillway's libraries are not in /nowhere: "), asked)
        find = "import spillway\nprint(spillway.find_executable_batch_size(lambda batch_size: batch_size, 8)())"
        # That needs no library.
        self.assertEqual(self.run_hidden(sys.executable, "-c", find, PYTHONPATH=torn).stdout, "8\n")
        asked = self.run_hidden(sys.executable, "-m", "spillway", PYTHONPATH=torn, status=1).stderr
        self.assertIn(f"spillway: cannot run {torn}/spillway/bin/spillway: No such file or directory", asked)


if __name__ == "__main__":
    unittest.main()
