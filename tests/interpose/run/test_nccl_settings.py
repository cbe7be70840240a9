"""NCCL's registration of buffers in captured graphs, which is wrong for memory that is mapped from several handles."""
import sys
import unittest

from case import BUILD, ROOT, Case

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


class GraphRegistration(Case):
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
