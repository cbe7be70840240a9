"""`spillway replay` and what a report says would have fitted, against what really happens: the model of PyTorch's
allocator against PyTorch on the simulated card, to the byte, and programs that die, run again as the report says."""
import functools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import simulated

sys.path.insert(0, str(simulated.ROOT / "tests"))
import reports  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
SPILLWAY = simulated.BUILD / "bin" / "spillway"
MIB = 1 << 20
CAPACITY = 1 << 30
AMPLE = 190 << 30


def ask(*words):
    done = subprocess.run([str(word) for word in (SPILLWAY, *words)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def real(stream, settings):
    """PyTorch's own allocator on the stream: the smallest capacity, and what it holds where there is room."""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings}
    if not settings:
        del environment["PYTORCH_CUDA_ALLOC_CONF"]
    done = subprocess.run([str(word) for word in (SPILLWAY, "simulate", "--capacity", "200GiB", "--",
                                                  simulated.BUILD / "bin" / "bench_capacity", "--allocator", "native",
                                                  stream, "--search", "--at", AMPLE)],
                          capture_output=True, text=True, timeout=250, env=environment)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    found = json.loads(done.stdout)
    return found["smallest"]["capacity"], found["at"][0]["most_held"]


def replayed(stream, settings):
    allocator = "expandable" if "expandable_segments:True" in settings else "native"
    row = ask("replay", "--json", "--find", "--capacity", AMPLE, "--allocator", allocator, "--alloc-conf",
              settings or ",", stream)["allocators"][0]
    return row["smallest_bytes"], row["most_reserved_bytes"]


def random_size(draw):
    """Of the kinds that PyTorch tells apart: small, below 10 MiB, above, and round."""
    kind = draw.randrange(5)
    if kind == 0:
        return draw.randint(1, 4000)
    if kind == 1:
        return draw.randint(1, 2 * MIB)
    if kind == 2:
        return draw.randint(MIB // 2, 12 * MIB)
    return draw.randint(10 * MIB, 60 * MIB) if kind == 3 else draw.choice((1, 2, 3, 5, 10, 20, 40)) * MIB


def random_stream(seed, requests=1500):
    draw = random.Random(seed)
    lines, live, number = [], [], 0
    for _ in range(requests):
        if live and draw.random() < 0.48:
            lines.append(f"f {live.pop(draw.randrange(len(live)))}")
            continue
        lines.append(f"a {number} {random_size(draw)} {draw.choice((0, 0, 0, 1, 2))}")
        live.append(number)
        number += 1
    return "\n".join(lines) + "\n"


class Differential(unittest.TestCase):
    """The model and PyTorch agree on every stream, to the byte."""

    def compare(self, stream, *settings):
        for setting in settings:
            with self.subTest(stream=pathlib.Path(stream).stem, settings=setting):
                self.assertEqual(replayed(stream, setting), real(stream, setting))

    def test_streams_that_are_hard_on_an_allocator(self):
        with tempfile.TemporaryDirectory() as folder:
            synthetic = simulated.ROOT / "benchmarks" / "streams" / "synthetic"
            subprocess.run([sys.executable, synthetic, folder], check=True, stdout=subprocess.DEVNULL)
            streams = sorted(pathlib.Path(folder).iterdir())
            self.assertEqual(len(streams), 5)
            for stream in streams:
                self.compare(stream, "", "expandable_segments:True")

    def test_random_streams(self):
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(6):
                stream = pathlib.Path(folder) / f"random_{seed}.stream"
                stream.write_text(random_stream(seed))
                self.compare(stream, "", "expandable_segments:True", "max_split_size_mb:32",
                             "roundup_power2_divisions:4",
                             "expandable_segments:True,roundup_power2_divisions:[1:8,8:4,>:2]")


@functools.cache
def die(way, capacity=CAPACITY, allocator="native", trace=None, **settings):
    """What PyTorch counted when the last request failed, {} where none did; and the report."""
    with_spillway = [simulated.PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
    if trace:
        settings["SPILLWAY_TRACE"] = str(trace)
    with tempfile.TemporaryDirectory() as folder:
        snapshot = pathlib.Path(folder) / "snapshot.pickle"
        outcome = simulated.run(sys.executable, *with_spillway, PROGRAMS / "deaths_program.py", way, snapshot,
                                values="zeros", capacity=str(capacity), **settings)
        if outcome.status != 0:
            raise AssertionError(outcome.errors)
        return json.loads(outcome.output[-1]), reports.data_of(SPILLWAY, trace or snapshot)


IN_PLACE = {"SPILLWAY_STRATEGIES": "wait_for_events,stitch,release_cache"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


class Counterfactuals(unittest.TestCase):
    def of(self, report, what):
        found = [one for one in report["counterfactuals"] if what in one["what"]]
        self.assertEqual(len(found), 1, report["counterfactuals"])
        return found[0]

    def died(self, way, **settings):
        truth, report = die(way, **settings)
        self.assertNotEqual(truth, {}, "a request failed")
        return truth, report

    def lives(self, way, **settings):
        return die(way, **settings)[0] == {}

    def test_what_fragmented_memory_could_not_serve_other_allocators_do(self):
        report = self.died("fragmentation")[1]
        for what, again in (("expandable", EXPANDABLE), ("Spillway", {"allocator": "spillway", **IN_PLACE})):
            self.assertIs(self.of(report, what)["fits"], True, what)
            self.assertEqual(self.of(report, what)["sure"], "replayed")
            self.assertTrue(self.lives("fragmentation", **again), what)

    def test_what_is_too_large_no_allocator_serves(self):
        report = self.died("one_large_batch")[1]
        for what, again in (("expandable", EXPANDABLE), ("Spillway", {"allocator": "spillway", **IN_PLACE})):
            self.assertIs(self.of(report, what)["fits"], False, what)
            self.assertFalse(self.lives("one_large_batch", **again), what)

    def gets_past(self, truth, way, **settings):
        """Whether the request that failed is served now: none fails, or one when more was in use."""
        again = die(way, **settings)[0]
        return again == {} or again["in_use_bytes"] > truth["in_use_bytes"]

    def more_memory_serves_and_a_page_less_does_not(self, way, **settings):
        truth, report = self.died(way, **settings)
        more = self.of(report, "more memory")["bytes"]
        self.assertGreater(more, 0)
        settings.pop("trace", None)
        self.assertTrue(self.gets_past(truth, way, capacity=CAPACITY + more, **settings))
        self.assertFalse(self.gets_past(truth, way, capacity=CAPACITY + more - 2 * MIB, **settings))

    def test_the_memory_that_would_have_done_does_and_a_page_less_does_not(self):
        self.more_memory_serves_and_a_page_less_does_not("fragmentation")
        self.more_memory_serves_and_a_page_less_does_not("one_large_batch", **EXPANDABLE)

    def test_a_leak_outlives_the_request_on_another_allocator_and_dies_all_the_same(self):
        native, report = self.died("leak")
        self.assertIs(self.of(report, "expandable")["fits"], False)
        self.assertIs(self.of(report, "Spillway")["fits"], True)
        grown = self.of(report, "leaves behind")
        self.assertIs(grown["fits"], True)
        self.assertGreater(grown["bytes"], native["in_use_bytes"] * 0.8)
        again = self.died("leak", allocator="spillway", **IN_PLACE)[0]
        self.assertGreater(again["in_use_bytes"], native["in_use_bytes"])

    def test_a_smaller_batch_is_an_estimate_that_holds(self):
        item = self.of(self.died("one_large_batch")[1], "smaller batch")
        self.assertEqual(item["sure"], "estimate")
        percent = int(item["text"].split("%")[0].split()[-1])
        self.assertTrue(50 < percent < 80, item["text"])

    def test_a_trace_of_spillways_tells_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            self.more_memory_serves_and_a_page_less_does_not("one_large_batch", allocator="spillway",
                                                             trace=f"{folder}/run.trace", **IN_PLACE)


if __name__ == "__main__":
    unittest.main()
