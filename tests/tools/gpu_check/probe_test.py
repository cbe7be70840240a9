"""gpu_probe on the simulated driver: every part ends and answers, and what a driver does to a part ends no other."""
import json
import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path(os.environ["SPILLWAY_BUILD_DIR"])
PROBE, SPILLWAY = BUILD / "bin/gpu_probe", BUILD / "bin/spillway"


def probe(*words, simulate=("--gpu", "h200-141gb"), **environment):
    ended = subprocess.run([SPILLWAY, "simulate", *simulate, "--", PROBE, *words], capture_output=True, text=True,
                           timeout=120, env=dict(os.environ, **environment))
    return ended, [json.loads(line) for line in ended.stdout.splitlines()]


class Probe(unittest.TestCase):
    def test_every_part_ends_and_answers(self):
        ended, lines = probe()
        self.assertEqual(ended.returncode, 0, ended.stdout[-2000:] + ended.stderr)
        listed = subprocess.run([PROBE, "--list"], capture_output=True, text=True, check=True).stdout
        ends = [line for line in lines if line["question"] == "end"]
        self.assertEqual(len(ends), len(listed.splitlines()))
        self.assertEqual({line["value"] for line in ends}, {"done"})
        for line in lines:
            self.assertTrue({"part", "question", "value", "unit"} <= set(line), line)
        answered = {line["part"] for line in lines if line["question"] != "end"}
        self.assertEqual(answered, {line["part"] for line in ends})

    def test_it_says_what_the_card_and_the_driver_are(self):
        _, lines = probe("facts")
        facts = {line["question"]: line["value"] for line in lines}
        self.assertEqual((facts["card"], facts["devices"]), ("NVIDIA H200", 1))
        self.assertEqual(facts["functions that this driver lacks"], "")

    def test_host_memory_is_found_where_no_node_is_named(self):
        _, lines = probe("facts", "host locations", simulate=("--capacity", "8GiB", "--profile", "virtual-machine"))
        facts = {line["question"]: line["value"] for line in lines if line["part"] == "facts"}
        self.assertEqual(facts["host NUMA id"], -1)
        mapped = {line["location"]: line["value"] for line in lines if line["question"] == "mapped for the device"}
        self.assertNotEqual(mapped["the device's node"], "CUDA_SUCCESS")
        self.assertNotEqual(mapped["node 0"], "CUDA_SUCCESS")
        self.assertEqual(mapped["host"], "CUDA_SUCCESS")

    def test_straddling_copies_have_the_values_of_a_card_that_computes(self):
        _, lines = probe("straddling", simulate=("--capacity", "4GiB", "--values", "compute"))
        judged = [line for line in lines if "pages" in line]
        self.assertGreater(len(judged), 20)
        wrong = [line for line in judged if line["value"] != "right" and "captured" not in line["question"]]
        self.assertEqual(wrong, [])

    def test_costs_have_their_conditions(self):
        _, lines = probe("page costs")
        creates = [line for line in lines if line["question"] == "create"]
        self.assertEqual({line["bytes"] >> 20 for line in creates}, {2, 16, 32, 128})
        self.assertEqual(max(line["count"] for line in creates), 1024)
        self.assertEqual({line["flags"] for line in creates if line["count"] == 64},
                         {"plain", "descriptor", "rdma", "both"})

    def test_a_part_that_does_not_end_is_ended(self):
        ended, lines = probe("page costs", "--seconds", "0.0001")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("did not end", lines[-1]["value"])

    def test_a_part_that_the_driver_ends_is_told(self):
        ended, lines = probe("facts", "sharing", SPILLWAY_SIM_CARD="no-such-card", simulate=("--capacity", "1GiB"))
        self.assertEqual((ended.returncode, lines[-1]["value"]), (3, "exit code 3"))
        self.assertIn("cuInit", ended.stderr)

    def test_an_unknown_part_is_refused(self):
        ended = subprocess.run([PROBE, "costs"], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--list", ended.stderr)

    def test_it_loads_nothing_but_the_c_library(self):
        printed = subprocess.run(["readelf", "-d", PROBE], capture_output=True, text=True, check=True).stdout
        needed = [line.split("[")[1].rstrip("]") for line in printed.splitlines() if "(NEEDED)" in line]
        self.assertEqual([name for name in needed if not name.startswith(("libc.", "libm.", "ld-linux"))], [])


if __name__ == "__main__":
    unittest.main()
