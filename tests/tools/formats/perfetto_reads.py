#!/usr/bin/env python3
"""`spillway report --perfetto`, read by the classes that Perfetto's own package makes of its .proto files.

SPILLWAY_BUILD_DIR names the build folder. Exit code 77, which ctest takes for "skipped", where the package is missing:
tools/setup --oldest installs it into .deps-tests. Perfetto's trace processor is a program that its package fetches when
it is first used; there is none here. What it demands of a file is checked instead: slices that nest, times that do not
fall, parents that are described before their children.
"""
import collections
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", "build")).resolve()
SPILLWAY = BUILD / "bin/spillway"
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden/snapshot.pickle"
MIB = 1 << 20
Slice = collections.namedtuple("Slice", "begin end name notes depth")
Event = perfetto.TrackEvent


def run(*words):
    return subprocess.run([SPILLWAY, *words], check=True, capture_output=True, text=True).stdout


class Read:
    """A file as its viewer would see it. Raises an AssertionError where it breaks a rule."""

    def __init__(self, path):
        trace = perfetto.Trace()
        trace.ParseFromString(path.read_bytes())
        assert trace.packet[0].sequence_flags == perfetto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self.tracks, self.order = {}, []
        self.counters = collections.defaultdict(list)
        self.slices = collections.defaultdict(list)
        self.instants = collections.defaultdict(list)
        self.open, self.last = collections.defaultdict(list), {}
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            if packet.HasField("track_descriptor"):
                self.describe(packet.track_descriptor)
            else:
                self.happen(packet.timestamp, packet.track_event)
        assert not any(self.open.values()), "a slice has no end"

    def describe(self, track):
        assert track.uuid not in self.tracks
        assert track.parent_uuid == 0 or track.parent_uuid in self.tracks
        self.tracks[track.uuid] = track
        self.order.append(track.uuid)

    def happen(self, time, event):
        key = event.track_uuid
        counts = self.tracks[key].HasField("counter")
        assert counts == (event.type == Event.TYPE_COUNTER), self.tracks[key].name
        assert time >= self.last.get(key, 0), f"{self.tracks[key].name}: the time falls"
        self.last[key] = time
        notes = {note.name: note.string_value or note.uint_value for note in event.debug_annotations}
        if event.type == Event.TYPE_COUNTER:
            self.counters[self.path_of(key)].append((time, event.counter_value))
        elif event.type == Event.TYPE_SLICE_BEGIN:
            self.open[key].append((time, event.name, notes))
        elif event.type == Event.TYPE_SLICE_END:
            begin, name, notes = self.open[key].pop()
            self.slices[self.path_of(key)].append(Slice(begin, time, name, notes, len(self.open[key])))
        else:
            assert event.type == Event.TYPE_INSTANT
            self.instants[self.path_of(key)].append((time, event.name, notes))

    def path_of(self, key):
        track = self.tracks[key]
        return (f"{self.path_of(track.parent_uuid)}/" if track.parent_uuid else "") + track.name

    def all_slices(self, end):
        return [one for path, slices in self.slices.items() if path.endswith(end) for one in slices]


