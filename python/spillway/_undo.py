"""What a failed run changed besides gradients and arguments, put back: random states, buffers, objects in `restore`."""
import random
import sys
import typing
import weakref

from ._gradients import CannotUndo
from ._models import version_of
from ._out_of_memory import is_out_of_memory
from ._restored import Restored

if typing.TYPE_CHECKING:
    import torch

_Restore = typing.Callable[[], object]
_NO_NAMES: dict[str, bool] = {}  # of most modules: one for all, because each call notes them


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


def _state_of(generator: typing.Any) -> _Restore:
    """A function that puts back the state that `generator` has now."""
    state = generator.get_state()
    return lambda: generator.set_state(state)


def _copy(tensor: "torch.Tensor") -> "torch.Tensor":
    """On the tensor's device, or on the host where that has no room."""
    import torch

    with torch.inference_mode(False):  # what is made in that mode cannot be changed outside
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
        import torch

        self.module._buffers[self.name] = self.tensor
        if self.copy is not None:
            with torch.inference_mode(self.tensor.is_inference()):  # changed only there
                self._resize()
                self.tensor.copy_(self.copy)
        elif version_of(self.tensor) != self.version:
            raise CannotUndo(f"the buffer {self.name} of {type(self.module).__name__} changed, as it had not before")

    def _resize(self) -> None:
        """As observers for quantization do with the ranges of each channel."""
        if self.tensor.shape == self.copy.shape:
            return
        try:
            self.tensor.resize_(self.copy.shape)
        except RuntimeError as error:
            raise CannotUndo(f"the buffer {self.name} of {type(self.module).__name__} got another shape, and cannot "
                             f"get its own back ({error})")

    def changes(self) -> bool:
        """After a run. BatchNorm changes its statistics without telling their version: the values are compared."""
        import torch

        if version_of(self.tensor) != self.version:
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
        self._lazy: list[tuple[torch.nn.Module, str, torch.Tensor]] = []  # without a shape yet
        self._names: list[tuple[torch.nn.Module, dict[str, bool]]] = []  # of each module; whether there is a tensor

    def note(self, modules: typing.Iterable["torch.nn.Module"]) -> None:
        import torch

        self._names = [(module, {name: buffer is not None for name, buffer in module._buffers.items()}
                        if module._buffers else _NO_NAMES) for module in modules]
        buffers = [(module, name, module._buffers[name]) for module, names in self._names
                   for name, is_tensor in names.items() if is_tensor]
        self._lazy = [one for one in buffers if torch.nn.parameter.is_lazy(one[2])]
        self._before = [self._noted(*one) for one in buffers if not torch.nn.parameter.is_lazy(one[2])]

    def forget(self) -> None:
        """After a call: the modules may go."""
        self._before, self._lazy, self._names = [], [], []

    def _noted(self, module: "torch.nn.Module", name: str, buffer: "torch.Tensor") -> _Buffer:
        """The changes of one made in inference mode are not counted: it is copied always."""
        import torch

        copies = self._copies.setdefault(module, {})
        is_new = name not in copies
        kept = copies.get(name)
        changes = is_new or kept is not None
        if not buffer.is_inference() and not (module.training and changes):
            return _Buffer(module, name, buffer, version_of(buffer), None, is_new)
        if kept is not None and kept.shape == buffer.shape and kept.dtype == buffer.dtype:
            with torch.inference_mode(False):
                kept.copy_(buffer.detach())
        else:
            kept = copies[name] = _copy(buffer)
        return _Buffer(module, name, buffer, version_of(buffer), kept, is_new)

    def learn(self) -> None:
        """After a run that succeeded."""
        for one in self._before:
            copies = self._copies.setdefault(one.module, {})
            if one.copy is None and version_of(one.tensor) != one.version:
                copies.pop(one.name, None)  # copied from the next run on
            elif one.is_new and one.copy is not None and not one.changes():
                copies[one.name] = None
        self.forget()

    def restore(self) -> None:
        import torch

        for module, names in self._names:
            _drop_new(module, names)
        for module, name, buffer in self._lazy:
            _reset(module, name, buffer)
        with torch.no_grad():
            for one in self._before:
                one.restore()
        # Putting them back is a change of its own.
        self._before = [one._replace(version=version_of(one.tensor)) for one in self._before]


def _drop_new(module: "torch.nn.Module", names: dict[str, bool]) -> None:
    """What the failed run registered, or put in the place of None."""
    for name in [*module._buffers]:
        if name not in names:
            del module._buffers[name]
            module._non_persistent_buffers_set.discard(name)
    for name, is_tensor in names.items():
        if not is_tensor:
            module._buffers[name] = None


def _reset(module: "torch.nn.Module", name: str, buffer: "torch.Tensor") -> None:
    """Where the failed run gave a buffer its shape: only statistics can be made as they were at first."""
    import torch

    if torch.nn.parameter.is_lazy(buffer):
        return
    if not hasattr(module, "reset_running_stats"):
        raise CannotUndo(f"the buffer {name} of {type(module).__name__} got its shape")
    module.reset_running_stats()


class Undo:
    """The state before the first run of a micro-batch; restored before each further one."""

    def __init__(self, modules: typing.Iterable["torch.nn.Module"], buffers: Buffers,
                 others: Restored) -> None:
        self._buffers = buffers
        self._restore = _random_states() + others.states()
        if more := others.modules():
            modules = {id(one): one for one in (*modules, *more)}.values()
        buffers.note(modules)

    def restore(self) -> None:
        for restore in self._restore:
            restore()
        self._buffers.restore()
