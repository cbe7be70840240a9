"""Which functions can be called again when memory runs out."""
import functools
import inspect
import typing


def name_of(function: typing.Any) -> str:
    """A functools.partial and an object that can be called have no name of their own."""
    return getattr(function, "__name__", type(function).__name__)


def check_callable(function: typing.Any, decorator: str) -> None:
    """Raises TypeError for what runs only after it has returned: the decorator would see none of its failures."""
    if not callable(function):
        raise TypeError(f"spillway.{decorator}: {type(function).__name__} {function!r:.60} cannot be called")
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    if inspect.isgeneratorfunction(inner):
        kind = "a generator function"
    elif inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        kind = "an async function"
    else:
        return
    raise TypeError(f"spillway.{decorator}: {name_of(function)} is {kind}: it has not begun when it returns, so that "
                    "nothing of it can be done again. Decorate a plain function that it calls")
