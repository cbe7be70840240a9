"""Runs a file's unittest cases side by side: those of ranks wait for one another, and for time-outs, most of the time.

Each case has an object of its own, a free port and a folder. A class or a module that sets something up for all its
cases is refused. What begins and what ends is printed at once, so that a time-out shows which cases were running.
"""
import concurrent.futures
import io
import sys
import threading
import time
import unittest

KINDS = "failures", "errors", "skipped", "expectedFailures", "unexpectedSuccesses"


def cases_of(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases_of(part)
        else:
            yield part


def refuse_what_is_set_up_once(case):
    kind = type(case)
    found = [f"{kind.__name__}.{name}" for name in ("setUpClass", "tearDownClass")
             if getattr(kind, name).__func__ is not getattr(unittest.TestCase, name).__func__]
    found += [f"{kind.__module__}.{name}" for name in ("setUpModule", "tearDownModule")
              if hasattr(sys.modules[kind.__module__], name)]
    if found:
        raise TypeError(f"{found[0]} is not called for cases that run side by side: use setUp and addCleanup")


class Runner:
    """As unittest's, but for `at_once` cases at a time."""

    at_once = 2

    def __init__(self, verbosity=1, failfast=False, buffer=False, **_):
        if buffer:
            raise SystemExit("side_by_side.py: -b takes the output of all cases at once: run one case without it")
        self.verbosity, self.failfast = verbosity, failfast
        self.stops, self.lock = False, threading.Lock()

    def run(self, suite):
        cases, begin = list(cases_of(suite)), time.monotonic()
        for case in cases:
            refuse_what_is_set_up_once(case)
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
            results = list(pool.map(self.run_one, cases))
        whole = unittest.TextTestResult(unittest.runner._WritelnDecorator(sys.stderr), True, self.verbosity)
        for result in results:
            whole.testsRun += result.testsRun
            for kind in KINDS:
                getattr(whole, kind).extend(getattr(result, kind))
        failed = [str(case) for case, result in zip(cases, results) if not result.wasSuccessful()]
        left = f", {len(cases) - whole.testsRun} not begun after a failure" if whole.testsRun < len(cases) else ""
        self.say(f"\nRan {whole.testsRun} tests in {time.monotonic() - begin:.1f} s, {self.at_once} at a time{left}\n"
                 + ("\n".join(["FAILED", *failed]) if failed else "OK") + "\n")
        return whole

    def run_one(self, case):
        stream = unittest.runner._WritelnDecorator(io.StringIO())
        result = unittest.TextTestResult(stream, True, 2)
        result.failfast = self.failfast
        if self.stops:
            return result
        if self.verbosity:
            self.say(f"begun {case}\n")
        case(result)
        self.stops = self.stops or result.shouldStop
        if self.verbosity or not result.wasSuccessful():
            result.printErrors()
            self.say(stream.getvalue())
        return result

    def say(self, text):
        with self.lock:
            sys.stderr.write(text)
            sys.stderr.flush()


def main(at_once):
    unittest.main(testRunner=type("SideBySide", (Runner,), {"at_once": at_once}))
