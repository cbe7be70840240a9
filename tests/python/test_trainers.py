"""spillway.step inside others' training loops, and the finder of batch sizes beside Accelerate's."""
import pathlib
import sys
import unittest

from test_recovery import Case

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))


class Trainers(Case):
    def test_hugging_faces_trainer_trains_to_the_same_bits(self):
        self.assert_same_bits("recovery_trainer.py")

    def test_accelerates_loop_trains_to_the_same_bits(self):
        self.assert_same_bits("recovery_accelerate.py")

    def test_lightnings_manual_optimization_trains_to_the_same_bits(self):
        self.assert_same_bits("recovery_lightning.py", "manual")

    def test_lightnings_automatic_optimization_trains_to_the_same_bits(self):
        self.assert_same_bits("recovery_lightning.py", "automatic")


class Finder(unittest.TestCase):
    def compare(self, fits, calls=2, **options):
        """The sizes that each finder tries in calls of a function that fails above `fits`, and what they return."""
        import accelerate
        import spillway

        outcomes = []
        for find in (accelerate.utils.find_executable_batch_size, spillway.find_executable_batch_size):
            tried = []
            given = {name: make() if name == "reduce_batch_size_fn" else make for name, make in options.items()}

            @find(**given)
            def work(batch_size, scale, add=0):
                tried.append(batch_size)
                if batch_size > fits:
                    raise RuntimeError("CUDA out of memory.")
                return batch_size * scale + add

            for _ in range(calls):
                try:
                    tried.append(work(10, add=1))
                except RuntimeError as error:
                    tried.append(str(error))
            outcomes.append(tried)
        self.assertEqual(*outcomes)
        return outcomes[0]

    def test_the_same_sizes_are_tried(self):
        self.assertEqual(self.compare(100), [128, 115, 103, 92, 921, 92, 921])
        self.compare(1, starting_batch_size=7)
        self.compare(500, starting_batch_size=64)

    def test_a_function_of_the_callers_reduces_as_it_does_there(self):
        def thirds():
            sizes = iter([9, 3, 1])
            return lambda: next(sizes)
        self.assertEqual(self.compare(4, reduce_batch_size_fn=thirds, starting_batch_size=27), [27, 9, 3, 31, 3, 31])

    def test_at_zero_the_same_error_is_raised(self):
        self.assertEqual(self.compare(0, starting_batch_size=3)[-1], "No executable batch size found, reached zero.")

    def test_a_batch_size_that_the_caller_passes_is_the_same_error(self):
        import accelerate
        import spillway

        texts = []
        for find in (accelerate.utils.find_executable_batch_size, spillway.find_executable_batch_size):
            with self.assertRaises(TypeError) as error:
                find(lambda batch_size, model: None)(64, "model")
            texts.append(str(error.exception).replace(".Remove", ". Remove"))
        self.assertEqual(*texts)


if __name__ == "__main__":
    unittest.main()
