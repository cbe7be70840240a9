"""Runs tests of one of PyTorch's test files in this process, one after the other: pytorch_suite.py starts it.

pytorch_suite_tests.py FILE RECORD [NAME...]   the named tests of the file, or all, each a line of JSON in RECORD
pytorch_suite_tests.py FILE --list             their names
SPILLWAY_SUITE_ALLOCATOR=spillway installs Spillway's allocator, also in the processes that a test spawns.
SPILLWAY_SUITE_VALUES=zeros leaves out asserts on values that come from a device.
"""
import importlib.util
import json
import os
import pathlib
import sys
import time
import traceback
import types
import unittest

import torch

if os.environ.get("SPILLWAY_SUITE_ALLOCATOR") == "spillway":
    import spillway
    spillway.install()


class Unknown(float):
    """A number that was read from a device which computes nothing: it compares as a test wants it."""
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda number, other: True
    __ne__ = lambda number, other: False
    __hash__ = float.__hash__


def is_unknown(value):
    if isinstance(value, torch.Tensor):
        return value.is_cuda or value.numel() > 0
    if isinstance(value, (list, tuple)):
        return any(map(is_unknown, value))
    if isinstance(value, dict):
        return any(map(is_unknown, value.values()))
    return isinstance(value, Unknown)


def without(assertion):
    """The assertion, but for values that are not known."""
    def checked(self, *arguments, **settings):
        if not any(map(is_unknown, arguments)):
            assertion(self, *arguments, **settings)
    return checked


def same_unless_known(comparison):
    return lambda *arguments, **settings: any(map(is_unknown, arguments)) or comparison(*arguments, **settings)


def leave_values_out():
    from torch.testing._internal.common_utils import TestCase
    read, decide = torch.Tensor.item, torch.Tensor.__bool__

    def item(tensor):
        value = read(tensor)
        return Unknown(value) if tensor.is_cuda and isinstance(value, (int, float)) else value

    torch.Tensor.item = item
    torch.Tensor.__bool__ = lambda tensor: decide(tensor) or tensor.is_cuda
    for name in ("assertEqual", "assertNotEqual", "assertTrue", "assertFalse", "assertGreater", "assertLess",
                 "assertGreaterEqual", "assertLessEqual", "assertEqualIgnoreType"):
        if hasattr(TestCase, name):
            setattr(TestCase, name, without(getattr(TestCase, name)))
    torch.testing.assert_close = lambda *arguments, **settings: None
    for holder, name in ((torch, "equal"), (torch, "allclose"), (torch.Tensor, "equal"), (torch.Tensor, "allclose")):
        setattr(holder, name, same_unless_known(getattr(holder, name)))


def stand_in_for_expecttest():
    """PyTorch's test library wants the package for its class of a test case. Tests that use more of it fail."""
    if importlib.util.find_spec("expecttest") is None:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase


def keep_old_names():
    """What files of before 2.9 import."""
    from torch.testing._internal import inductor_utils
    if not hasattr(inductor_utils, "HAS_CUDA"):
        inductor_utils.HAS_CUDA = inductor_utils.HAS_CUDA_AND_TRITON


def load(path):
    """The file as the module of its name, as if PyTorch's runner had started it."""
    stand_in_for_expecttest()
    from torch.testing._internal import common_utils
    if path.parent.name == "inductor":
        keep_old_names()
    sys.path[:0] = [str(path.parent), str(path.parent.parent)]
    sys.argv = [str(path)]
    if hasattr(common_utils, "parse_cmd_line_args"):
        common_utils.parse_cmd_line_args()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def tests_of(module):
    for case in vars(module).values():
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == module.__name__:
            for name in unittest.defaultTestLoader.getTestCaseNames(case):
                yield f"{case.__name__}.{name}", case(name)


def last_words(trace):
    lines = [line for line in trace.splitlines() if line.strip()]
    raised = [line for line in lines if not line.startswith(" ") and ": " in line] or lines
    return raised[-1][:300] if raised else ""


def outcome_of(test):
    """What came of it, and why."""
    result = unittest.TestResult()
    try:
        test.run(result)
    except BaseException:
        return "failed", last_words(traceback.format_exc())
    if result.errors or result.failures:
        return "failed", last_words((result.errors + result.failures)[0][1])
    if result.skipped:
        return "skipped", result.skipped[0][1][:300]
    return ("failed", "succeeds against expectation") if result.unexpectedSuccesses else ("passed", "")


def main():
    path = pathlib.Path(sys.argv[1]).resolve()
    record, wanted = sys.argv[2], sys.argv[3:]
    module = load(path)
    if os.environ.get("SPILLWAY_SUITE_VALUES") == "zeros":
        leave_values_out()
    tests = dict(tests_of(module))
    if record == "--list":
        print("\n".join(tests))
        return
    with open(record, "a", buffering=1, encoding="utf-8") as lines:
        for name in wanted or tests:
            if name not in tests:
                lines.write(json.dumps([name, "missing", ""]) + "\n")
                continue
            lines.write(json.dumps([name, "begun", ""]) + "\n")
            start = time.monotonic()
            outcome, why = outcome_of(tests.pop(name))
            lines.write(json.dumps([name, outcome, why, round(time.monotonic() - start, 2)]) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what a test left behind does not count


if __name__ == "__main__":
    main()
