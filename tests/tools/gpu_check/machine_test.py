"""machine.toml, which gpu-check makes of the probe's answers: the simulator that reads it gives the same answers."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
from gpu_check import machine  # noqa: E402

machine.BUILD = pathlib.Path(os.environ["SPILLWAY_BUILD_DIR"])  # before the others take it from there
from gpu_check import figures, probing, simulated_machine  # noqa: E402

# Answers about this computer at this moment.
OF_THE_MOMENT = ("system memory", "made at once")
# Unlike the simulator by itself in every key of its driver but the version.
ODD = """
capacity = 4294967296
devices = 3
peer_access = false
capability = "9.0"
multiprocessors = 77
context_bytes = 20971520

[driver]
host_numa_id = 5
host_nodes = [1, 5]
host_location = false
host_access = false
native_atomics = false
legacy_ipc = "none"
crashes_on_destroyed = true
"""


def keys_of(text):
    """Of a file whose values are JSON too: with their section's name in front."""
    keys, section = {}, ""
    for line in text.splitlines():
        name, equals, value = line.partition(" = ")
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif equals and not line.startswith("#"):
            keys[section + name] = json.loads(value.split("  # ")[0])
    return keys


def answers(simulated, without=()):
    """Of each part of the probe: its lines."""
    return {name: probing.ask(simulated, name)[0] for name, _, _ in probing.PARTS if name not in without}


def compared(found):
    """What does not depend on the moment, in the probe's order. Parts that only measure times are not compared."""
    lines = [line for name in found if name not in figures.TIMES for line in found[name]]
    return [{key: value for key, value in line.items() if key != "us"} for line in lines
            if line["question"] not in ("end", *OF_THE_MOMENT) and line["unit"] not in figures.NOT_COMPARED and
            "least" not in line]


class RoundTrip(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "machine.toml"

    def written(self, found):
        """The file's keys, the names that the probe did not answer, and those that the simulator does not know."""
        kept, unanswered = simulated_machine.entries({name: probing.Answers(lines) for name, lines in found.items()},
                                                     None)
        left_out = simulated_machine.write(self.path, kept, unanswered)
        return keys_of(self.path.read_text()), unanswered, left_out

    def expect_the_same_again(self, *simulate):
        first = answers(machine.Machine(*simulate))
        keys, unanswered, left_out = self.written(first)
        self.assertEqual(left_out, [])
        again = answers(machine.Machine("--config", self.path), without=figures.TIMES)
        self.assertEqual(compared(again), compared(first))
        return keys, unanswered

    def test_a_machine_of_each_profile_answers_the_same_again(self):
        for profile, key, value in (("virtual-machine", "host_nodes", []), ("pcie-peers", "native_atomics", False),
                                    ("no-ipc", "legacy_ipc", "allocations"), ("driver-12.8", "version", "12.8"),
                                    ("unforgiving", "crashes_on_destroyed", True)):
            with self.subTest(profile):
                keys, _ = self.expect_the_same_again("--capacity", "4GiB", "--profile", profile)
                self.assertEqual(keys[f"driver.{key}"], value)

    def test_so_does_one_that_is_unlike_the_simulator_in_every_key(self):
        odd = self.path.with_name("odd.toml")
        odd.write_text(ODD)
        keys, _ = self.expect_the_same_again("--config", odd)
        for name, value in keys_of(ODD).items():
            self.assertEqual(keys[name], value, name)

    def test_what_the_probe_did_not_answer_is_named(self):
        found = answers(machine.Machine("--capacity", "4GiB"))
        keys, unanswered, _ = self.written(found)
        # One card has no peers, and the simulator runs none of the probe's kernels.
        self.assertEqual(unanswered, ["peer_access", "driver.native_atomics", "driver.mapping_waits", "bandwidth.peer"])
        self.assertIn(f"# Left out, because the probe did not answer: {', '.join(unanswered)}", self.path.read_text())
        for part in ("host locations", "sharing", "destroyed handles"):
            found[part] = []
        keys, unanswered, _ = self.written(found)
        self.assertEqual({name for name in keys if name.startswith("driver.")},
                         {"driver.version", "driver.host_numa_id"})
        self.assertIn("driver.host_nodes", unanswered)

    def test_a_driver_of_which_there_is_no_library_is_left_out(self):
        found = answers(machine.Machine("--capacity", "4GiB"))
        for line in found["facts"]:
            if line["question"] == "CUDA version of the driver":
                line["value"] = 12060
        keys, _, left_out = self.written(found)
        self.assertEqual(left_out, ["driver.version"])
        self.assertNotIn("driver.version", keys)
        self.assertIn("# Left out, because this simulator does not know them: driver.version", self.path.read_text())


if __name__ == "__main__":
    unittest.main()
