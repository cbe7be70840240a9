"""TensorBoard's files as the trainer writes them, read by Google's protobuf and a checksum of this test's own.

    event_files.py BUILD

Exit code 77, which ctest takes for "skipped", where protobuf is missing: tools/setup --oldest installs it into
.deps-tests.
(TensorBoard's own reader took them when they were written; it brings too much for every run of the tests.)
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
DOUBLE, FLOAT, INT64, STRING, MESSAGE = 1, 2, 3, 9, 11
# TensorFlow's event.proto and summary.proto, as far as scalars need them: message → field → (number, type).
MESSAGES = {
    "Event": {"wall_time": (1, DOUBLE), "step": (2, INT64), "file_version": (3, STRING), "summary": (5, "Summary")},
    "Summary": {"value": (1, ["Value"])},
    "Value": {"tag": (1, STRING), "simple_value": (2, FLOAT)},
}


def event_type():
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="t", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            made = message.field.add(name=field, number=number, label=3 if isinstance(kind, list) else 1)
            made.type = kind if isinstance(kind, int) else MESSAGE
            if made.type == MESSAGE:
                made.type_name = ".t." + (kind[0] if isinstance(kind, list) else kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_in(path):
    data, at, kind = path.read_bytes(), 0, event_type()
    while at < len(data):
        (length, of_length) = struct.unpack_from("<QI", data, at)
        if of_length != masked_crc32c(data[at:at + 8]):
            raise ValueError(f"the length at {at} has another checksum")
        payload = data[at + 12:at + 12 + length]
        if struct.unpack_from("<I", data, at + 12 + length)[0] != masked_crc32c(payload):
            raise ValueError(f"the record at {at} has another checksum")
        at += 16 + length
        yield kind.FromString(payload)


class EventFiles(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "corpus.txt").write_text("the page spills to host and back again.\n" * 500)
        self.config = self.folder / "x.toml"
        self.config.write_text("[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\n"
                               "[train]\nbatch = 2\nsteps = 6\n"
                               "[evaluation]\nevery = 3\nwindows = 4\n[run]\ndevice = \"cpu\"\nthreads = 1\n"
                               "tensorboard = true\nlog_json = true\ncheckpoint_every = 6\n")

    def train(self, *options):
        places = ["--set", f"run.out={self.folder}/run", "--set", f"data.corpus={self.folder}/corpus.txt"]
        done = subprocess.run([BUILD / "bin/spillway-train", "--config", self.config, "--quiet", *places, *options],
                              capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def files(self):
        return sorted((self.folder / "run").glob("events.out.tfevents.*"))

    def test_the_scalars_are_those_of_the_steps(self):
        self.train()
        first, *rest = events_in(self.files()[0])
        self.assertEqual(first.file_version, "brain.Event:2")
        read = {}
        for event in rest:
            self.assertGreater(event.wall_time, 1.7e9)
            for value in event.summary.value:
                read.setdefault(value.tag, {})[event.step] = value.simple_value
        told = [json.loads(line) for line in (self.folder / "run/train.jsonl").read_text().splitlines()]
        for tag in ("loss", "gradient_norm", "learning_rate", "tokens_per_second"):
            expected = {one["step"]: one[tag] for one in told if one["event"] == "step"}
            self.assertEqual(read[tag].keys(), expected.keys())
            for step, value in expected.items():
                self.assertAlmostEqual(read[tag][step] / value, 1, delta=1e-6)
        self.assertEqual(sorted(read["evaluation_loss"]), [3, 6])

    def test_a_resumed_run_adds_a_file_and_a_fresh_one_begins_anew(self):
        self.train()
        before = self.files()
        self.train("--resume", f"{self.folder}/run", "--set", "train.steps=8")
        self.assertEqual(len(self.files()), 2)
        added = [path for path in self.files() if path not in before]
        self.assertEqual([event.step for event in events_in(added[0])], [0, 6, 7, 8])
        self.train()
        self.assertEqual(len(self.files()), 1)


if __name__ == "__main__":
    unittest.main()
