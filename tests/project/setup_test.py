"""tools/setup where something is missing: each time one clear message, and nothing half done that a second run keeps.

It runs in a scratch checkout, with a cache folder of its own and one small package in place of PyTorch.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / ".deps" / "corpus.txt"
NOBODY = 65534


def make_wheel(folder, name="tiny_package", version="1.0", more=""):
    """A package that pip can install without a network. `more`: lines of its METADATA."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = '{version}'\n")
        package = name.replace("_", "-")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{more}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def write_program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.cache = self.folder / "cache"
        self.wheels = self.folder / "wheels"
        self.wheels.mkdir()
        make_wheel(self.wheels)
        self.large_disk = self.folder / "large_disk"
        self.large_disk.mkdir()
        write_program(self.large_disk / "df", "echo Avail; echo 100000M")

    def checkout(self, name):
        tools = self.folder / name / "tools"
        tools.mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "setup", tools)
        (tools / "requirements.txt").write_text("tiny-package==1.0\n")
        (tools / "requirements-oldest.txt").write_text("tiny-package==1.0\n")
        (tools / "requirements-tests.txt").write_text("tiny-package==1.0\n")
        (tools / "requirements-trainers.txt").write_text("tiny-package==1.0\n")
        return tools.parent

    def keep_corpus(self):
        (self.cache / "corpus").mkdir(parents=True)
        shutil.copy(CORPUS.resolve(), self.cache / "corpus" / "jargon.txt")

    def environment(self, **more):
        """PyTorch's place is asked for, and the small package takes none: this machine's free room is nothing to it."""
        return {**os.environ, "PATH": f"{self.large_disk}:{os.environ['PATH']}", "SPILLWAY_CACHE": str(self.cache),
                "PIP_NO_INDEX": "1", "PIP_RETRIES": "0", "PIP_FIND_LINKS": str(self.wheels),
                "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}

    def start(self, checkout, *words, before=(), **more):
        return subprocess.Popen([*before, checkout / "tools" / "setup", *words], env=self.environment(**more),
                                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True)

    def programs(self, **texts):
        """PATH with these programs before the machine's: name=script."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for name, text in texts.items():
            write_program(folder / name.replace("_", "-"), text)
        return f"{folder}:{self.large_disk}:{os.environ['PATH']}"

    def run_setup(self, checkout, *words, **options):
        process = self.start(checkout, *words, **options)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def assert_refused(self, outcome, *texts):
        status, said = outcome
        self.assertEqual(status, 1, said)
        self.assertRegex(said.splitlines()[-1], "^setup: error: ")
        for text in texts:
            self.assertIn(text, said.splitlines()[-1])

    def assert_complete(self, outcome, checkout):
        status, said = outcome
        self.assertEqual((status, said.splitlines()[-1]), (0, "setup: done"), said)
        imported = subprocess.run([checkout / ".deps" / "bin" / "python", "-c", "import tiny_package"])
        self.assertEqual(imported.returncode, 0)

    def test_two_at_once_make_one_environment(self):
        self.keep_corpus()
        checkouts = [self.checkout("one"), self.checkout("two")]
        processes = [self.start(checkout) for checkout in checkouts]
        outcomes = [(process, process.communicate(timeout=120)[0]) for process in processes]
        for (process, said), checkout in zip(outcomes, checkouts):
            self.assert_complete((process.returncode, said), checkout)
        self.assertEqual(sum("making" in said for _, said in outcomes), 1, outcomes)

    def test_the_oldest_has_its_own_packages_and_the_others_beside_them(self):
        self.keep_corpus()
        checkout = self.checkout("one")
        for name in ("first", "both"):
            make_wheel(self.wheels, name, "2.0")
        make_wheel(self.wheels, "both", "1.0")
        (checkout / "tools" / "requirements.txt").write_text("tiny-package==1.0\nfirst==2.0\nboth==2.0\n")
        (checkout / "tools" / "requirements-oldest.txt").write_text("both==1.0\n")
        self.assert_complete(self.run_setup(checkout, "--oldest"), checkout)
        code = "import both, first; print(both.version, first.version)"
        said = subprocess.run([checkout / ".deps-oldest" / "bin" / "python", "-c", code],
                              capture_output=True, text=True)
        self.assertEqual(said.stdout, "1.0 2.0\n", said.stderr)
        first, = (checkout / ".deps").resolve().glob("lib/python3*/site-packages")
        own, = (checkout / ".deps-oldest").resolve().glob("lib/python3*/site-packages")
        self.assertEqual((own / "nvidia").readlink(), first / "nvidia", "its libraries look for NVIDIA's there")
        readers = subprocess.run([checkout / ".deps-tests" / "bin" / "python", "-c", "import tiny_package"])
        self.assertEqual(readers.returncode, 0)

    def test_environments_of_other_versions_are_named(self):
        self.keep_corpus()
        (self.cache / "env-0123456789ab").mkdir()
        (self.cache / "oldest-0123456789ab").mkdir()
        outcome = self.run_setup(self.checkout("one"))
        self.assert_complete(outcome, self.folder / "one")
        named = [line for line in outcome[1].splitlines() if "remove what no other one uses" in line]
        self.assertEqual([pathlib.Path(each).name for line in named for each in line.split(":")[-1].split()],
                         ["env-0123456789ab", "oldest-0123456789ab"])

    def test_an_unknown_option(self):
        self.assert_refused(self.run_setup(self.checkout("one"), "--newest"), "unknown option '--newest'", "--oldest")

    def test_what_a_killed_one_left_is_made_anew(self):
        self.keep_corpus()
        checkout = self.checkout("one")
        process = self.start(checkout)
        end = time.monotonic() + 60
        while not list(self.cache.glob("env-*/bin/python")) and time.monotonic() < end:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        left = list(self.cache.glob("env-*"))
        self.assertEqual(len(left), 1)
        self.assertFalse((left[0] / "complete").exists(), "it was killed too late")
        self.assert_complete(self.run_setup(checkout), checkout)

    def test_without_the_package_index(self):
        outcome = self.run_setup(self.checkout("one"), PIP_FIND_LINKS="")
        self.assert_refused(outcome, "the Python packages could not be installed: is there a network?")
        self.assertIn("setup: pip: ", outcome[1])

    def test_without_a_network_for_the_text(self):
        fails = "echo 'E: Could not resolve host' >&2; exit 100"
        outcome = self.run_setup(self.checkout("one"), PATH=self.programs(apt_get=fails, sudo=fails))
        self.assert_refused(outcome, "jargon-text could not be fetched: is there a network?")

    def test_one_list_of_packages_that_cannot_be_fetched(self):
        """A dead source that has nothing to do with it; the packages may all be in the others."""
        checkout = self.checkout("one")
        path = self.programs(dpkg_query="exit 1", sudo='exec "$@"', apt_get='[ "$1" != update ] || exit 100',
                             python3="exit 1")
        outcome = self.run_setup(checkout, PATH=path)
        self.assert_refused(outcome, "Python 3.11 or newer is needed")  # what comes next
        self.assertIn("the package lists were not all fetched", outcome[1])
        path = self.programs(dpkg_query="exit 1", sudo='exec "$@"', apt_get="echo 'E: no such package' >&2; exit 100")
        outcome = self.run_setup(checkout, PATH=path)
        self.assert_refused(outcome, "apt-get could not install: g++")
        self.assertIn("E: no such package", outcome[1])

    def test_a_python_that_is_too_old(self):
        old = 'case $1 in -V) echo Python 3.10.12 ;; *) exit 1 ;; esac'
        outcome = self.run_setup(self.checkout("one"), PATH=self.programs(python3=old))
        self.assert_refused(outcome, "Python 3.11 or newer is needed", "is Python 3.10.12")

    def test_a_python_that_a_package_is_not_for(self):
        make_wheel(self.wheels, more="Requires-Python: >=4\n")
        self.assert_refused(self.run_setup(self.checkout("one")), "some are not made for Python 3.")

    def test_a_python_that_was_removed(self):
        self.keep_corpus()
        checkout = self.checkout("one")
        self.assert_complete(self.run_setup(checkout, SPILLWAY_CACHE="cache"), checkout)  # a folder here
        self.assertTrue((checkout / ".deps" / "corpus.txt").exists())
        self.assertFalse((self.cache / "fetched").exists(), "what pip fetched lies beside what it made of it")
        python = (checkout / ".deps").resolve() / "bin" / "python"
        python.unlink()
        python.symlink_to(self.folder / "gone")
        self.assert_complete(self.run_setup(checkout), checkout)

    def test_a_checkout_that_nothing_could_be_preloaded_from(self):
        for name in ("a checkout", "a:checkout"):
            self.assert_refused(self.run_setup(self.checkout(name)), f"/{name}', has a space, a colon or a semicolon")

    def on_a_small_disk(self, folder, command):
        """The words of a command that runs where `folder` is a disk of a megabyte."""
        folder.mkdir()
        words = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c"]
        if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
            self.skipTest("this machine refuses a mount namespace: no small disk can be made")
        return [*words, f"mount -t tmpfs -o size=1m tmpfs {folder} && {command}"]

    def test_the_tests_builds_on_a_full_disk(self):
        """Else a linker says so, after ten minutes."""
        there = self.folder / "checkout"
        start = f'mkdir {there}/tools && cp {ROOT}/tools/test {there}/tools && exec {there}/tools/test "$@"'
        for option, said in ((), "see tools/test --quick"), (("--quick",), "Free some\n"):
            shutil.rmtree(there, ignore_errors=True)
            words = [*self.on_a_small_disk(there, start), "test", *option]
            ended = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual(ended.returncode, 1, ended.stderr)
            self.assertRegex(ended.stderr, r"the builds take \d+ MB in this folder, where 1 MB are free")
            self.assertIn(said, ended.stderr)

    def test_a_full_disk(self):
        before = self.on_a_small_disk(self.cache, 'exec "$0"')
        outcome = self.run_setup(self.checkout("one"), before=before, PATH=os.environ["PATH"])
        self.assert_refused(outcome, f" MB in {self.cache}, where 1 MB are free", "SPILLWAY_CACHE")

    def test_neither_root_nor_sudo(self):
        tools = self.folder / "path"
        tools.mkdir()
        self.cache.mkdir()
        self.cache.chmod(0o777)
        write_program(tools / "dpkg-query", "exit 1")  # nothing is installed
        for name in ("bash", "dirname", "flock", "id", "mkdir", "sh"):
            (tools / name).symlink_to(shutil.which(name))
        before = ["/usr/bin/setpriv", "--reuid", str(NOBODY), "--clear-groups"] if os.geteuid() == 0 else []
        outcome = self.run_setup(self.checkout("one"), before=before, PATH=str(tools))
        self.assert_refused(outcome, "neither root nor sudo", "mold", "ccache")

    def test_a_cache_folder_that_cannot_be_written(self):
        self.cache.write_text("a file")
        self.assert_refused(self.run_setup(self.checkout("one")), f"the folder {self.cache} cannot be written")


if __name__ == "__main__":
    unittest.main()
