"""Whose gradients a function computes: what spillway.step is given as `model`, or the modules among the arguments."""
import gc
import typing
import weakref
from collections.abc import Iterable, Mapping

from ._ranks.wrappers import Wrappers, has_other_ranks

if typing.TYPE_CHECKING:
    import torch

    Trained = tuple[list[torch.nn.Module], list[torch.Tensor]]

Arguments = tuple[tuple, dict]  # args and kwargs


class Models:
    """Modules and optimizers are asked at each call, because their parameters may be others by then. An iterator is
    read once, here: it has nothing left for a second call."""

    def __init__(self, model: typing.Any) -> None:
        """Raises TypeError and ValueError for what is no model."""
        self._given: typing.Optional[list[typing.Any]] = None if model is None else list(_parts(model))
        self.wrappers = Wrappers()
        if self._given == []:
            raise ValueError("spillway.step: model has no module and no tensor in it: no gradient would be known")

    def of(self, arguments: Arguments) -> "Trained":
        """As now(); without `model` TypeError is raised where the arguments say nothing of what is trained."""
        import torch

        modules, tensors = self.now(arguments)
        if self._given is None and not any(one.requires_grad for one in tensors) \
                and (not modules or torch.is_grad_enabled()):
            _refuse(_among(arguments))
        return modules, tensors

    def now(self, arguments: Arguments) -> "Trained":
        """All modules, and the tensors whose gradients the function computes or may compute; each once. With other
        ranks there, the modules' DDP and FSDP wrappers too."""
        import torch

        modules: dict[int, torch.nn.Module] = {}
        tensors: dict[int, torch.Tensor] = {}
        waiting = []
        for one in _among(arguments) if self._given is None else self._given:
            if isinstance(one, torch.nn.Module):
                waiting.append(one)
            elif isinstance(one, torch.Tensor):
                tensors[id(one)] = one
            else:
                tensors.update((id(tensor), tensor) for group in one.param_groups for tensor in group["params"])
        _add(waiting, modules, tensors)
        if has_other_ranks():
            _add(self.wrappers.around(modules.values(), tensors.values()), modules, tensors)
        return list(modules.values()), list(tensors.values())


def _add(waiting: list["torch.nn.Module"], modules: dict[int, "torch.nn.Module"],
         tensors: dict[int, "torch.Tensor"]) -> None:
    """As modules() and parameters(), which take most of a millisecond."""
    new = []
    while waiting:
        module = waiting.pop()
        if id(module) not in modules:
            modules[id(module)] = module
            new.append(module)
            waiting += [one for one in module._modules.values() if one is not None]
    for module in new:
        own = module._parameters.values()
        # One that is frozen may be so until the function trains it: a gradient that it has is from before.
        tensors.update((id(one), one) for one in own
                       if one is not None and (one.requires_grad or one.grad is not None))


def _parts(model: typing.Any) -> typing.Iterator[typing.Any]:
    """The modules, optimizers and tensors in it."""
    import torch

    if isinstance(model, torch.Tensor):
        if not model.is_leaf:
            raise ValueError(f"spillway.step: model has a tensor of shape {list(model.shape)} that is computed from "
                             "others, and has no gradient of its own: name the tensors that it is computed from")
        yield model
    elif isinstance(model, torch.nn.Module) or hasattr(model, "param_groups"):
        yield model
    elif isinstance(model, Mapping):  # by name; or an optimizer's group
        yield from _parts(model["params"] if "params" in model else list(model.values()))
    elif isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], str):
        yield from _parts(model[1])  # of named_parameters()
    elif isinstance(model, Iterable) and not isinstance(model, (str, bytes)):
        for one in model:
            yield from _parts(one)
    else:
        raise TypeError(f"spillway.step: model has the {_said(model)} in it: it takes modules, tensors, optimizers, "
                        "and iterables and dictionaries of them")


def _said(thing: typing.Any) -> str:
    return f"{type(thing).__name__} {thing!r:.60}"


def _among(arguments: Arguments) -> list[typing.Any]:
    import torch

    return [one for one in (*arguments[0], *arguments[1].values()) if isinstance(one, torch.nn.Module)]


def _refuse(modules: list[typing.Any]) -> typing.NoReturn:
    what = "no module is among the arguments"
    if modules:
        names = ", ".join(sorted({type(one).__name__ for one in modules}))
        what = f"no module with a parameter that requires a gradient is among the arguments ({names} has none)"
    raise TypeError(f"spillway.step: {what}: say whose gradients the function computes, as in "
                    "spillway.step(model=model)")


def version_of(tensor: "torch.Tensor") -> int:
    """How often it has been changed in place. Of tensors made in inference mode PyTorch does not count that."""
    return 0 if tensor.is_inference() else tensor._version


class Unnamed:
    """The tensors that have a gradient after a failed run and are not known. Where a redo adds to one, the failed run
    may have done so too. The search takes as long as a collection of garbage, which a failure makes anyway. It finds
    what Python's collector knows, and nothing that gc.freeze() has taken from it."""

    def __init__(self, known: typing.Iterable["torch.Tensor"]) -> None:
        import torch

        others = set(map(id, known))
        self._tensors = [weakref.ref(one) for one in gc.get_objects()
                         if issubclass(type(one), torch.Tensor) and id(one) not in others
                         and one.is_leaf and one.requires_grad and one.grad is not None]
        self.note()

    def note(self) -> None:
        """Takes their gradients as they are now for those before."""
        self._before = [(reference, weakref.ref(tensor.grad), version_of(tensor.grad)) for reference in self._tensors
                        if (tensor := reference()) is not None and tensor.grad is not None]

    def changed(self) -> typing.Optional["torch.Tensor"]:
        """One whose gradient has been added to. A gradient that is another one was dropped by the function itself."""
        for reference, gradient, version in self._before:
            tensor = reference()
            if tensor is not None and tensor.grad is not None and tensor.grad is gradient() \
                    and version_of(tensor.grad) != version:
                return tensor
        return None


def unknown(tensor: "torch.Tensor") -> RuntimeError:
    # Without the words by which a shortage is known.
    return RuntimeError(f"spillway.step: {_name(tensor)}a tensor of shape {list(tensor.shape)}, gets gradients from "
                        "the function, and is not known: it may have this micro-batch twice. Name it, or its module, "
                        "in spillway.step(model=...). Gradients are incomplete now: call zero_grad() before training "
                        "goes on")


def _name(tensor: "torch.Tensor") -> str:
    import torch

    for module in gc.get_objects():
        if issubclass(type(module), torch.nn.Module):
            for name, one in vars(module).get("_parameters", {}).items():
                if one is tensor:
                    return f"{name} of {type(module).__name__}, "
    return ""
