"""Several processes on one card."""
import json
import os
import pathlib
import re
import sys
import unittest

from case import OWN, SPILLWAY, USE_SHOWN, Case


class Peers(Case):
    """Two programs on one card, of which one has cached what the other needs."""

    def both(self, modes, **settings):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        prefix = [f"{SPILLWAY} run --mode {mode} -- " if mode else "" for mode in modes]
        script = f"{prefix[0]}{program} hoard & {prefix[1]}{program} need; status=$?; wait $! || exit 9; exit $status"
        return self.simulate("sh", "-c", script, SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}", **settings)

    def tearDown(self):
        pathlib.Path(f"/dev/shm/spillway-test-{os.getpid()}").unlink(missing_ok=True)

    def test_natively_one_of_them_dies(self):
        ended = self.both([None, None])
        self.assertEqual(ended.status, 1, ended.errors)
        self.assertIn("OutOfMemoryError", ended.errors)
        self.assertIn("reserves 30", ended.output)

    def test_both_finish(self):
        for modes in (("rescue", "rescue"), ("replace", "replace"), ("rescue", "replace")):
            with self.subTest(modes=modes):
                for name in ("hoarded", "needed"):
                    (pathlib.Path(self.folder) / name).unlink(missing_ok=True)
                ended = self.both(modes)
                self.assertEqual(ended.status, 0, ended.errors)
                self.assertIn("need: has 20", ended.output)
                self.assertIn("hoard: still has 1048576", ended.output)
                left = int(re.search(r"reserves (\d+)", ended.output).group(1))
                self.assertTrue(left == 0 if modes[0] == "rescue" else 15 < left < 20,
                                f"PyTorch's own allocator gives its cache whole, Spillway's what is needed: {left}")
                self.assertRegex(ended.errors, r"met, [1-9]\d* rescued")
                self.assertTrue(any(re.search(r"ask_processes +\d+ +[1-9]", it) for it in ended.reports.values()))
                if modes[1] == "replace":  # as it was before the others gave theirs back
                    self.assertTrue(any(re.search(r"Verdict: other processes: .* hold [\d.]+ GiB: process \d+", it)
                                        for it in ended.reports.values()), ended.reports)
                self.assertFalse(any(re.search(r"spill_to_\w+ +[1-9]", it) for it in ended.reports.values()),
                                 "memory in use was moved, though another process only cached")

    def test_one_that_is_not_asked_keeps_its_cache(self):
        """So the test above can fail."""
        ended = self.both(["rescue", "observe"])
        self.assertEqual(ended.status, 1, ended.errors)
        self.assertIn("reserves 30", ended.output)

    def test_who_is_on_another_simulated_machine_is_not_asked(self):
        """Their first cards have one UUID, and nothing in common."""
        program = f"{SPILLWAY} run -- {sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        script = f"""{SPILLWAY} simulate --gpu a100-40gb -- {program} hoard &
            {SPILLWAY} simulate --capacity 10GiB -- {program} need; status=$?; wait $! || exit 9; exit $status"""
        ended = self.without_machine("sh", "-c", script)
        self.assertEqual(ended.status, 1, ended.errors)
        self.assertIn("OutOfMemoryError", ended.errors)
        self.assertIn("reserves 30", ended.output)

    def test_the_ledger_can_be_off(self):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        script = f"{SPILLWAY} run -- {program} hoard & {SPILLWAY} run -- {program} need; status=$?; wait; exit $status"
        ended = self.simulate("sh", "-c", script, SPILLWAY_LEDGER="off")
        self.assertEqual(ended.status, 1, ended.errors)
        self.assertIn("could not ask other processes for memory: SPILLWAY_LEDGER is off", ended.errors)


    def test_a_guarantee_is_kept_to_the_page(self):
        """Spillway's allocator gives what is beyond it, 11 of 30 GiB; the other moves the rest of its own."""
        ended = self.both(["replace --guarantee 19GiB", "replace"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("need: has 20", ended.output)
        self.assertIn("reserves 19", ended.output)

    def test_what_can_only_be_given_whole_is_kept_under_a_guarantee(self):
        """PyTorch's own allocator empties its cache or does not."""
        ended = self.both(["rescue --guarantee 15GiB", "rescue"])
        self.assertEqual(ended.status, 1, ended.errors)
        self.assertIn("reserves 30", ended.output)

    def test_at_its_own_limit_a_process_asks_nobody(self):
        """What the others could give is of no use there."""
        ended = self.both(["rescue", "rescue --limit 4GiB"])
        self.assertEqual(ended.status, 1, ended.errors)
        self.assertIn("reserves 30", ended.output)

    def test_top_shows_what_is_held_without_pytorch(self):
        program = f"""
import ctypes, subprocess, sys
{USE_SHOWN}
driver, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3 << 30)) == 0
shown.wait_until_held(3 << 30)
sys.exit(subprocess.run(sys.argv[1:]).returncode)"""
        ended = self.run_on(sys.executable, "-c", program, SPILLWAY, "top", "--once", "--json",
                            options=["--limit", "8GiB"], SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}")
        share = json.loads(ended.output)["devices"][0]["processes"][0]
        self.assertEqual({key: share[key] for key in ("held_bytes", "cached_bytes", "held_by", "limit_bytes")},
                         {"held_bytes": 3 << 30, "cached_bytes": None, "held_by": "driver calls",
                          "limit_bytes": 8 << 30})

    def test_top_shows_the_latest_shortage(self):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        script = f"""{SPILLWAY} run -- {program} hoard & {SPILLWAY} run -- {sys.executable} -c "{self.asking()}"
            status=$?; touch needed; wait; exit $status"""
        ended = self.simulate("sh", "-c", script, SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}")
        self.assertEqual(ended.status, 0, ended.errors)
        shown = next(json.loads(line) for line in ended.output.splitlines() if line.startswith("{"))
        self.assertEqual([(card["index"], card["name"]) for card in shown["devices"]],
                         [(0, "NVIDIA A100-SXM4-40GB")])
        asked = next(process for process in shown["processes"] if process["last_incident"])
        last = asked["last_incident"]
        self.assertEqual((last["number"], last["outcome"], last["asked_bytes"]), (1, "rescued", 20 << 30))
        self.assertGreater(last["gained_bytes"], 20 << 30)
        self.assertRegex(last["tried"], r"ask_processes \d+ MiB in \d+ us")
        self.assertEqual([(one["name"], one["tried"], one["useful"]) for one in asked["strategies"]],
                         [("ask_processes", 1, 1)])

    def asking(self):
        return f"""
import os, subprocess, time, torch
{USE_SHOWN}
while not os.path.exists('{self.folder}/hoarded'): time.sleep(0.1)
kept = torch.empty(20 << 30, dtype=torch.uint8, device='cuda')
shown.wait_until_held(20 << 30)
subprocess.run(['{SPILLWAY}', 'top', '--once', '--json'], check=True)"""

    def test_who_stands_still_is_not_waited_for(self):
        """What a stopped process shows is old after a second: memory in use is moved then, without an ask before."""
        (pathlib.Path(self.folder) / "need.py").write_text(f"""
import os, pathlib, signal, time, torch
pid = pathlib.Path({self.folder!r}, "pid")
torch.cuda.init()
while not pid.exists(): time.sleep(0.05)
hoarder = int(pid.read_text())
os.kill(hoarder, signal.SIGSTOP)
time.sleep(1.5)
try:
    blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(13)]
finally:
    os.kill(hoarder, signal.SIGCONT)
print("need: has", len(blocks))
pathlib.Path({self.folder!r}, "needed").touch()
""")
        hoard = f"""
import os, pathlib, time, torch
{USE_SHOWN}
blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(30)]
del blocks
shown.wait_until_cached(30 << 30)
pathlib.Path({self.folder!r}, "pid.draft").write_text(str(os.getpid()))
os.rename("pid.draft", "pid")
while not os.path.exists("needed"): time.sleep(0.05)
print("hoard: reserves", torch.cuda.memory_reserved() >> 30)
"""
        (pathlib.Path(self.folder) / "hoard.py").write_text(hoard)
        run = f"{SPILLWAY} run --mode replace"
        script = f"""{run} -- {sys.executable} hoard.py & {run} --max-slowdown none -- {sys.executable} need.py
            status=$?; touch needed; wait $! || exit 9; exit $status"""
        ended = self.simulate("sh", "-c", script, SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("need: has 13", ended.output)
        self.assertIn("hoard: reserves 30", ended.output)
        self.assertTrue(any(re.search(r"spill_to_host +\d+ +[1-9]", it) for it in ended.reports.values()))
        self.assertFalse(any(re.search(r"ask_processes +[1-9]", it) for it in ended.reports.values()),
                         "\n".join(ended.reports.values()))

    def test_who_captures_a_graph_shows_nothing_to_give(self):
        """No call of the driver's may come between then, so that it cannot give."""
        program = f"""
import os, torch
{USE_SHOWN}
def spare(expected):
    shown.wait_until(lambda share: share["spare_bytes"] >> 30 == expected, str(expected) + " GiB to spare")
    return expected
kept = torch.ones(1 << 20, device="cuda")
del [torch.empty(10 << 30, dtype=torch.uint8, device="cuda")][0]
before, graph = spare(10), torch.cuda.CUDAGraph()
with torch.cuda.stream(torch.cuda.Stream()):  # torch.cuda.graph() would empty the cache first
    graph.capture_begin()
    kept.add_(1)
    during = spare(0)
    graph.capture_end()
print(before, during, spare(10))"""
        for mode in ("rescue", "replace"):
            with self.subTest(mode=mode):
                ended = self.run_on(sys.executable, "-c", program, options=["--mode", mode],
                                    SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}")
                self.assertEqual(ended.output, "10 0 10\n", ended.errors)

    def test_top_shows_who_holds_what(self):
        program = f"{sys.executable} {OWN / 'sharing_a_card.py'} {self.folder}"
        script = f"""{SPILLWAY} run --guarantee 1GiB -- {program} hoard &
            while [ ! -e hoarded ]; do sleep 0.1; done
            {SPILLWAY} top --once --json; touch needed; wait"""
        ended = self.simulate("sh", "-c", script, SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}",
                              SPILLWAY_TEST_COLD="1")  # for its command line
        self.assertEqual(ended.status, 0, ended.errors)
        shown = json.loads(ended.output.splitlines()[0])
        process, device = shown["processes"][0], shown["devices"][0]
        self.assertRegex(process["program"], r"^python.* hoard$")
        self.assertEqual((process["mode"], process["guarantee_bytes"]), ("rescue", 1 << 30))
        self.assertEqual(device["processes"][0]["held_by"], "PyTorch")
        self.assertEqual(device["processes"][0]["cached_bytes"] >> 30, 30)
        self.assertEqual(device["processes"][0]["spare_bytes"], 0, "all or nothing, and 1 GiB is to be kept")
        self.assertGreater(device["used_bytes"], device["held_bytes"])


class Collectives(Case):
    """Two jobs of two ranks on two cards, of which one rank each asks the other job's rank on its card for memory."""

    def tearDown(self):
        pathlib.Path(f"/dev/shm/spillway-test-{os.getpid()}").unlink(missing_ok=True)

    def two_jobs(self, mode):
        program = f"{SPILLWAY} run --mode {mode} -- {sys.executable} {OWN / 'devices' / 'two_jobs.py'}"
        script = "".join(f"{program} {job} {rank} . & ranks=\"$ranks $!\"; " for job in range(2) for rank in range(2))
        return self.simulate("sh", "-c", script + "for rank in $ranks; do wait $rank || exit 9; done",
                             card=("--gpu", "a100-40gb", "--gpus", "2"), timeout=100,
                             SPILLWAY_LEDGER=f"spillway-test-{os.getpid()}", SPILLWAY_SIM_WATCHDOG="free")

    def test_who_waits_in_a_sum_for_who_asks_keeps_nobody_waiting(self):
        """Its device is at work until the other one comes: it gives nothing, and the other one hears so and goes on."""
        for mode in "rescue", "replace":
            with self.subTest(mode=mode):
                for path in pathlib.Path(self.folder).iterdir():
                    path.unlink()
                ended = self.two_jobs(mode)
                self.assertEqual(ended.status, 0, ended.errors[-3000:])
                self.assertEqual(len(re.findall(r"job \d, rank \d: past the sum", ended.output)), 4, ended.output)
                asked = [it for it in ended.reports.values() if re.search(r"\bask_processes +[1-9]", it)]
                self.assertEqual(len(asked), 2, ended.errors[-3000:])


if __name__ == "__main__":
    unittest.main()
