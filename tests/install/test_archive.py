"""CPack's archive, unpacked in another place."""
import pathlib
import subprocess
import sys
import tarfile
import unittest

import torch
from installed import BUILD, CMAKE, ROOT, Case


class Archive(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cpack = pathlib.Path(CMAKE).with_name("cpack")
        subprocess.run([cpack, "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder / "packed"], check=True,
                       capture_output=True)
        (archive,) = (cls.folder / "packed").glob("*.tar.gz")
        cls.name = archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(cls.folder / "unpacked")
        cls.tree = cls.folder / "unpacked" / cls.name

    def test_it_is_one_folder_of_known_parts(self):
        self.assertRegex(self.name, r"^spillway-\d+\.\d+\.\d+-linux-\w+$")
        self.assertEqual([path.name for path in (self.folder / "unpacked").iterdir()], [self.name])
        parts = sorted(path.name for folder in (self.tree, self.tree / "lib") for path in folder.iterdir())
        self.assertEqual(parts, ["bin", "cmake", "include", "lib", "libspillway.so", "share", "spillway"])

    def test_it_names_nothing_of_this_machine(self):
        self.assert_names_nothing_of_this_machine(self.tree)

    def test_a_c_program_finds_the_package(self):
        self.assert_consumer_works(self.tree, self.build_consumer(self.tree))

    def test_the_python_module_finds_the_libraries(self):
        module = self.tree / "lib" / "spillway" / "python"
        ask = "import spillway; print(spillway.core()._name)"
        ended = self.run_hidden(sys.executable, "-c", ask, PYTHONPATH=module)
        self.assertEqual(ended.stdout, f"{self.tree}/lib/spillway/libspillway.so\n")

    def test_the_framework_is_found_from_the_core_by_its_other_name(self):
        spillway = self.tree / "bin" / "spillway"
        ended = self.run_hidden(spillway, "simulate", "--capacity", "8GiB", "--", spillway, "run", "--", sys.executable,
                                self.folder / "programs" / "cache_in_the_way.py", self.tree / "lib" / "libspillway.so")
        self.assertEqual(ended.stdout, "used\n")
        self.assertIn("1 rescued", ended.stderr)

    def test_the_trainer_needs_libtorch_in_its_search_path(self):
        trainer = self.tree / "bin" / "spillway-train"
        ended = self.run_hidden(trainer, "--help", status=127)
        self.assertIn("libtorch", ended.stderr)
        command = [self.tree / "bin" / "spillway", "simulate", "--capacity", "64MiB", "--values", "compute", "--",
                   trainer, "--config", ROOT / "configs/tiny.toml", "--device", "cuda", "--limit", "16MiB", "--quiet"]
        for setting in ("train.steps=2", f'run.out="{self.folder}/run"', f'data.corpus="{ROOT}/README.md"'):
            command += ["--set", setting]
        ended = self.run_hidden(*command, LD_LIBRARY_PATH=pathlib.Path(torch.__file__).parent / "lib")
        self.assertIn("done", ended.stdout)


if __name__ == "__main__":
    unittest.main()
