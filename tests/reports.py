"""Opens reports for tests. Whatever a test looks for in one, the memory in it must add up: of every failure, the terms
of the equation are the limit, with nothing left over."""
import json
import pathlib
import subprocess

UNCLOSED = "do not add up"  # what the text says of an equation that has a rest


def run(spillway, *words, **how):
    """`spillway report`, ended: with the text, or with --json the data, in `stdout`. A term that is missing looks in a
    text like one that is 0, so of a trace the data are looked at as well."""
    done = subprocess.run([str(word) for word in (spillway, "report", *words)], capture_output=True, text=True,
                          **{"timeout": 60, **how})
    if done.returncode == 0:
        check(done.stdout, is_data="--json" in words)
        if "--json" not in words and is_trace(words):
            run(spillway, "--json", *words, **how)
    return done


def is_trace(words):
    return any(pathlib.Path(word).suffix == ".spill" and pathlib.Path(word).is_file() for word in words)


def text_of(spillway, *words, **how):
    done = run(spillway, *words, **how)
    if done.returncode != 0:
        raise AssertionError(f"the report does not open (exit code {done.returncode}): {done.stderr}")
    return done.stdout


def data_of(spillway, *words, **how):
    return json.loads(text_of(spillway, "--json", *words, **how))


def check(report, is_data):
    if not is_data:
        assert UNCLOSED not in report, f"the report has memory on nobody's account:\n{report}"
        return
    for incident in json.loads(report).get("incidents", ()):
        rest = incident["equation"]["residual_bytes"]
        # A process that is killed may have written only a part of it, and a call of the driver has none.
        is_whole = incident["outcome"] is not None and "limit_bytes" in incident["equation"]
        assert rest == 0 or (rest is None and not is_whole), (
            f"incident {incident['incident']} has memory on nobody's account: {incident['equation']}")
