"""Memory that moves to another device."""
import json
import os
import pathlib
import sys
import unittest

from case import OWN, PROGRAMS, SPILLWAY, USE_SHOWN, Case


# Some profiles have cards over PCIe, to which no memory goes: these have a link of their own under every profile.
LINKED = """
[driver]
native_atomics = true
[bandwidth]
peer = 250
"""


class PeerDevice(Case):
    """Memory of live tensors goes to another card of the program, at the same address."""
    small = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "4", "640"]
    computing = ("--values", "compute", "--capacity")
    replace = ["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"]

    def setUp(self):
        super().setUp()
        self.ledger = f"spillway-test-peer-{os.getpid()}"
        self.addCleanup(pathlib.Path(f"/dev/shm/{self.ledger}").unlink, missing_ok=True)

    def linked(self, capacity="104MiB"):
        config = pathlib.Path(self.folder) / "linked.toml"
        config.write_text(LINKED)
        return (*self.computing, capacity, "--gpus", "2", "--config", str(config))

    def ended(self, *options):
        return self.run_on(*self.small, card=self.linked(), options=[*self.replace, *options],
                           SPILLWAY_LEDGER=self.ledger, SPILLWAY_SIM_REPORT=f"{self.folder}/sim-%p.json")

    def peaks(self):
        """Of the second card, in the processes that touched any."""
        reports = [json.loads(path.read_text()) for path in pathlib.Path(self.folder).glob("sim-*.json")]
        return [report["devices"][1]["peak_bytes"] for report in reports if len(report["devices"]) == 2]

    def test_values_are_bitwise_those_of_a_run_with_room(self):
        with_room = self.simulate(*self.small, card=(*self.computing, "4GiB"))
        native = self.simulate(*self.small, card=self.linked("200MiB"))
        self.assertIn("OutOfMemoryError", native.errors)
        ended = self.ended("--strategies", "stitch,release_cache,spill_to_peer", "--peer-budget", "104MiB")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("0x1", ended.output)
        self.assertEqual(ended.output, with_room.output)
        report = next(iter(ended.reports.values()))
        self.assertRegex(report, r"spill_to_peer +\d+ +\d+ .*MiB")
        self.assertGreater(max(self.peaks()), 20 << 20, "the pages lie on the other card")
        self.assertLessEqual(max(self.peaks()), 104 << 20)

    def test_a_link_of_its_own_goes_before_host_memory(self):
        ended = self.ended()
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(next(iter(ended.reports.values())), r"spill_to_peer +\d+ +\d+ .*MiB")
        self.assertGreater(max(self.peaks()), 20 << 20)

    def test_without_peer_access_the_host_serves(self):
        config = pathlib.Path(self.folder) / "machine.toml"
        config.write_text('peer_access = false\ndevices = 2\nvalues = "compute"\ncapacity = "104MiB"\n')
        words = ["--config", str(config)]
        ended = self.run_on(*self.small, card=words, options=self.replace, SPILLWAY_LEDGER=self.ledger,
                            SPILLWAY_SIM_REPORT=f"{self.folder}/sim-%p.json")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(next(iter(ended.reports.values())), r"spill_to_host +\d+ +\d+ .*MiB")
        self.assertEqual(max(self.peaks()), 0)
        # And the simulated driver refuses what was never asked for.
        mapping = """
import ctypes, torch
driver, size, pages = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(2 << 20), (ctypes.c_int * 8)(1, 0, 1, 1)
torch.cuda.init()
at, handle, word = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64
print(driver.cuMemAddressReserve(ctypes.byref(at), size, size, word(0), word(0)),
      driver.cuMemCreate(ctypes.byref(handle), size, pages, word(0)),
      driver.cuMemMap(at, size, ctypes.c_size_t(0), handle, word(0)),
      *(driver.cuMemSetAccess(at, size, (ctypes.c_int * 3)(1, device, 3), ctypes.c_size_t(1)) for device in (0, 1)))
"""
        self.assertEqual(self.simulate(sys.executable, "-c", mapping, card=words).output, "0 0 0 217 0\n")

    def test_a_card_without_a_budget_is_left_alone(self):
        ended = self.ended("--peer-budget", "0")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(max(self.peaks()), 0)

    def test_another_program_on_that_card_gets_its_memory_back(self):
        """As soon as it asks, the guests leave."""
        other = f"""
import pathlib, time, torch
folder = pathlib.Path({self.folder!r})
while not (folder / "spilled").exists(): time.sleep(0.05)
block = torch.empty(90 << 20, dtype=torch.uint8, device="cuda")
print("other has", block.numel() >> 20)
(folder / "served").touch()
"""
        program = f"""
import pathlib, time, torch
folder = pathlib.Path({self.folder!r})
blocks = [torch.full((10 << 20,), i, dtype=torch.uint8, device="cuda") for i in range(14)]
(folder / "spilled").touch()
for _ in range(600):
    if (folder / "served").exists(): break
    time.sleep(0.05)
print("values", all(bool((block == i).all()) for i, block in enumerate(blocks)))
"""
        for name, text in (("other.py", other), ("program.py", program)):
            (pathlib.Path(self.folder) / name).write_text(text)
        run = " ".join([SPILLWAY, "run", *self.replace])
        script = f"""CUDA_VISIBLE_DEVICES=1 {SPILLWAY} run -- {sys.executable} other.py & other=$!
            {run} --peer-budget 100MiB -- {sys.executable} program.py; status=$?; wait $other || exit 9; exit $status"""
        ended = self.simulate("sh", "-c", script, card=self.linked(), SPILLWAY_LEDGER=self.ledger)
        self.assertEqual(ended.status, 0, ended.errors + "".join(ended.reports.values()))
        self.assertIn("values True", ended.output)
        self.assertIn("other has 90", ended.output)
        self.assertTrue(any("spill_to_peer" in report for report in ended.reports.values()))

    def test_guests_stay_where_idle_memory_is_enough(self):
        """Who is asked gives what nobody uses first, on that card too."""
        other = f"""
import json, pathlib, subprocess, time, torch
folder = pathlib.Path({self.folder!r})
while not (folder / "spilled").exists(): time.sleep(0.05)
block = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
time.sleep(1)
top = subprocess.run(["{SPILLWAY}", "top", "--once", "--json"], capture_output=True, check=True)
devices = json.loads(top.stdout)["devices"]
print("guests", max(one["spilled_peer_bytes"] for device in devices for one in device["processes"]) >> 20)
(folder / "served").touch()
"""
        program = f"""
import pathlib, time, torch
{USE_SHOWN}
folder = pathlib.Path({self.folder!r})
idle = torch.empty(60 << 20, dtype=torch.uint8, device="cuda:1")
blocks = [torch.full((10 << 20,), i, dtype=torch.uint8, device="cuda") for i in range(12)]
del idle
shown.wait_until(lambda share: share["spare_bytes"] >= 60 << 20, "60 MiB to spare")
(folder / "spilled").touch()
for _ in range(600):
    if (folder / "served").exists(): break
    time.sleep(0.05)
print("values", all(bool((block == i).all()) for i, block in enumerate(blocks)))
"""
        for name, text in (("other.py", other), ("program.py", program)):
            (pathlib.Path(self.folder) / name).write_text(text)
        run = " ".join([SPILLWAY, "run", *self.replace])
        script = f"""CUDA_VISIBLE_DEVICES=1 {SPILLWAY} run -- {sys.executable} other.py & other=$!
            {run} --peer-budget 100MiB -- {sys.executable} program.py; status=$?; wait $other || exit 9; exit $status"""
        ended = self.simulate("sh", "-c", script, card=self.linked(), SPILLWAY_LEDGER=self.ledger)
        self.assertEqual(ended.status, 0, ended.errors + "".join(ended.reports.values()))
        self.assertIn("values True", ended.output)
        self.assertRegex(ended.output, r"guests [1-9]", ended.errors + "".join(ended.reports.values()))


class TimedDevices(Case):
    """Operators take their time on the card that they run on, whichever is the current one."""

    def test_cards_compute_at_the_same_time(self):
        ended = self.simulate(sys.executable, OWN / "devices" / "timed_devices.py",
                              card=("--gpus", "2", "--capacity", "8GiB", "--profile", "timed-kernels"),
                              PYTHONPATH=str(OWN))
        self.assertEqual(ended.status, 0, ended.errors)
        ms = {name: float(value) for name, value in (line.split() for line in ended.output.splitlines())}
        self.assertAlmostEqual(ms["second"], ms["first"], delta=0.05 * ms["first"])
        self.assertLess(ms["both"], 1.1 * ms["first"])
        over_the_link = 4096 * 4096 * 4 / 250e9 * 1000  # the driver's copy, once
        self.assertLess(ms["copy"], 1.5 * over_the_link)


if __name__ == "__main__":
    unittest.main()
