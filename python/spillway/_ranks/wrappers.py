"""The DDP and FSDP modules around what a function trains, where that was named without them: as an optimizer, as
parameters, or as the module inside."""
import gc
import typing
import weakref
from collections.abc import Iterable

from . import sharded

if typing.TYPE_CHECKING:
    import torch


class Wrappers:
    """Those of the process, searched for once. It finds what Python's collector knows, and nothing that gc.freeze() has
    taken from it."""

    def __init__(self) -> None:
        self._found: typing.Optional[list[weakref.ref[torch.nn.Module]]] = None

    def search(self) -> None:
        import torch

        gc.collect()  # first, so that wrappers that nobody has any more are none
        self._found = [weakref.ref(one) for one in gc.get_objects()
                       if issubclass(type(one), torch.nn.Module) and _is_wrapper(one)]

    def around(self, modules: Iterable["torch.nn.Module"],
               tensors: Iterable["torch.Tensor"]) -> list["torch.nn.Module"]:
        """Those beside `modules` that hold one of the tensors. No search is made while `modules` hold all of them."""
        modules, known = list(modules), {id(one) for one in tensors if one.requires_grad}
        if self._found is None:
            if known <= {id(part) for one in modules if _is_wrapper(one) for part in _parameters_of(one)}:
                return []
            self.search()
        beside = set(map(id, modules))
        found = [one for reference in self._found or () if (one := reference()) is not None]
        return [one for one in found
                if id(one) not in beside and any(id(part) in known for part in _parameters_of(one))]


def exchanges(module: "torch.nn.Module") -> bool:
    """Whether its backward pass waits for other ranks now."""
    return bool(getattr(module, "require_backward_grad_sync", _is_wrapper(module)))


def has_other_ranks() -> bool:
    import torch

    return (torch.distributed.is_available() and torch.distributed.is_initialized()
            and torch.distributed.get_world_size() > 1)


def _is_wrapper(module: "torch.nn.Module") -> bool:
    import torch

    return (isinstance(module, torch.nn.parallel.DistributedDataParallel)
            or hasattr(type(module), "set_requires_gradient_sync")
            or type(module).__name__ == "FullyShardedDataParallel")


def _parameters_of(wrapper: typing.Any) -> list["torch.Tensor"]:
    import torch

    if isinstance(wrapper, torch.nn.parallel.DistributedDataParallel):
        return list(wrapper._module_parameters)
    return [*wrapper.parameters(), *sharded.shards_of(wrapper)]
