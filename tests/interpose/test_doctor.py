"""`spillway doctor`: true findings on the simulated card, without a driver, and on machines that lack things."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
SPILLWAY = str(BUILD / "bin" / "spillway")
NEEDED = ("CUDA driver", "preloaded library", "settings")


class Doctor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def consult(self, *options, card=None, python=None, **settings):
        """The findings by name. `card`: options of `simulate`; `python`: the text of one, first on the PATH."""
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        if python is not None:
            (self.folder / "python").write_text(python)
            (self.folder / "python").chmod(0o755)
            path = f"{self.folder}:{path}"
        words = [SPILLWAY, "doctor", "--json", *options]
        if card is not None:
            words = [SPILLWAY, "simulate", *card, "--", *words]
        else:
            settings.setdefault("SPILLWAY_DRIVER", "/no/such/libcuda.so.1")
        ended = subprocess.run(words, capture_output=True, text=True, timeout=280, cwd=self.folder,
                               env={**os.environ, "PATH": path, **settings})
        self.assertIn(ended.returncode, (0, 5), ended.stderr)
        told = json.loads(ended.stdout)
        self.assertEqual(told["works"], ended.returncode == 0)
        self.assertEqual(told["works"], all(it["state"] != "missing" for it in told["trials"] if it["name"] in NEEDED))
        for trial in told["trials"]:
            self.assertTrue(trial["found"], trial)
            self.assertEqual(trial["advice"] is None, trial["state"] == "ok", trial)
        return {trial["name"]: (trial["state"], trial["found"]) for trial in told["trials"]}

    def assert_found(self, trials, name, state, text):
        self.assertIn(name, trials)
        self.assertEqual(trials[name][0], state, trials[name])
        self.assertIn(text, trials[name][1])

    def machine(self, text):
        (self.folder / "machine.toml").write_text(text)
        return ("--gpu", "a100-40gb", "--config", self.folder / "machine.toml")

    def test_the_simulated_card_has_everything(self):
        trials = self.consult(card=("--gpu", "a100-40gb", "--gpus", "2"))
        self.assert_found(trials, "CUDA driver", "ok", "CUDA 13.2, simulated; cuInit found 0: NVIDIA A100")
        for name in ("virtual memory", "host pages", "file descriptors"):
            self.assert_found(trials, name, "ok", "on 0, 1: a page ")
        self.assert_found(trials, "CPU access", "ok", "on 0, 1: the CPU can use a mapped page")
        self.assert_found(trials, "peer access", "ok", "mapped for each other")
        self.assert_found(trials, "preloaded library", "ok", "its hooks saw 1 driver call")
        self.assert_found(trials, "Python", "ok", "runs under the preloaded library")
        self.assert_found(trials, "PyTorch", "ok", "took its first tensor from Spillway")
        self.assert_found(trials, "ledger of processes", "ok", "saw each other")
        self.assertEqual(list(self.folder.iterdir()), [], "nothing is left behind")

    def test_cards_over_pcie(self):
        trials = self.consult(card=("--gpu", "a100-40gb", "--profile", "pcie-peers"))
        self.assert_found(trials, "peer access", "limited",
                          "no native atomics for 1 of 0's, 0 of 1's: spill_to_peer leaves")

    def test_legacy_handles_and_what_is_given_up_for_them(self):
        none, python = self.machine('[driver]\nlegacy_ipc = "none"\n'), "#!/bin/sh\necho 3.99\n"
        no_ipc = ("--gpu", "a100-40gb", "--profile", "no-ipc")
        for card, setting, state, text in (
                (no_ipc, "", "ok", "gives one of memory of cuMemAlloc; SPILLWAY_LEGACY_IPC has tensors lie"),
                (no_ipc, "pools", "limited", "has the tensors of CUDA graphs and MemPools lie: it is neither stitched"),
                (no_ipc, "all", "limited", "has every tensor lie: it is neither stitched nor moved off the card"),
                (none, "", "limited", "not on 0: cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED")):
            trials = self.consult(card=card, python=python, SPILLWAY_LEGACY_IPC=setting)
            self.assert_found(trials, "legacy handles", state, text)

    def test_a_driver_that_is_newer_than_the_hooks(self):
        driver = BUILD / "lib" / "test" / "libnewer_driver.so"
        words = [SPILLWAY, "simulate", "--gpu", "a100-40gb", "--",
                 "env", f"SPILLWAY_DRIVER={driver}", SPILLWAY, "doctor"]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=280, cwd=self.folder)
        self.assertRegex(ended.stdout, r"limited +CUDA driver +CUDA 99\.2, simulated; cuInit found 0: NVIDIA A100")
        self.assertIn("this version of Spillway knows the functions of CUDA 13.2", ended.stdout)

    def test_an_older_driver_and_what_it_lacks(self):
        trials = self.consult(card=("--gpu", "a100-40gb", "--profile", "driver-12.8"))
        self.assert_found(trials, "CUDA driver", "limited", "CUDA 12.8, simulated; cuInit found 0: NVIDIA A100")
        self.assert_found(trials, "newer functions", "limited", " functions of CUDA 13.2 missing, such as cu")
        self.assert_found(trials, "PyTorch", "limited", "is of CUDA 13, and the driver serves CUDA 12 only")
        for name in ("virtual memory", "host pages", "file descriptors"):
            self.assert_found(trials, name, "ok", "a page ")

    def test_a_driver_that_is_too_old(self):
        driver = str(BUILD / "lib" / "test" / "liblacking_driver.so")
        for version, text in (("11080",
                               "serves CUDA 11.8, and Spillway needs CUDA 12.2 or newer: update the GPU driver"),
                              ("12040", "does not export cuCtxGetCurrent, which Spillway needs")):
            trials = self.consult(python="#!/bin/sh\necho 3.99\n", SPILLWAY_DRIVER=driver, LACKING_VERSION=version)
            self.assert_found(trials, "CUDA driver", "missing", text)

    def test_without_a_driver(self):
        trials = self.consult()
        self.assert_found(trials, "CUDA driver", "missing", "the CUDA driver could not be loaded")
        self.assert_found(trials, "preloaded library", "ok", "a program under it answered")
        self.assert_found(trials, "ledger of processes", "ok", "saw each other")

    def test_as_text_with_what_to_do(self):
        ended = subprocess.run([SPILLWAY, "doctor"], capture_output=True, text=True, timeout=280, cwd=self.folder,
                               env={**os.environ, "SPILLWAY_DRIVER": "/no/such/libcuda.so.1"})
        self.assertEqual(ended.returncode, 5)
        self.assertRegex(ended.stdout,
                         r"missing +CUDA driver +the CUDA driver could not be loaded.*\n +-> in a container")
        self.assertIn("spillway run cannot work here", ended.stdout)

    def test_a_device_that_can_not_map_pages_can_still_be_rescued(self):
        trials = self.consult(card=self.machine('[fail]\nname = "cuMemMap"\npersistent = true\ncall = 1\n'
                                                'code = "CUDA_ERROR_NOT_SUPPORTED"\n'), python="#!/bin/sh\necho 3.99\n")
        self.assert_found(trials, "virtual memory", "missing", "CUDA_ERROR_NOT_SUPPORTED")
        self.assert_found(trials, "CUDA driver", "ok", "A100")

    def test_pages_of_the_host_by_machine(self):
        trials = self.consult(card=("--gpu", "a100-40gb", "--profile", "virtual-machine"),
                              python="#!/bin/sh\necho 3.99\n")
        self.assert_found(trials, "host pages", "ok", "a page of host memory was mapped")
        trials = self.consult(card=self.machine("[driver]\nhost_access = false\n"), python="#!/bin/sh\necho 3.99\n")
        self.assert_found(trials, "host pages", "ok", "a page of host memory was mapped")
        self.assert_found(trials, "CPU access", "missing", "cuMemSetAccess takes no descriptor for the host")
        trials = self.consult(card=self.machine("[driver]\nhost_nodes = []\nhost_location = false\n"),
                              python="#!/bin/sh\necho 3.99\n")
        self.assert_found(trials, "host pages", "missing", "on the host without a node: cuMemCreate")

    def test_a_driver_that_hangs_is_ended(self):
        os.mkfifo(self.folder / "libcuda.so.1")  # opening it waits for a writer
        trials = self.consult("--deadline", "1.5", python="#!/bin/sh\necho 3.99\n",
                              SPILLWAY_DRIVER=str(self.folder / "libcuda.so.1"))
        self.assert_found(trials, "CUDA driver", "missing", "the trial did not end within 1.5 s")
        self.assert_found(trials, "ledger of processes", "ok", "saw each other")

    def test_a_python_that_hangs_is_ended(self):
        trials = self.consult("--deadline", "1", python="#!/bin/sh\nsleep 1000\n")
        self.assert_found(trials, "Python", "missing", "did not end within 1 s")
        self.assertNotIn("PyTorch", trials)

    def test_a_python_that_fails_says_why(self):
        trials = self.consult(python="#!/bin/sh\necho it is broken >&2\nexit 3\n")
        self.assert_found(trials, "Python", "missing", "ended with exit code 3: it is broken")

    def test_no_python(self):
        (self.folder / "sh").symlink_to("/bin/sh")
        ended = subprocess.run([SPILLWAY, "doctor", "--json"], capture_output=True, text=True, timeout=280,
                               cwd=self.folder, env={**os.environ, "PATH": str(self.folder)})
        trials = {it["name"]: it for it in json.loads(ended.stdout)["trials"]}
        self.assertIn("no python", trials["Python"]["found"])

    def test_a_pytorch_without_a_shim(self):
        """By its answers: it has a device, and no library that Spillway knows."""
        (self.folder / "torch.py").write_text("""
