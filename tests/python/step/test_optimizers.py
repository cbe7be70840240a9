"""An optimizer that steps inside the function: nothing takes that back, so the call is not redone."""
import threading
import unittest

import torch

from step_case import Case, Net, batch, plain, setUpModule, shortage, tearDownModule  # noqa: F401
import spillway


class InsideTheFunction(Case):
    def stepping(self, model, fail):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @spillway.step(model=model)
        def function(model, rows):
            loss = plain(model, rows)
            optimizer.step()
            fail()
            return loss

        return function

    def test_a_failure_after_its_step_is_not_redone(self):
        model = Net()
        failing = iter([True])

        def fail():
            if next(failing, False):
                raise shortage()

        function = self.stepping(model, fail)
        with self.assertLogs("spillway", "WARNING") as told, self.assertRaises(torch.OutOfMemoryError) as raised:
            function(model, batch(0))
        self.assertEqual(function.recovery.failures, 1)
        self.assertIn("an optimizer (SGD) began a step inside the function", str(raised.exception.__notes__))
        self.assertIn("steps inside the function", told.output[0])

    def test_it_is_told_once_and_before_any_failure(self):
        model = Net()
        function = self.stepping(model, lambda: None)
        with self.assertLogs("spillway", "WARNING") as told:
            for call in range(3):
                function(model, batch(call))
        self.assertEqual(len(told.output), 1)

    def test_a_failure_before_its_step_is_redone(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        failing = iter([True])

        @spillway.step(model=model)
        def function(model, rows):
            loss = plain(model, rows)
            if next(failing, False):
                raise shortage()
            optimizer.step()
            return loss

        function(model, batch(0))
        self.assertEqual(function.recovery.redone, 1)

    def test_another_threads_training_is_its_own(self):
        model, other = Net(), torch.nn.Linear(2, 2)
        others = torch.optim.SGD(other.parameters(), lr=0.1)
        failing = iter([True])

        @spillway.step(model=model)
        def function(model, rows):
            thread = threading.Thread(target=others.step)
            thread.start()
            thread.join()
            loss = plain(model, rows)
            if next(failing, False):
                raise shortage()
            return loss

        function(model, batch(0))
        self.assertEqual(function.recovery.redone, 1)

    def test_a_step_of_these_parameters_on_another_thread_counts(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @spillway.step(model=model)
        def function(model, rows):
            plain(model, rows)
            thread = threading.Thread(target=optimizer.step)
            thread.start()
            thread.join()
            raise shortage()

        with self.assertRaises(torch.OutOfMemoryError) as raised:
            function(model, batch(0))
        self.assertEqual(function.recovery.failures, 1)
        self.assertIn("began a step inside", str(raised.exception.__notes__))


if __name__ == "__main__":
    unittest.main()
