"""What kinds of function spillway.step and spillway.find_executable_batch_size can call again."""
import functools
import unittest

import torch

from step_case import Case, setUpModule, tearDownModule
import spillway


def generator(batch_size=1):
    yield batch_size


async def coroutine(batch_size=1):
    return batch_size


async def asynchronous_generator(batch_size=1):
    yield batch_size


class CalledGenerator:
    def __call__(self, batch_size=1):
        yield batch_size


class Functions(Case):
    def test_what_runs_only_after_it_has_returned_is_refused(self):
        cases = {"a generator function": (generator, functools.partial(generator, 1), CalledGenerator(),
                                          torch.no_grad()(generator)),
                 "an async function": (coroutine, asynchronous_generator)}
        for kind, functions in cases.items():
            for function in functions:
                for name, decorate in (("step", spillway.step(model=torch.nn.Linear(1, 1))),
                                       ("find_executable_batch_size", spillway.find_executable_batch_size)):
                    told = rf"spillway\.{name}: .* is {kind}: .* it returns"
                    with self.subTest(kind, name=name), self.assertRaisesRegex(TypeError, told):
                        decorate(function)

    def test_what_cannot_be_called_is_refused(self):
        for decorate in (spillway.step(model=torch.nn.Linear(1, 1)), spillway.find_executable_batch_size):
            with self.assertRaisesRegex(TypeError, "int 3 cannot be called"):
                decorate(3)


if __name__ == "__main__":
    unittest.main()
