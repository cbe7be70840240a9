"""What a failed run changed besides gradients and arguments, put back: random states, buffers, objects in `restore`."""
import random
import sys
import typing
import weakref

from ._gradients import CannotUndo
from ._out_of_memory import is_out_of_memory

if typing.TYPE_CHECKING:
    import torch

_Restore = typing.Callable[[], object]


def _random_states() -> list[_Restore]:
    """Python's generator, NumPy's where it is loaded, PyTorch's of the CPU and of every CUDA device."""
    import torch

    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    restore: list[_Restore] = [_state_of(generator) for generator in generators]
    python = random.getstate()
    restore.append(lambda: random.setstate(python))
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state = numpy_random.get_state()
        restore.append(lambda: numpy_random.set_state(state))
    return restore


def _state_of(thing: typing.Any) -> _Restore:
    """A function that puts back the state that `thing` has now."""
    if hasattr(thing, "_per_optimizer_states"):
        return _state_of_scaler(thing)
    for get, put in (("state_dict", "load_state_dict"), ("get_state", "set_state"), ("getstate", "setstate")):
        if hasattr(thing, get) and hasattr(thing, put):
            state = getattr(thing, get)()
            return lambda: getattr(thing, put)(state)
    raise TypeError(f"spillway.step: {type(thing).__name__} in `restore` has neither state_dict and load_state_dict "
                    "nor get_state and set_state")


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


def _copy(tensor: "torch.Tensor") -> "torch.Tensor":
    """On the tensor's device, or on the host where that has no room."""
    try:
        return tensor.detach().clone()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return tensor.detach().to("cpu", copy=True)


class _Buffer(typing.NamedTuple):
    """A buffer before a run."""

    module: "torch.nn.Module"
    name: str
    tensor: "torch.Tensor"
    version: int
    copy: typing.Optional["torch.Tensor"]  # of what it held
    is_new: bool  # not known from an earlier run

    def restore(self) -> None:
        self.module._buffers[self.name] = self.tensor
        if self.copy is not None:
            self.tensor.copy_(self.copy)
        elif self.tensor._version != self.version:
            raise CannotUndo(f"the buffer {self.name} of {type(self.module).__name__} changed, as it had not before")

    def changes(self) -> bool:
        """After a run. BatchNorm changes its statistics without telling their version: the values are compared."""
        import torch

        if self.tensor._version != self.version:
            return True
        return self.copy is not None and not torch.equal(self.copy, self.tensor.to(self.copy.device))


class Buffers:
    """The modules' buffers that running them changes, such as the statistics of BatchNorm.

    At first every buffer of a module in training is copied before the run. Which of them change is learned when a run
    succeeds, and only those are copied from then on, into the same memory. Modules are not kept alive.
    """

    def __init__(self) -> None:
        # The copy of each buffer that is known, by name; None: it does not change.
        self._copies: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, typing.Optional[torch.Tensor]]] = (
            weakref.WeakKeyDictionary())
        self._before: list[_Buffer] = []

    def note(self, modules: typing.Iterable["torch.nn.Module"]) -> None:
        self._before = [self._noted(module, name, buffer) for module in modules
                        for name, buffer in module._buffers.items() if buffer is not None]

    def _noted(self, module: "torch.nn.Module", name: str, buffer: "torch.Tensor") -> _Buffer:
        copies = self._copies.setdefault(module, {})
        is_new = name not in copies
        kept = copies.get(name)
        if not module.training or (kept is None and not is_new):
            return _Buffer(module, name, buffer, buffer._version, None, is_new)
        if kept is not None and kept.shape == buffer.shape and kept.dtype == buffer.dtype:
            kept.copy_(buffer.detach())
        else:
            kept = copies[name] = _copy(buffer)
        return _Buffer(module, name, buffer, buffer._version, kept, is_new)

    def learn(self) -> None:
        """After a run that succeeded."""
        for one in self._before:
            copies = self._copies.setdefault(one.module, {})
            if one.copy is None and one.tensor._version != one.version:
                copies.pop(one.name, None)  # copied from the next run on
            elif one.is_new and one.copy is not None and not one.changes():
                copies[one.name] = None
        self._before = []

    def restore(self) -> None:
        import torch

        with torch.no_grad():
            for one in self._before:
                one.restore()
        # Putting them back is a change of its own.
        self._before = [one._replace(version=one.tensor._version) for one in self._before]


class Undo:
    """The state before the first run of a micro-batch; restored before each further one."""

    def __init__(self, modules: typing.Iterable["torch.nn.Module"], buffers: Buffers,
                 others: typing.Iterable[object]) -> None:
        self._buffers = buffers
        self._restore = _random_states() + [_state_of(one) for one in others]
        buffers.note(modules)

    def restore(self) -> None:
        for restore in self._restore:
            restore()
        self._buffers.restore()
