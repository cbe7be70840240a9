"""spillway.step on the simulated card with true values: micro-batches that run out of memory train to the same bits."""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "libtorch"))

import simulated  # noqa: E402


class Case(unittest.TestCase):
    def output_of(self, program, *arguments, **settings):
        outcome = simulated.run(sys.executable, HERE / program, *arguments, **settings)
        self.assertEqual(outcome.status, 0, outcome.errors[-3000:])
        self.assertEqual(outcome.simulator_remarks(), [])
        self.assertEqual(outcome.violations(), "")
        return outcome.output

    def assert_same_bits(self, program, *arguments, micro_batches=24):
        """Each micro-batch failed once, at requests that are spread over a whole one."""
        output = self.output_of(program, *arguments, str(micro_batches))
        words = dict(line.split(maxsplit=1) for line in output if line.split(" ")[0] in
                     ("micro-batches", "fired", "undisturbed", "disturbed"))
        self.assertRegex(words["micro-batches"], rf"^{micro_batches} requests 1\d\d$")
        self.assertEqual(words["fired"], f"{micro_batches} redone {micro_batches}")
        self.assertEqual(words["undisturbed"], words["disturbed"])


class Loop(Case):
    def test_a_plain_loop_trains_to_the_same_bits(self):
        self.assert_same_bits("recovery_loop.py", micro_batches=30)


class Limit(Case):
    """No failure is made up: the card is full."""

    def outcome(self, allocator, how):
        return self.output_of("recovery_limit.py", allocator, how, capacity="256MiB")

    def test_the_failed_works_memory_is_free_when_room_is_made(self):
        for allocator in ("native", "spillway"):
            with self.subTest(allocator):
                said = self.outcome(allocator, "give")
                self.assertEqual(said, ["in use besides what was before, in MiB: 0", "failures 2 rows None equal True"])

    def test_a_micro_batch_that_does_not_fit_is_split(self):
        for allocator in ("native", "spillway"):
            with self.subTest(allocator):
                said = self.outcome(allocator, "split")[-1]
                self.assertRegex(said, r"^failures \d+ rows (512|1024|2048) equal True$")


class Inference(Case):
    def test_a_call_in_inference_mode_is_redone(self):
        self.assertEqual(self.output_of("recovery_inference.py"), ["redone 1 equal True inference True"])


class Gradients(Case):
    """On a card torch._foreach_* changes gradients without counting it in their versions."""

    def test_a_function_that_changes_them_is_redone_exactly_or_not_at_all(self):
        self.assertEqual(self.output_of("step/changed_gradients.py"), [
            "clipped where there was no gradient: the same", "clipped before the failure: error",
            "clipped after the failure: the same", "zeroed in place before the failure: error",
            "multiplied by one: the same", *["clipped in pieces: error"] * 4, *["left alone in pieces: the same"] * 4])


if __name__ == "__main__":
    unittest.main()
