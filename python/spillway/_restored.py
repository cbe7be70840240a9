"""The objects in `restore`: their states before a micro-batch, put back before each further run of it."""
import copy
import sys
import typing
from collections.abc import Iterable

from ._gradients import CannotUndo
from ._out_of_memory import is_out_of_memory

if typing.TYPE_CHECKING:
    import torch

_Restore = typing.Callable[[], object]
_PAIRS = (("state_dict", "load_state_dict"), ("get_state", "set_state"), ("getstate", "setstate"))


class Restored:
    """One object, or several. An iterator is read once, here."""

    def __init__(self, restore: typing.Any) -> None:
        """Raises TypeError for what cannot be put back."""
        several = isinstance(restore, Iterable) and _pair_of(restore) is None
        self.objects: list[typing.Any] = []
        for one in restore if several else [restore]:
            _check(one)  # before the next: a loader without a state would be read to its end
            self.objects.append(one)

    def states(self) -> list[_Restore]:
        """Functions that put back the states that the objects have now."""
        return [_state_of(one) for one in self.objects if not _is_module(one)]

    def modules(self) -> list["torch.nn.Module"]:
        """Those whose buffers are put back. Their parameters change in a step alone, which is outside the function."""
        return [module for one in self.objects if _is_module(one) for module in one.modules()]


def _pair_of(thing: typing.Any) -> typing.Optional[tuple[str, str]]:
    return next((pair for pair in _PAIRS if all(hasattr(thing, name) for name in pair)), None)


def _is_module(thing: typing.Any) -> bool:
    import torch

    return isinstance(thing, torch.nn.Module)


def _check(thing: typing.Any) -> None:
    name = type(thing).__name__
    if hasattr(thing, "param_groups"):
        raise TypeError(f"spillway.step: an optimizer ({name}) is in `restore`: its step cannot be undone. Call step() "
                        "outside the function, and leave the optimizer out of `restore`")
    if _pair_of(thing) is None:
        raise TypeError(f"spillway.step: {name} in `restore` has neither state_dict and load_state_dict nor get_state "
                        "and set_state")


def _state_of(thing: typing.Any) -> _Restore:
    if hasattr(thing, "_per_optimizer_states"):
        return _state_of_scaler(thing)
    get, put = typing.cast(tuple[str, str], _pair_of(thing))
    # Copied twice: an object may return what it goes on changing, and may keep what it is given.
    state = _copied(getattr(thing, get)(), thing)
    return lambda: getattr(thing, put)(_copied(state, thing))


def _copied(state: typing.Any, thing: typing.Any) -> typing.Any:
    import torch

    outer = sys.exc_info()[1]
    try:
        with torch.inference_mode(False):  # what is made in that mode cannot be changed outside
            return copy.deepcopy(state)
    except Exception as error:
        if is_out_of_memory(error, outer):
            raise
        raise TypeError(f"spillway.step: the state of a {type(thing).__name__} in `restore` cannot be copied "
                        f"({type(error).__name__}: {error})") from error


def _state_of_scaler(scaler: typing.Any) -> _Restore:
    """Of a GradScaler: which optimizers' gradients unscale_() has passed. state_dict() leaves that out, and waits for
    the device. The scale itself is changed by update() alone, in place."""
    scale = scaler._scale
    version = 0 if scale is None else scale._version

    def copied(states: dict[int, typing.Any]) -> dict[int, typing.Any]:
        return {key: {**state, "found_inf_per_device": dict(state["found_inf_per_device"])}
                for key, state in states.items()}

    states = copied(scaler._per_optimizer_states)

    def restore() -> None:
        now = scaler._scale
        if now is not None and (now._version != version or (scale is not None and now is not scale)):
            raise CannotUndo("the function called update() of a gradient scaler")
        scaler._per_optimizer_states.clear()
        scaler._per_optimizer_states.update(copied(states))

    return restore
