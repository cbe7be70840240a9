"""Which of a micro-batch's gradients each parameter has had: what a second run of the micro-batch must not add again.

Gradients are never copied. PyTorch adds to a parameter's gradient once in a backward pass, in place, and counts that in
the tensor's version. After a failure the difference of versions tells how many contributions a parameter has, and the
second run drops as many. A parameter that had no gradient loses the new one.

Any other change of a gradient in place is counted as a contribution too. The second run then drops more than arrives
before the next such change, or than arrives at all: it is found out, and is an error. On a card torch._foreach_*
changes tensors without counting it (clip_grad_norm_, GradScaler.unscale_). So a second run also compares gradients'
contents, up to the first contribution that the failed run had not had: a change before that may be the second one.
"""
import contextlib
import typing
import weakref

from ._models import version_of
from ._unchanged import Unchanged, changed, content

if typing.TYPE_CHECKING:
    import torch

    Had = dict[torch.Tensor, int]  # contributions of the micro-batch, or one of these

_GONE = -1  # the gradient from before is no more: the function itself drops it, or it cannot be redone
_NEW = -2  # there was none before


class CannotUndo(Exception):
    """The failed run changed what cannot be put back."""


class GradientsBefore:
    """The gradients before one run of the micro-batch. It keeps none of them alive."""

    def __init__(self, parameters: typing.Iterable["torch.Tensor"]) -> None:
        self._before: list[tuple[torch.Tensor, typing.Optional[weakref.ref[torch.Tensor]], int]] = []
        for parameter in parameters:
            gradient = parameter.grad
            known = (None, 0) if gradient is None else (weakref.ref(gradient), version_of(gradient))
            self._before.append((parameter, *known))

    def add_new(self, parameters: typing.Iterable["torch.Tensor"]) -> None:
        """That the run has made: they had no gradient before."""
        self._before += [(parameter, None, 0) for parameter in parameters]

    def undo(self, had: "Had") -> None:
        """Drops gradients that are new, and notes in `had` which others have grown."""
        for parameter, reference, version in self._before:
            gradient = reference() if reference is not None else None
            if gradient is None:
                if reference is not None:
                    had[parameter] = _GONE
                elif parameter.grad is not None:
                    had.setdefault(parameter, _NEW)
                parameter.grad = None
            elif gradient is parameter.grad:
                if version_of(gradient) != version:
                    self._check_own(gradient)
                    had[parameter] = max(had.get(parameter, 0), 0) + version_of(gradient) - version
            elif version_of(gradient) == version:
                parameter.grad = gradient
            else:
                raise CannotUndo("a gradient was changed in place and then replaced by another")

    def _check_own(self, gradient: "torch.Tensor") -> None:
        """Tensors that are parts of one have one count of changes."""
        base = gradient._base
        others = (reference() for _, reference, _ in self._before if reference is not None)
        if base is not None and any(one is not None and one is not gradient and one._base is base for one in others):
            raise CannotUndo("gradients are parts of one tensor, and their changes are counted together")


def _placeholder(parameter: "torch.Tensor") -> "torch.Tensor":
    """A gradient of one element's memory."""
    return parameter.detach().new_zeros(()).expand(parameter.shape)


