#!/usr/bin/env python3
"""What is looked at, one thing at a time: a part has a name, a cost estimate and an outcome.

Parts of one group are rows of one table. A part that is stopped has no outcome, and is begun anew by a later call.
"""
import json
import subprocess

from .machine import CheckFailed

# What one part may do without ending the others.
FAULTS = (CheckFailed, OSError, KeyError, IndexError, TypeError, ValueError, ZeroDivisionError,
          subprocess.SubprocessError, json.JSONDecodeError)


class NotRun(Exception):
    """What a check needs and this machine does not have."""


class Outcome:
    """Rows for the group's table, whether it failed, and figures as JSON."""

    def __init__(self, rows, failed=False, data=None):
        self.rows, self.failed, self.data = list(rows), failed, data


class Group:
    """A table: its head, and lines for its foot, made of the data of its parts."""

    def __init__(self, name, head, foot=lambda data: []):
        self.name, self.head, self.foot = name, head, foot


class Part:
    """`run` takes a Setting and returns an Outcome. `seconds`: what it takes on a card, about.
    `failure` makes the row of a part that could not be run to its end."""

    def __init__(self, group, name, seconds, run, failure=None):
        self.group, self.name, self.seconds, self.run = group, name, seconds, run
        self.failure = failure or (lambda text: f"| {name} | FAIL | {text} |")

    @property
    def identity(self):
        return f"{self.group}: {self.name}"

    def outcome(self, setting):
        try:
            return self.run(setting)
        except FAULTS as error:
            text = " ".join(str(error).split()) or type(error).__name__
            return Outcome([self.failure(text.replace("|", "/")[:600])], failed=True, data={"error": text})


def check_with(name, seconds, look):
    """A part of the group "checks": `look(setting)` returns what it found or raises; NotRun is no failure."""
    def run(setting):
        try:
            return Outcome([f"| {name} | pass | {look(setting)} |"])
        except NotRun as reason:
            return Outcome([f"| {name} | not run | {reason} |"])
    return Part("checks", name, seconds, run)


def check(name, seconds, look):
    """The same of `look(machine, folder)`."""
    return check_with(name, seconds, lambda setting: look(setting.machine, setting.folder))


class Setting:
    """Where a part runs: the machine, a temporary folder, what other parts found, and the user's choices."""

    def __init__(self, machine, folder, data, options):
        self.machine, self.folder, self.data, self.options = machine, folder, data, options

    def with_two_cards(self):
        """The machine with two cards, or None."""
        if self.machine.simulated:
            return self.machine.beside("--gpu", self.options.simulated, "--gpus", "2", "--values", "compute")
        count = self.machine.run([self.machine.python, "-c", "import torch; print(torch.cuda.device_count())"])
        return self.machine if int(count) > 1 else None
