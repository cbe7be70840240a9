"""Whether a function lets an optimizer step, which nothing can take back."""
import contextlib
import threading
import typing

if typing.TYPE_CHECKING:
    import torch


class Stepped:
    """What `watched` has seen."""

    def __init__(self) -> None:
        self.name = ""  # the class of the optimizer that began a step first; "": none has


@contextlib.contextmanager
def watched(parameters: typing.Iterable["torch.Tensor"]) -> typing.Iterator[Stepped]:
    """Any optimizer's step on this thread, and those of `parameters` on others: one may train a model of its own,
    and one runs the backward pass."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    stepped, thread = Stepped(), threading.get_ident()

    def note(optimizer: typing.Any, *_: typing.Any) -> None:
        if threading.get_ident() == thread or _has_any(optimizer, set(map(id, parameters))):
            stepped.name = stepped.name or type(optimizer).__name__

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield stepped
    finally:
        hook.remove()


def _has_any(optimizer: typing.Any, known: set[int]) -> bool:
    return any(id(one) in known for group in optimizer.param_groups for one in group["params"])
