#!/usr/bin/env python3
"""What `spillway report`, `replay`, `diff`, `estimate`, `plan` write with --json goes with docs/json.schema.json, which
tells all of it.

SPILLWAY_BUILD_DIR names the build folder. Exit code 77, which ctest takes for "skipped", where the package jsonschema
is missing: tools/setup --oldest installs it into .deps-tests.
"""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", "build")).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/tools/golden/snapshot.pickle"
LOG = ROOT / "tests/tools/golden/rmm.dev1.csv"
SCHEMA = json.loads((ROOT / "docs/json.schema.json").read_text())


def data_of(*words, code=0):
    done = subprocess.run([BUILD / "bin/spillway", *words, "--json"], capture_output=True, text=True)
    if done.returncode != code:
        raise RuntimeError(f"{words}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def schemas_in(schema, path=""):
    """Each part of a schema that describes a value, with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from schemas_in(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas_in(schema[key], f"{path}[]")
    for part in schema.get("anyOf", []):
        if part.get("type") == "object":
            yield from schemas_in(part, path)


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.trace = cls.folder / "run.spill"
        subprocess.run([BUILD / "bin/sample_trace", cls.trace], check=True)
        cls.cut = cls.folder / "cut.spill"
        cls.cut.write_bytes(cls.trace.read_bytes()[:100_000])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def check(self, name, data):
        validator = jsonschema.Draft202012Validator({**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]})
        wrong = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]
        self.assertEqual(wrong, [])
        self.assertFalse(list(jsonschema.Draft202012Validator({**SCHEMA}).iter_errors(data)))

    def test_the_schema_is_one_and_tells_all(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        for name, schema in SCHEMA["$defs"].items():
            for path, part in schemas_in(schema, name):
                if path.endswith("[]") and "$ref" in part:
                    continue
                self.assertTrue(part.get("description"), path)
                if path.endswith("_bytes"):
                    self.assertIn("in bytes", part["description"], path)
                if part.get("type") == "object" and "properties" in part:
                    self.assertIs(part["additionalProperties"], False, path)

    def test_a_field_that_nobody_described_is_noticed(self):
        report = data_of("report", GOLDEN)
        for change in (lambda it: it["memory"].update(new_bytes=1), lambda it: it.pop("failures"),
                       lambda it: it["holders"][0].update(bytes="many")):
            changed = copy.deepcopy(report)
            change(changed)
            with self.assertRaises(AssertionError):
                self.check("snapshot_report", changed)

    def test_a_trace(self):
        for words in ([], ["--incident", "1"], ["--events", "1000"]):
            self.check("trace_report", data_of("report", self.trace, *words))
        self.check("trace_report", data_of("report", self.cut))
        report = data_of("report", self.trace)
        self.assertEqual([one["outcome"] for one in report["incidents"]], ["granted", "gave up"], "both are seen")
        self.assertTrue(report["counterfactuals"])

    def test_a_snapshot_and_a_log(self):
        for words in ([GOLDEN], [GOLDEN, "--capacity", "64MiB"], [LOG], [LOG, "--capacity", "1GiB"]):
            self.check("snapshot_report", data_of("report", *words))
        calm = self.folder / "calm.csv"
        calm.write_text("7,10:00:00.1,allocate,0x100,256,0x0\n")
        self.check("snapshot_report", data_of("report", calm))

    def test_a_replay(self):
        stream = self.folder / "stream.txt"
        stream.write_text("a 1 3000000 0\na 2 9000000 0\n")
        for words in ([GOLDEN], [GOLDEN, "--find"], [LOG], [self.trace], [stream, "--capacity", "4MiB"]):
            self.check("replay", data_of("replay", *words))

    def test_what_a_replay_wrote(self):
        out = self.folder / "out.pickle"
        data_of("replay", GOLDEN, "--allocator", "expandable", "--out", out)
        self.check("snapshot_report", data_of("report", out))

    def test_a_difference(self):
        self.check("diff", data_of("diff", GOLDEN, "--steps", "2,5"))
        self.check("diff", data_of("diff", GOLDEN, LOG))

    def test_an_estimate_and_a_plan(self):
        for model in ("gpt2", "t5-small", ROOT / "configs/demo.toml"):
            self.check("estimate", data_of("estimate", model, "--optimizer-place", "host"))
            self.check("plan", data_of("plan", "--gpu", "4090", "--gpus", "2", model))
        ranks = ("--ranks", "2", "--zero", "1")
        self.check("estimate", data_of("estimate", "gpt2", *ranks))
        self.check("plan", data_of("plan", "--gpu", "4090", "gpt2", *ranks))
        self.check("plan", data_of("plan", "--gpu", "1MiB", "gpt2", code=20))


if __name__ == "__main__":
    unittest.main(verbosity=2)
