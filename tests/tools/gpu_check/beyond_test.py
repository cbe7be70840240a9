"""gpu-check's rows about what lies beyond the card find other bits, too many bytes and too much time, and say why they
were not run. The trainings and the texts are made up here, so that the truth is known."""
import pathlib
import sys
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
from gpu_check import beyond, serving  # noqa: E402
from gpu_check.machine import CheckFailed  # noqa: E402
from gpu_check.part import Setting  # noqa: E402

PLAIN = {"weights": "right", "losses": ["0 0x1p+2 0x1p+0"], "peak": 1000, "seconds": 10.0}
NAME = "gradients and states on the host"


class Card:
    simulated = False


def setting_on(machine):
    return Setting(machine, folder=None, data=lambda identity: PLAIN, options=None)


class Places(unittest.TestCase):
    def look(self, *runs):
        """Whether the row failed, and the row, where trainings end so, one after the other."""
        with unittest.mock.patch.object(beyond, "trained", side_effect=runs):
            outcome = beyond.look_at_place(NAME)(setting_on(Card()))
        return outcome.failed, outcome.rows[0]

    def test_bits_bytes_and_time_have_to_hold(self):
        failed, row = self.look(dict(PLAIN, peak=400, seconds=11.9))
        self.assertFalse(failed, row)
        self.assertIn("equal bits, 0.40 of the bytes, 1.19 of the time | yes |", row)
        for wrong in ({"peak": 420}, {"seconds": 12.1}):
            failed, row = self.look({**PLAIN, "peak": 400, **wrong})
            self.assertTrue(failed, row)
            self.assertTrue(row.endswith("| NO |"), row)

    def test_other_bits_are_a_fault_where_the_card_repeats_its_own(self):
        self.assertTrue(self.look(dict(PLAIN, peak=400, losses=["0 0x1p+2 0x1p+1"]), PLAIN)[0], "another norm")
        other = dict(PLAIN, peak=400, weights="other")
        failed, row = self.look(other, PLAIN)
        self.assertTrue(failed, row)
        self.assertIn("other bits", row)
        failed, row = self.look(other, dict(PLAIN, weights="another"))
        self.assertFalse(failed, row)
        self.assertIn("not run: two plain runs have different bits", row)

    def test_a_place_that_the_trainer_does_not_know_is_no_fault(self):
        failed, row = self.look(CheckFailed("'parameters' must be \"device\" or \"host\""))
        self.assertFalse(failed, row)
        self.assertIn("not run: this trainer refuses it", row)
        with self.assertRaisesRegex(CheckFailed, "out of memory"):
            self.look(CheckFailed("out of memory"))


class Overlap(unittest.TestCase):
    def look(self, together):
        with unittest.mock.patch.object(beyond, "link", return_value=(50e9, 50e9)), \
                unittest.mock.patch.object(beyond, "micro_batch_seconds", side_effect=[1.0, together]):
            return beyond.look_at_overlap(setting_on(Card()))

    def test_the_shorter_is_hidden(self):
        copies = max(beyond.copied_bytes(beyond.WIDE)) / 50e9
        self.assertFalse(self.look(1.0 + 0.05 * copies).failed)
        self.assertTrue(self.look(1.0 + 0.2 * copies).failed)


class Made:
    """What spillway-serve made."""

    beside, tie_at = serving.Served.beside, serving.Served.tie_at

    def __init__(self, preempted):
        self.tokens, self.preempted, self.speed = [[1, 2], [3]], preempted, 5.0
        self.likeliest = [[{"a": -1, "b": -2}] * 2, [{"a": -1, "b": -1.00001}]]


class Tokens(unittest.TestCase):
    def look(self, **changed):
        """With the whole cache, with a tight one, and of a processor; `changed`: of the second."""
        made = [Made(0), Made(4), Made(0)]
        vars(made[1]).update(changed)
        with unittest.mock.patch.object(serving, "model_of"), unittest.mock.patch.object(serving, "requests_of"), \
                unittest.mock.patch.object(serving, "Served", side_effect=made):
            return serving.look_at_tokens(setting_on(Card()))

    def test_tokens_have_to_be_the_same_under_preemption(self):
        self.assertFalse(self.look().failed)
        outcome = self.look(tokens=[[1, 4], [3]])
        self.assertTrue(outcome.failed)
        self.assertIn("1 of 2 sequences differ", outcome.rows[0])
        outcome = self.look(tokens=[[1, 2], [4]])
        self.assertFalse(outcome.failed, "the two tokens are as likely")
        self.assertIn("equal but for 1 that part at a tie", outcome.rows[0])
        self.assertTrue(self.look(preempted=0).failed, "nothing was pre-empted")

    def test_two_cards_are_not_there(self):
        machine = types.SimpleNamespace(simulated=False, python="python3", run=lambda command: "1\n")
        outcome = serving.look_at_two("two cards", "bits", lambda *_: self.fail("it ran"))(setting_on(machine))
        self.assertFalse(outcome.failed)
        self.assertIn("not run: this machine has one card", outcome.rows[0])


if __name__ == "__main__":
    unittest.main()
