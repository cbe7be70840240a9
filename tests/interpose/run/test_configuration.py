"""The file of `spillway run`'s options, and settings of other libraries that it makes."""
import pathlib
import sys
import unittest

from case import BUILD, ROOT, SPILLWAY, Case

PROGRAM = """
import ctypes, sys
import torch
if "install" in sys.argv:
    import spillway; spillway.install()
torch.zeros(1, device="cuda")
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print(libc.getenv(b"NCCL_GRAPH_REGISTER"))
"""


class Configuration(Case):
    """The options of `run` from a file."""

    def configured(self, text, *command, options=()):
        path = pathlib.Path(self.folder) / "run.toml"
        path.write_text(text)
        return self.plain(*(command or ["touch", "started"]), options=["--config", str(path), *options])

    def shown(self, text, options=()):
        names = ("MODE", "LIMIT", "RESERVE", "GUARANTEE", "STRATEGIES", "TRACE")
        script = "; ".join(f"echo ${{SPILLWAY_{name}-unset}}" for name in names)
        ended = self.configured(text, "sh", "-c", script, options=options)
        self.assertEqual(ended.status, 0, ended.errors)
        return dict(zip((name.lower() for name in names), ended.output.split())), ended

    def test_every_option_can_come_from_it(self):
        values, ended = self.shown(f"""
            mode = "replace"
            limit = "4GiB"
            reserve = "1GiB"
            guarantee = {1 << 30}
            strategies = "stitch,release_cache"
            trace = "{self.folder}/x-%p.spill"
            quiet = true""")
        self.assertEqual(values, {"mode": "replace", "limit": str(4 << 30), "reserve": str(1 << 30),
                                  "guarantee": str(1 << 30),
                                  "strategies": "stitch,release_cache", "trace": f"{self.folder}/x-%p.spill"})
        self.assertEqual(ended.errors, "")

    def test_the_command_line_wins(self):
        values, _ = self.shown('mode = "replace"\nlimit = "4GiB"', options=["--limit", "5GiB"])
        self.assertEqual((values["mode"], values["limit"]), ("replace", str(5 << 30)))

    def test_what_is_wrong_in_it_is_said(self):
        for text, said in (('limt = "4GiB"', "line 1: unknown key 'limt'. Did you mean 'limit'?"),
                           ('mode = "rescue"\nquiet = "yes"', "line 2: 'quiet' must be true or false"),
                           ("limit = 1.5", "line 1: 'limit' must be a text in quotes, or a number of bytes"),
                           ("limit = -1", "line 1: 'limit' must be a text"),
                           ('mode = "magic"', "--mode is 'magic', and must be one of observe rescue replace"),
                           ('mode = "replace"\nlimit = "lots"', "--limit is 'lots'"),
                           ("[run]\nmode = 'replace'", "line 1: unknown key 'run'"),
                           ("mode = ", "line 1: "), ("x" * (2 << 20), "it has more than 1 MiB"), ("\0\xff", "line 1")):
            with self.subTest(text[:40]):
                ended = self.configured(text)
                self.assertEqual(ended.status, 2)
                self.assertIn(said, ended.errors)
                self.assertFalse((pathlib.Path(self.folder) / "started").exists())

    def test_what_the_environment_says_is_seen_too(self):
        """The core reads it together with the options, in the program's process."""
        for options, variable, value, said in (
                (["--limit", "4GiB"], "SPILLWAY_RESERVE", "8GiB", "SPILLWAY_RESERVE: it must be less than"),
                ([], "SPILLWAY_HOST_BUDGET", "lots", "SPILLWAY_HOST_BUDGET: "),
                ([], "SPILLWAY_TRACE", "/no/such/folder/x.spill", "--trace: there is no folder '/no/such/folder'")):
            with self.subTest(variable):
                ended = self.without_machine(SPILLWAY, "run", *options, "--", "touch", "started", **{variable: value})
                self.assertEqual(ended.status, 2, ended.errors)
                self.assertIn(said, ended.errors)
                self.assertFalse((pathlib.Path(self.folder) / "started").exists())
        named = f"{self.folder}/named.spill"
        ended = self.without_machine(SPILLWAY, "run", "--", "sh", "-c", "echo $SPILLWAY_TRACE", SPILLWAY_TRACE=named)
        self.assertEqual((ended.status, ended.output), (0, named + "\n"), ended.errors)

    def test_values_that_cannot_be(self):
        (pathlib.Path(self.folder) / "notes.txt").write_text("x" * 5000)
        for option, value, said in (("--limit", "", "--limit is empty"), ("--trace", "", "--trace is empty"),
                                    ("--trace", "notes.txt", "what stands there is not a trace file"),
                                    ("--trace", "/", "it exists and is not a regular file")):
            with self.subTest(option + value):
                ended = self.plain("touch", "started", options=[option, value])
                self.assertEqual(ended.status, 2, ended.errors)
                self.assertIn(said, ended.errors)
                self.assertFalse((pathlib.Path(self.folder) / "started").exists())
        ended = self.plain("sh", "-c", "echo $SPILLWAY_RESERVE", options=["--reserve", "0"])
        self.assertEqual((ended.status, ended.output), (0, "0\n"), ended.errors)

    def test_a_file_that_is_not_there(self):
        ended = self.plain("true", options=["--config", "/no/such.toml"])
        self.assertEqual(ended.status, 2)
        self.assertIn("'/no/such.toml': it cannot be read: No such file or directory", ended.errors)
        ended = self.plain("true", options=["--config", "/"])
        self.assertEqual(ended.status, 2)
        self.assertIn("'/': it cannot be read: Is a directory", ended.errors)



class GraphRegistration(Case):
    """NCCL registers buffers of captured graphs, which is wrong for memory that is mapped from several handles."""
    program = (sys.executable, "-c", PROGRAM)
    card = ("--capacity", "1GiB")
    replace = ("--mode", "replace")

    def test_it_is_left_out_and_that_is_said_once(self):
        ended = self.run_on(*self.program, card=self.card, options=self.replace, WORLD_SIZE="2", LOCAL_RANK="0")
        self.assertEqual(ended.output, "b'0'\n", ended.errors)
        self.assertEqual(ended.errors.count("NCCL_GRAPH_REGISTER=0 is set"), 1, ended.errors)
        ended = self.simulate(*self.program, "install", card=self.card, PYTHONPATH=str(ROOT / "python"),
                              SPILLWAY_LIBRARIES=str(BUILD / "lib"))
        self.assertEqual(ended.output, "b'0'\n", ended.errors)
        self.assertNotIn("NCCL_GRAPH_REGISTER", ended.errors)

    def test_a_setting_of_the_users_stays(self):
        ended = self.run_on(*self.program, card=self.card, options=self.replace, NCCL_GRAPH_REGISTER="1")
        self.assertEqual(ended.output, "b'1'\n", ended.errors)

    def test_pytorchs_own_memory_needs_none(self):
        self.assertEqual(self.run_on(*self.program, card=self.card).output, "None\n")


if __name__ == "__main__":
    unittest.main()
