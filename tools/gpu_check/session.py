#!/usr/bin/env python3
"""One call: which parts it runs, when it ends, and what it leaves for the next one.

The folder's state.json has an entry for each part that has begun. It is replaced whole after each change, so that a
call which is ended from outside costs the part that it was in, and no other.
"""
import json
import os
import pathlib
import tempfile
import time

from .machine import OutOfTime
from .part import Outcome, Setting

FINISHED = ("pass", "FAIL")
MOST_TRIES = 3  # of a part that does not end


class StateError(Exception):
    pass


class State:
    """`about`: what the figures are of (commit, card); a folder holds one such."""

    def __init__(self, folder, about):
        self.path = None if folder is None else pathlib.Path(folder) / "state.json"
        self.parts, self.about = {}, about
        if self.path and self.path.exists():
            self._read()
        elif self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def _read(self):
        try:
            held = json.loads(self.path.read_text())
            self.parts, about = held["parts"], held["about"]
        except (ValueError, KeyError) as error:
            raise StateError(f"{self.path} cannot be read ({error}): name another folder")
        for key, value in self.about.items():
            if about.get(key) != value:
                raise StateError(f"{self.path} is of another {key}: {about.get(key)}, not {value}; name another folder")
        self.about = about

    def note(self, part, **entry):
        self.parts.setdefault(part.identity, {"tries": 0}).update(entry)
        if self.path:
            text = json.dumps({"about": self.about, "parts": self.parts}, indent=1)
            waiting = self.path.with_suffix(".new")
            with open(waiting, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(waiting, self.path)

    def entry(self, part):
        return self.parts.get(part.identity, {"tries": 0})

    def finished(self, part):
        return self.entry(part).get("state") in FINISHED

    def data(self, identity):
        return self.parts.get(identity, {}).get("data")


class Session:
    """Runs parts in their order until all are finished or the time is used up."""

    def __init__(self, state, seconds, say):
        self.state, self.seconds, self.say = state, seconds, say
        self.start = time.monotonic()

    def left(self):
        return self.seconds - (time.monotonic() - self.start)

    def begins(self, part):
        """A part that no call of this length can hold is begun by a call that has most of its time before it."""
        return part.seconds <= self.left() or self.left() > 0.9 * self.seconds

    def run(self, parts, groups, machines, options, note):
        """`machines`: all that commands run on. `note` is called after each part."""
        table = None
        for machine in machines:
            machine.deadline = self.start + self.seconds if self.seconds < float("inf") else None
        for part in parts:
            if self.state.finished(part) or not self.begins(part):
                continue
            if part.group != table:
                self.say(*groups[part.group].head)
                table = part.group
            self._run(part, machines[0], options)
            note()

    def _run(self, part, machine, options):
        entry = self.state.entry(part)
        if entry["tries"] >= MOST_TRIES:
            return self._finish(part, Outcome([part.failure(
                f"it did not end in {MOST_TRIES} calls: name another folder and more --seconds")], failed=True), 0.0)
        self.state.note(part, state="running", tries=entry["tries"] + 1)
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = part.outcome(Setting(machine, pathlib.Path(folder), self.state.data, options))
            except OutOfTime:
                self.state.note(part, state="stopped", seconds=time.monotonic() - begin)
                return self.say(f"{part.identity} was stopped by the end of this call's time; the next call runs it")
        self._finish(part, outcome, time.monotonic() - begin)

    def _finish(self, part, outcome, seconds):
        self.state.note(part, state="FAIL" if outcome.failed else "pass", seconds=round(seconds, 2),
                        rows=outcome.rows, data=outcome.data)
        self.say(*outcome.rows)

    def remaining(self, parts):
        return [part for part in parts if not self.state.finished(part)]
