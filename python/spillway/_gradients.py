"""Which of a micro-batch's gradients each parameter has had: what a second run of the micro-batch must not add again.

Gradients are never copied. PyTorch adds to a parameter's gradient once in a backward pass, in place, and counts that in
the tensor's version. After a failure the difference of versions tells how many contributions a parameter has, and the
second run drops as many. A parameter that had no gradient loses the new one.
"""
import contextlib
import typing
import weakref

if typing.TYPE_CHECKING:
    import torch

    Had = dict[torch.Tensor, int]  # contributions of the micro-batch


class CannotUndo(Exception):
    """The failed run changed what cannot be put back."""


class GradientsBefore:
    """The gradients before one run of the micro-batch. It keeps none of them alive."""

    def __init__(self, parameters: typing.Iterable["torch.Tensor"]) -> None:
        self._before: list[tuple[torch.Tensor, typing.Optional[weakref.ref[torch.Tensor]], int]] = []
        for parameter in parameters:
            gradient = parameter.grad
            known = (None, 0) if gradient is None else (weakref.ref(gradient), gradient._version)
            self._before.append((parameter, *known))

    def undo(self, had: "Had") -> None:
        """Drops gradients that are new, and notes in `had` which others have grown."""
        for parameter, reference, version in self._before:
            gradient = reference() if reference is not None else None
            if gradient is None:  # there was none, or the function itself dropped it and will again
                parameter.grad = None
            elif gradient is parameter.grad:
                if gradient._version != version:
                    had[parameter] = had.get(parameter, 0) + gradient._version - version
            elif gradient._version == version:
                parameter.grad = gradient
            else:
                raise CannotUndo("a gradient was changed in place and then replaced by another")


class _Arrivals:
    """Stands before a parameter's accumulation: drops the first contributions, and scales those that it lets pass."""

    def __init__(self, parameter: "torch.Tensor", drop: int, scale: float) -> None:
        self._parameter, self._drop, self._scale, self._seen = parameter, drop, scale, 0
        self._version = None if parameter.grad is None else parameter.grad._version

    def __call__(self, gradients: tuple["torch.Tensor", ...]) -> typing.Optional[tuple]:
        self._seen += 1
        if self._seen <= self._drop:
            gradient = self._parameter.grad
            if gradient is None or gradient._version != self._version:
                raise RuntimeError("spillway.step: gradients were written to by something else than the backward pass. "
                                   "Call zero_grad() before the function that is redone, not inside")
            return (None,)
        if self._scale == 0:
            return (None,)  # rows without targets, whose mean is no number
        return None if self._scale == 1 or gradients[0] is None else (gradients[0] * self._scale,)


@contextlib.contextmanager
def arriving(parameters: typing.Iterable["torch.Tensor"], had: "Had", scale: float) -> typing.Iterator[None]:
    """Within it, backward passes give each parameter only what it has not had, times `scale`."""
    chosen = list(had) if scale == 1 else [one for one in parameters if one.requires_grad]
    if not chosen:
        yield
        return
    from torch.autograd.graph import get_gradient_edge

    nodes = [get_gradient_edge(parameter).node for parameter in chosen]
    handles = [node.register_prehook(_Arrivals(parameter, had.get(parameter, 0), scale))
               for node, parameter in zip(nodes, chosen)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def wait_for_autograd(devices: typing.Iterable["torch.device"]) -> None:
    """Runs an empty backward pass on each device's autograd thread, which has then finished what it was at.

    Nothing is allocated: the tensors have no elements.
    """
    import torch

    for device in devices:
        with torch.enable_grad():
            leaf = torch.empty(0, device=device, requires_grad=True)
            output = leaf.view(0, 1)
            torch.autograd.grad([output], [leaf], [output.detach()])
