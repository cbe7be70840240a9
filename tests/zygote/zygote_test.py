"""The tests' `python` behaves as the interpreter that it stands in for, and its programs are forked.

Usage: zygote_test.py BUILD_FOLDER
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SPILLWAY = BUILD / "bin" / "spillway"
PYTHON = BUILD / "test_python" / "bin" / "python"


class Zygote(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.starts = self.folder / "starts"

    def words(self, *words):
        return [str(word) for word in (SPILLWAY, "simulate", "--capacity", "1GiB", "--", PYTHON, *words)]

    def environment(self, cold=False, **more):
        return {**os.environ, "SPILLWAY_TEST_STARTS": str(self.starts), "SPILLWAY_TEST_COLD": "1" if cold else "",
                **more}

    def run_one(self, *words, cold=False, stdin="", **more):
        done = subprocess.run(self.words(*words), input=stdin, capture_output=True, text=True, timeout=60,
                              cwd=self.folder, env=self.environment(cold, **more))
        return done.returncode, done.stdout, done.stderr

    def assert_same(self, *words, **options):
        """Forked and started by itself, a program does the same."""
        self.starts.write_text("")
        forked = self.run_one(*words, **options)
        self.assertEqual(self.starts.read_text().split()[0], "forked")
        self.assertEqual(forked, self.run_one(*words, cold=True, **options))
        return forked

    def test_words_folder_and_environment(self):
        shows = "import os, sys; print(sys.argv, sys.path[0], os.getcwd(), os.environ['SHOWN'], sys.executable, " \
                "sys.prefix, __name__, '__file__' in globals(), sys.flags.hash_randomization)"
        self.assert_same("-c", shows, "a", "-b", SHOWN="x y")
        script = self.folder / "script.py"
        script.write_text(shows)
        self.assert_same("script.py", "a", SHOWN="")
        self.assert_same("-u", "-B", script, SHOWN="ü")
        self.assert_same("-m", "script", "z", SHOWN="1")
        self.assert_same("-c", "import script", SHOWN="", PYTHONPATH=str(self.folder))

    def test_a_program_that_looks_for_its_parent_is_started(self):
        self.assertEqual(self.run_one("-c", "import sys; print(sys.argv)", "--parent=7")[1], "['-c', '--parent=7']\n")
        self.assertEqual(self.starts.read_text(), "started -c\n")

    def test_ranks_and_runs_of_torchrun_share_an_interpreter(self):
        shows = "import os; print(os.getppid(), os.environ['TORCHELASTIC_RUN_ID'])"
        said = [self.run_one("-c", shows, TORCHELASTIC_RUN_ID=run, TORCHELASTIC_ERROR_FILE=f"/tmp/{run}")[1].split()
                for run in ("none", "another")]
        self.assertEqual([name for _, name in said], ["none", "another"])
        self.assertEqual(said[0][0], said[1][0], "each was forked by a server of its own")

    def test_another_environment_has_an_interpreter_of_its_own(self):
        other = BUILD / "test_python_oldest" / "bin" / "python"
        if not other.exists():
            self.skipTest("tools/setup --oldest was not run")
        shows = "import sys, torch; print(sys.executable, torch.__version__)"
        _, own_said, _ = self.assert_same("-c", shows)
        _, other_said, _ = self.assert_same("-c", shows, SPILLWAY_TEST_PYTHON=str(other))
        self.assertTrue(own_said.startswith(f"{PYTHON} "), own_said)
        self.assertTrue(other_said.startswith(f"{other} "), other_said)
        self.assertNotEqual(own_said.split()[1], other_said.split()[1])

    def test_what_runs_at_its_end(self):
        script = self.folder / "ends.py"
        script.write_text(
            "import atexit, ctypes, os, sys, threading, time, torch\n"
            "c = ctypes.CDLL(None)\n"
            "c.strdup.restype = ctypes.c_void_p\n"
            "c.__cxa_atexit(ctypes.cast(c.puts, ctypes.c_void_p), ctypes.c_void_p(c.strdup(b' library ')), None)\n"
            "class Held:\n"
            "    def __del__(self, write=os.write): write(1, f'freed-{self.name} '.encode())\n"
            "def late():\n"
            "    time.sleep(0.3); os.write(1, b'thread ')\n"
            "held = Held(); held.name = 'global'\n"
            "cycle = Held(); cycle.name, cycle.self = 'cycle', cycle\n"
            "atexit.register(print, ' atexit ')\n"
            "tensor = torch.ones(4, device='cuda', requires_grad=True); tensor.sum().backward()\n"
            "torch.kept = late  # a module of the server's holds one of the program's\n"
            "threading.Thread(target=late).start()\n"
            "sys.stdout.write('not flushed'); sys.exit(3)\n")
        status, said, _ = self.run_one(script)
        cold = self.run_one(script, cold=True)
        self.assertEqual((status, sorted(said.split())), (cold[0], sorted(cold[1].split())))
        self.assertEqual((status, "thread" in said, "atexit" in said, said.count("freed")), (3, True, True, 2), said)
        self.assertIn("library", said)
        self.assertIn("not flushed", said)

    def test_how_it_ends(self):
        for program in ("import sys; sys.exit(7)", "raise SystemExit('said')", "1 / 0", "import os; os._exit(3)",
                        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "import os; os.abort()", "x ="):
            with self.subTest(program):
                self.assertNotEqual(self.assert_same("-c", program)[0], 0)
        (self.folder / "fails.py").write_text("def inner():\n    raise ValueError('no')\ninner()\n")
        status, _, said = self.assert_same("fails.py")
        self.assertEqual(status, 1)
        self.assertIn("ValueError: no", said)
        self.assert_same("-c", "import atexit; atexit.register(print, 'last'); print('first')")

    def test_input_and_outputs(self):
        self.assert_same("-c", "import sys; print(sys.stdin.read() * 2); print('e', file=sys.stderr)", stdin="abc\n")
        self.assert_same("-c", "import os; os.write(1, b'raw\\n'); print('after', flush=True); os.write(2, b'2\\n')")

    def test_open_descriptors_are_inherited(self):
        read, write = os.pipe()
        program = f"import os; os.write({write}, b'through the pipe')"
        process = subprocess.Popen(self.words("-c", program), pass_fds=[write], env=self.environment())
        os.close(write)
        with open(read, "rb") as pipe:  # ends with the program
            self.assertEqual(pipe.read(), b"through the pipe")
        self.assertEqual(process.wait(60), 0)

    def test_signals_reach_the_program(self):
        # One long sleep would miss a signal that comes just before it: Python looks for one between two operations.
        program = "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os._exit(9)); " \
                  "print('ready', flush=True); [time.sleep(0.05) for _ in range(1200)]"
        process = subprocess.Popen(self.words("-c", program), stdout=subprocess.PIPE, env=self.environment())
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        self.assertEqual(process.wait(60), 9)
        process.stdout.close()

    def test_who_is_killed_takes_the_program_along(self):
        program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
        process = subprocess.Popen(self.words("-c", program), stdout=subprocess.PIPE, env=self.environment())
        number = int(process.stdout.readline())
        self.assertNotEqual(number, process.pid)
        process.kill()
        process.wait()
        process.stdout.close()
        end = time.monotonic() + 30
        while pathlib.Path(f"/proc/{number}").exists():
            self.assertLess(time.monotonic(), end, "the program goes on")
            time.sleep(0.01)

    def test_a_device_is_the_programs_own(self):
        program = "import torch; print(torch.ones(1 << 20, device='cuda').numel(), torch.cuda.memory_allocated(), " \
                  "torch.cuda.mem_get_info()[1] >> 20)"
        for capacity in ("512MiB", "2GiB"):
            words = [*self.words("-c", program)]
            words[words.index("1GiB")] = capacity
            outputs = [subprocess.run(words, capture_output=True, text=True, env=self.environment(cold)).stdout
                       for cold in (False, True)]
            self.assertEqual(outputs[0], outputs[1])
            self.assertIn("1048576", outputs[0])

    def replaced(self, *words, options=(), cold=False):
        """A program whose allocator is replaced while PyTorch is imported: status, outputs."""
        all_words = [SPILLWAY, "simulate", "--capacity", "1GiB", "--", SPILLWAY, "run", "--mode", "replace", *options,
                     "--", PYTHON, *words]
        done = subprocess.run([str(word) for word in all_words], capture_output=True, text=True, cwd=self.folder,
                              env=self.environment(cold))
        return done.returncode, done.stdout, done.stderr

    def test_one_whose_allocator_is_replaced_does_it_itself(self):
        shows = "import gc, os, sys, threading\n" \
                "print(sys.argv, sys.path[0], sys.executable, sys.dont_write_bytecode)\n" \
                "import torch\n" \
                "class Held:\n" \
                "    def __del__(self, write=os.write): write(1, b'freed ')\n" \
                "held, kept = Held(), torch.ones(1 << 20, device='cuda')\n" \
                "threading.Timer(0.1, os.write, (1, b'thread ')).start()\n" \
                "print(__name__, gc.isenabled(), torch.cuda.memory_allocated())\n"
        script = self.folder / "script.py"
        for words, ends, status in ((("-c",), "sys.exit(7)", 7), (("-B", "script.py", "a"), "1 / 0", 1),
                                    (("-m", "script", "b"), "raise SystemExit('said')", 1)):
            with self.subTest(words):
                self.starts.write_text("")
                script.write_text(shows + ends)
                whole = (*words, shows + ends) if words == ("-c",) else words
                own = self.replaced(*whole)
                self.assertEqual([line.split()[0] for line in self.starts.read_text().splitlines()], ["forked"])
                self.assertEqual(own, self.replaced(*whole, cold=True))
                self.assertEqual((own[0], "freed" in own[1]), (status, True), own)
        killed = self.replaced("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(killed[0], 128 + 9, killed)

    def test_settings_of_the_replaced_allocator_are_the_programs_own(self):
        program = "import torch; torch.ones(100 << 20, device='cuda'); print('fits')"
        for limit, said in ("64MiB", ""), ("512MiB", "fits\n"):
            for cold in (False, True):
                with self.subTest(limit, cold=cold):
                    _, output, errors = self.replaced("-c", program, options=("--limit", limit), cold=cold)
                    self.assertEqual(output, said, errors)
                    self.assertEqual("OutOfMemoryError: CUDA out of memory" in errors, not said, errors)


if __name__ == "__main__":
    unittest.main()