class cuda:
    is_available = staticmethod(lambda: True)
    get_allocator_backend = staticmethod(lambda: "native")
__version__ = "9.9"
empty = lambda *sizes, device: None
""")
        trials = self.consult(PYTHONPATH=str(self.folder))
        self.assert_found(trials, "PyTorch", "limited", "PyTorch 9.9 kept its own allocator ('native')")

    def test_no_pytorch(self):
        (self.folder / "torch.py").write_text("raise ImportError('not here')")
        self.assert_found(self.consult(PYTHONPATH=str(self.folder)), "PyTorch", "limited", "(not here)")

    def test_settings_of_the_environment(self):
        trials = self.consult(card=("--capacity", "1GiB"), python="#!/bin/sh\necho 3.99\n",
                              SPILLWAY_STRATEGIES="magic", SPILLWAY_LEDGER="off")
        self.assert_found(trials, "settings", "missing", "there is no strategy 'magic'")
        self.assert_found(trials, "ledger of processes", "limited", "SPILLWAY_LEDGER is off")

    def test_a_preloaded_library_that_is_not_there(self):
        trials = self.consult(python="#!/bin/sh\necho 3.99\n", SPILLWAY_LIB_DIR=str(self.folder))
        self.assert_found(trials, "preloaded library", "missing", "libspillway_preload.so is not in")


if __name__ == "__main__":
    unittest.main()
