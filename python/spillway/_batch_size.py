"""The batch size that fits: Accelerate's find_executable_batch_size, and toma's memory of what worked."""
import functools
import gc
import inspect
import logging
import sys
import typing

from ._functions import check_callable, name_of
from ._out_of_memory import summary, is_out_of_memory, release_tensors

log = logging.getLogger("spillway")
_remembered: dict[typing.Hashable, int] = {}  # the size that worked, by the caller's key


def _empty_caches() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _check_call(function: typing.Callable[..., typing.Any], args: tuple) -> None:
    names = list(inspect.signature(function).parameters)
    if len(names) < len(args) + 1:
        name = name_of(function)
        given = ", ".join(f"{one}={value}" for one, value in zip(names[1:], args[1:]))
        raise TypeError(f"Batch size was passed into `{name}` as the first argument when called. "
                        f"Remove this as the decorator already does so: `{name}({given})`")


def find_executable_batch_size(function: typing.Optional[typing.Callable[..., typing.Any]] = None,
                               starting_batch_size: int = 128,
                               reduce_batch_size_fn: typing.Optional[typing.Callable[[], int]] = None, *,
                               halve: bool = False, cache: typing.Optional[typing.Hashable] = None
                               ) -> typing.Callable[..., typing.Any]:
    """Calls a function with the largest batch size that does not run out of memory: Accelerate's, in its place.

        @spillway.find_executable_batch_size(starting_batch_size=128)
        def train(batch_size, model): ...

        train(model)

    After a failure the size is what `reduce_batch_size_fn()` returns, else 0.9 of it, rounded down, or half of it with
    `halve`.
    The size that worked is where the next call begins; functions with the same `cache` share it, also when they are
    decorated anew, as in a loop over epochs. Other than Accelerate's it also knows shortages that are wrapped in other
    exceptions or told by CUDA's libraries, and the failed call's tensors are gone before the next one.

    The function is called from its beginning: what it did before it failed is not undone (spillway.step does that).

    Errors: RuntimeError at size 0, from the last shortage; TypeError where the caller passes a batch size, and for a
    generator or async function; what is no shortage passes through. Thread-safety: one call at a time of functions that
    share a size.
    """
    if function is None:
        return functools.partial(find_executable_batch_size, starting_batch_size=starting_batch_size,
                                 reduce_batch_size_fn=reduce_batch_size_fn, halve=halve, cache=cache)
    check_callable(function, "find_executable_batch_size")
    told = f"find_executable_batch_size: starting_batch_size is {starting_batch_size!r}, and must be "
    if not isinstance(starting_batch_size, int):
        raise TypeError(told + "a whole number")
    if starting_batch_size < 1:
        raise ValueError(told + "at least 1")
    key: typing.Hashable = object() if cache is None else cache
    sizes = {key: starting_batch_size} if cache is None else _remembered
    if sizes.get(key, 0) <= 0:  # new, or none was found the last time
        sizes[key] = starting_batch_size

    def reduced(size: int) -> int:
        if reduce_batch_size_fn is not None:
            return reduce_batch_size_fn()
        return size // 2 if halve else int(size * 0.9)

    @functools.wraps(function)
    def with_size(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        _check_call(function, args)
        _empty_caches()
        outer = sys.exc_info()[1]
        failure: typing.Optional[BaseException] = None
        while (size := sizes[key]) > 0:
            try:
                return function(size, *args, **kwargs)
            except Exception as error:
                if not is_out_of_memory(error, outer):
                    raise
                failure = error
            # Outside `except`: until here the exception has kept the failed call's tensors.
            release_tensors(failure)
            _empty_caches()
            sizes[key] = reduced(size)
            log.warning("%s: %s; batch size %d instead of %d", name_of(function), summary(failure), sizes[key], size)
        raise RuntimeError("No executable batch size found, reached zero.") from failure

    return with_size
