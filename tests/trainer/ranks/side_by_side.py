"""Runs a file's unittest cases side by side: those of ranks wait for one another, and for time-outs, most of the time.

Each case has an object of its own, a free port and a folder; what a class or a module sets up is not called. Their
lines are printed in the file's order.
"""
import concurrent.futures
import io
import sys
import time
import unittest


def cases_of(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases_of(part)
        else:
            yield part


class Runner:
    """As unittest's, but for `at_once` cases at a time."""

    at_once = 2

    def __init__(self, verbosity=1, **_):
        self.verbosity = verbosity

    def run(self, suite):
        cases, begin = list(cases_of(suite)), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
            results = list(pool.map(self.run_one, cases))
        whole = unittest.TextTestResult(unittest.runner._WritelnDecorator(sys.stderr), True, self.verbosity)
        for result in results:
            whole.testsRun += result.testsRun
            for kind in "failures", "errors", "skipped", "expectedFailures", "unexpectedSuccesses":
                getattr(whole, kind).extend(getattr(result, kind))
            sys.stderr.write(result.stream.getvalue())
        whole.printErrors()
        print(f"\nRan {whole.testsRun} tests in {time.monotonic() - begin:.1f} s, {self.at_once} at a time\n"
              f"{'OK' if whole.wasSuccessful() else 'FAILED'}", file=sys.stderr)
        return whole

    def run_one(self, case):
        stream = unittest.runner._WritelnDecorator(io.StringIO())
        result = unittest.TextTestResult(stream, True, self.verbosity)
        case(result)
        return result


def main(at_once):
    unittest.main(testRunner=type("SideBySide", (Runner,), {"at_once": at_once}))