class _Arrivals:
    """Stands before a parameter's accumulation: drops the first contributions, scales those that it lets pass, and
    finds out what else changes the gradient."""

    def __init__(self, parameter: "torch.Tensor", had: int, scale: float, piece: bool,
                 unchanged: typing.Optional[Unchanged]) -> None:
        self._content: typing.Optional[torch.Tensor] = None  # after a contribution
        self._parameter, self._drop, self._scale, self._piece = parameter, max(had, 0), scale, piece
        self._unchanged = unchanged if had >= 0 else None
        self._seen = self._passed = 0
        self._replaces = False  # autograd adds out of place
        self._gone = _placeholder(parameter) if had == _GONE else None
        if self._gone is not None:
            parameter.grad = self._gone
        gradient = parameter.grad
        # Not kept alive: the function may drop it, and needs its memory then.
        self._before = None if gradient is None else weakref.ref(gradient)
        self._version = 0 if gradient is None else version_of(gradient)

    def __call__(self, gradients: tuple["torch.Tensor", ...]) -> typing.Optional[tuple]:
        import torch

        self._seen += 1
        if self._passed == 0 and (self._piece or self._seen <= self._drop) and not self._is_as_before():
            raise changed(self._parameter)
        if self._gone is not None and self._parameter.grad is self._gone:
            raise changed(self._parameter)
        if self._unchanged is not None and self._seen > self._drop:
            self._unchanged.overtaken()
        if self._seen <= self._drop or self._scale == 0 or gradients[0] is None:
            return (None,)  # a scale of 0: rows without targets, whose mean is no number
        self._passed += 1
        self._replaces |= torch.is_grad_enabled() or gradients[0].is_sparse
        return None if self._scale == 1 else (gradients[0] * self._scale,)

    def arrived(self, *_: typing.Any) -> None:
        self._content = content(self._parameter.grad)

    def _is_as_before(self) -> bool:
        gradient = self._parameter.grad
        if self._before is None:
            return gradient is None
        return gradient is self._before() and gradient is not None and version_of(gradient) == self._version

    def check(self) -> None:
        """After a run that succeeded. Raises where something else than these contributions changed the gradient."""
        gradient = self._parameter.grad
        if not self._piece:
            wrong = self._seen < self._drop or (self._gone is not None and gradient is self._gone)
        elif self._passed == 0:
            wrong = not self._is_as_before()
        elif gradient is None or self._before is None:
            wrong = gradient is None
        elif gradient is self._before():
            wrong = version_of(gradient) != self._version + self._passed
        else:
            wrong = not self._replaces
        if self._content is not None and gradient is not None:
            wrong = wrong or self._content.item() != content(gradient).item()
        if wrong:
            raise changed(self._parameter)

    def end(self) -> None:
        if self._gone is not None and self._parameter.grad is self._gone:
            self._parameter.grad = None


@contextlib.contextmanager
def arriving(parameters: typing.Iterable["torch.Tensor"], had: "Had", scale: typing.Optional[float],
             unchanged: typing.Optional[Unchanged], contents: bool) -> typing.Iterator[None]:
    """Within it, backward passes give each parameter only what it has not had. In a piece of a micro-batch it is that
    times `scale`, and nothing else may change a gradient; with `contents` these are compared, beside the versions.
    `unchanged`: in a run that follows a failure."""
    if scale is None and unchanged is None:
        yield
        return
    chosen = {one: had.get(one, 0) for one in parameters if _can_be_hooked(one)}
    chosen.update(had)
    if unchanged is not None:
        unchanged.begin(chosen)
    arrivals: list[_Arrivals] = []
    handles: list[typing.Any] = []
    try:
        for parameter, count in chosen.items():
            arrivals.append(_Arrivals(parameter, count, 1.0 if scale is None else scale, scale is not None, unchanged))
            if _can_be_hooked(parameter):
                handles.append(_around_accumulation(parameter, arrivals[-1], contents and scale is not None))
        yield
        for one in arrivals:
            one.check()
        if unchanged is not None:
            unchanged.check()
    finally:
        for _, *hooks in handles:
            for hook in hooks:
                hook.remove()
        for one in arrivals:
            one.end()


def _can_be_hooked(parameter: "torch.Tensor") -> bool:
    """A frozen one with a gradient too: the function may train it. Not one that has no shape yet, nor one that is made
    in inference mode: autograd knows nothing of these."""
    import torch

    trained = parameter.requires_grad or parameter.grad is not None
    return trained and not torch.nn.parameter.is_lazy(parameter) and not parameter.is_inference()


def _around_accumulation(parameter: "torch.Tensor", arrivals: _Arrivals, contents: bool) -> list[typing.Any]:
    """The node, which the parameter does not keep alive, and the hooks' handles."""
    import torch
    from torch.autograd.graph import get_gradient_edge

    is_frozen = not parameter.requires_grad
    with torch.inference_mode(False):
        if is_frozen:
            parameter.requires_grad_(True)
        node = get_gradient_edge(parameter).node
        if is_frozen:
            parameter.requires_grad_(False)
    return [node, node.register_prehook(arrivals), *([node.register_hook(arrivals.arrived)] if contents else [])]


def scale_new(parameters: typing.Iterable["torch.Tensor"], scale: float) -> None:
    """The gradients of parameters that came to be in a piece: no hook was there, and nothing is from before."""
    import torch

    with torch.no_grad():
        for parameter in parameters:
            if scale == 0:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.mul_(scale)


def wait_for_autograd(devices: typing.Iterable["torch.device"]) -> None:
    """Runs an empty backward pass on each device's autograd thread, which has then finished what it was at.

    Nothing is allocated: the tensors have no elements.
    """
    import torch

    for device in devices:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = torch.empty(0, device=device, requires_grad=True)
            output = leaf.view(0, 1)
            torch.autograd.grad([output], [leaf], [output.detach()])
