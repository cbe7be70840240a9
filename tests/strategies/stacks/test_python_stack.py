"""The stacks that Spillway reads from CPython's memory are those that Python itself reports.

test_python_stack.py LIBRARY: the library of python_stack.cpp. Works with any CPython from 3.11 on."""
import ctypes
import os
import sys
import threading
import time
import traceback
import unittest

native = ctypes.CDLL(sys.argv.pop(1))
native.stack.restype = ctypes.c_char_p
native.signature.restype = ctypes.c_uint64


def read():
    """What Spillway reads, and what Python says, both of this line's stack."""
    return native.stack().decode().splitlines(), [
        f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(traceback.extract_stack())]


def prepare():
    native.prepare()
    until = time.monotonic() + 10
    while not native.ready() and time.monotonic() < until:
        pass


class Stacks(unittest.TestCase):
    def check(self, found, reported):
        inner_found, inner_reported = found[0].rsplit(":", 1), reported[0].rsplit(":", 1)
        self.assertEqual(inner_found[0], inner_reported[0])
        self.assertIn(inner_found[1].split()[1], inner_reported[1])
        self.assertEqual(found[1:], reported[1:len(found)])
        self.assertGreater(len(found), 3)

    def test_functions_methods_and_generators(self):
        def generator():
            yield self.deep(5)

        self.check(*next(generator()))

    def deep(self, more):
        return self.deep(more - 1) if more else read()

    def test_calls_that_go_through_c(self):
        self.check(*list(map(lambda _: sorted([3], key=lambda _: 0) and read(), [0]))[0])

    def test_code_that_was_compiled_at_run_time(self):
        space = {"read": read}
        exec(compile("def made():\n\n\n  return read()\n", "<made here>", "exec"), space)
        found, reported = space["made"]()
        self.check(found, reported)
        self.assertEqual(found[1], "<made here>:4 made")

    def test_each_thread_has_its_own(self):
        found = {}

        def work(number):
            for _ in range(200):
                found[number] = (self.first if number else self.second)(read)

        threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIn(" second", found[0][0][1])
        self.assertIn(" first", found[1][0][1])

    def first(self, call):
        return call()

    def second(self, call):
        return call()

    def test_the_deepest_stacks_keep_their_innermost_frames(self):
        found, _ = self.deep(500)
        self.assertEqual(len(found), 64)
        self.assertTrue(all(frame.endswith(" deep") for frame in found[1:]))

    def test_names_that_are_not_ascii(self):
        space = {"read": read}
        exec(compile("def größe():\n  return read()\n", "<größe>", "exec"), space)
        self.assertEqual(space["größe"]()[0][1], "?:2 ?")

    def test_code_of_other_names_is_told_apart_wherever_it_lies(self):
        def signature_of(function, file):
            space = {"native": native}
            exec(compile(f"def {function}():\n  return native.signature()\n", file, "exec"), space)
            return space[function]()

        known = signature_of("forward", "/a/model.py")
        self.assertNotEqual(known, 0)
        for function, file in (("backward", "/a/model.py"), ("forward", "/a/other.py"), ("forwards", "/a/model.py")):
            self.assertNotEqual(signature_of(function, file), known, (function, file))

    def test_a_child_of_fork_reads_its_own(self):
        child = os.fork()
        if child == 0:
            found, reported = self.deep(2)
            os._exit(0 if found[1:] == reported[1:len(found)] and len(found) > 3 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class NotPrepared(unittest.TestCase):
    def test_nothing_is_read_before_the_probe_has_run(self):
        self.assertEqual(empty_before, b"")


empty_before = native.stack()
prepare()
if sys.version_info < (3, 11):
    sys.exit(0 if native.stack() == b"" else "frames of a Python that is not understood were read")
assert native.ready(), "the probe does not understand this Python"
unittest.main()