class Perfetto(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def written(self, source):
        out = self.folder / "out.perfetto"
        self.said = run("report", source, "--perfetto", out)
        return Read(out)

    def test_a_snapshot_shows_what_its_report_says(self):
        report = json.loads(run("report", GOLDEN, "--json"))
        read = self.written(GOLDEN)
        self.assertEqual(read.tracks[read.order[0]].name, "GPU 0")
        failed, name, notes = read.instants["GPU 0/failures"][-1]
        self.assertEqual(name, "out of memory: 8.12 MiB")
        self.assertEqual((notes["asked_bytes"], notes["free_bytes"]),
                         (report["failure"]["asked_bytes"], report["memory"]["free_bytes"]))
        at = {}
        for path, points in read.counters.items():
            at[path.removeprefix("GPU 0/")] = [value for time, value in points if time <= failed][-1]
        memory = report["memory"]
        self.assertEqual(at, {"in use": memory["in_use_bytes"], "reserved": memory["reserved_bytes"],
                              "pending": memory["pending_bytes"], "idle": memory["idle_bytes"]})
        self.assertEqual(len(read.slices["GPU 0/steps"]), 7)

    def test_each_block_is_a_slice_from_its_allocation_to_its_free(self):
        with open(GOLDEN, "rb") as file:
            events = pickle.load(file)["device_traces"][0]
        read = self.written(GOLDEN)
        blocks = read.all_slices("blocks")
        self.assertEqual(len(blocks), sum(event["action"] == "alloc" for event in events))
        self.assertIn(f"{len(blocks)} of {len(blocks)} blocks are drawn", self.said)
        failed = read.instants["GPU 0/failures"][-1][0]
        held = collections.Counter()
        for block in blocks:
            if block.begin <= failed < block.end:
                held[block.name] += block.notes["bytes"]
        for holder in json.loads(run("report", GOLDEN, "--json"))["holders"]:
            self.assertEqual(held[holder["where"]], holder["bytes"], holder)
        end = next(i for i, event in enumerate(events) if event["action"] == "free_completed")
        begin = next(event for event in reversed(events[:end])
                     if event["action"] == "alloc" and event["addr"] == events[end]["addr"])
        shown = [block for block in blocks
                 if block.notes["address"] == hex(begin["addr"]) and block.begin // 1000 == begin["time_us"]]
        self.assertEqual([block.end // 1000 for block in shown], [events[end]["time_us"]])

    def test_a_trace_shows_its_ladder(self):
        trace = self.folder / "run.spill"
        subprocess.run([BUILD / "bin/sample_trace", trace], check=True)
        read = self.written(trace)
        ladder = read.slices["GPU 0/ladder"]
        incidents = [one for one in ladder if one.depth == 0]
        self.assertEqual([one.name for one in incidents],
                         ["incident 1: 16.00 MiB, granted", "incident 2: 16.00 MiB, gave up"])
        self.assertEqual(incidents[0].notes["where"], "model.py:12 forward")
        self.assertEqual(incidents[1].notes["refused"], "stitch: nothing to stitch")
        strategies = [(one.name, one.end - one.begin) for one in ladder if one.depth == 1]
        self.assertEqual(strategies, [("wait-for-events", 100_000), ("release-cache", 300_000),
                                      ("release-cache", 40_000)])
        for one in ladder:
            self.assertTrue(any(whole.begin <= one.begin and one.end <= whole.end for whole in incidents), one)
        self.assertEqual([one.name for one in read.slices["GPU 0/steps"]], [f"step {i}" for i in range(1, 5)])
        (failed, name, _), = read.instants["GPU 0/failures"]
        self.assertEqual((failed // 1_000_000, name), (450, "out of memory: 16.00 MiB"))
        self.assertEqual(incidents[1].begin, failed)
        self.assertEqual(max(value for _, value in read.counters["GPU 0/in use"]), 36 * MIB - 400)

    def test_names_of_any_bytes(self):
        with open(GOLDEN, "rb") as file:
            snapshot = pickle.load(file)
        for event in snapshot["device_traces"][0]:
            for frame in event.get("frames", []):
                frame["filename"] = "\ud800.py"
        path = self.folder / "hostile.pickle"
        path.write_bytes(pickle.dumps(snapshot, protocol=4).replace(b"\xed\xa0\x80", b"\xff\xfe\xfd"))
        read = self.written(path)
        self.assertTrue(any("\ufffd" in block.name for block in read.all_slices("blocks")))

    def test_a_file_that_is_not_whole_says_so(self):
        path = self.folder / "cut.pickle"
        whole = GOLDEN.read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
        names = [name for _, name, _ in self.written(path).instants["GPU 0"]]
        self.assertIn("NOT WHOLE", names)


if __name__ == "__main__":
    unittest.main(verbosity=2)
