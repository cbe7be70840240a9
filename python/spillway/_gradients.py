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

from ._models import Unnamed, unknown

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
            known = (None, 0) if gradient is None else (weakref.ref(gradient), gradient._version)
            self._before.append((parameter, *known))

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
                if gradient._version != version:
                    self._check_own(gradient)
                    had[parameter] = max(had.get(parameter, 0), 0) + gradient._version - version
            elif gradient._version == version:
                parameter.grad = gradient
            else:
                raise CannotUndo("a gradient was changed in place and then replaced by another")


    def _check_own(self, gradient: "torch.Tensor") -> None:
        """Tensors that are parts of one have one count of changes."""
        base = gradient._base
        others = (reference() for _, reference, _ in self._before if reference is not None)
        if base is not None and any(one is not None and one is not gradient and one._base is base for one in others):
            raise CannotUndo("gradients are parts of one tensor, and their changes are counted together")


def _content(tensor: typing.Optional["torch.Tensor"]) -> typing.Optional["torch.Tensor"]:
    """A number that another content does not have by chance: the sum of all bits, read as integers."""
    import torch

    if tensor is None:
        return None
    tensor = getattr(tensor, "_local_tensor", tensor).detach()
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
        return None
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.view(integer).sum(dtype=torch.int64)


class Unchanged:
    """What must be as the failed run left it, in the runs of a call that follow, until these come to where that failed:
    the contents of gradients, and the gradients of tensors that are not known."""

    def __init__(self, known: typing.Iterable["torch.Tensor"]) -> None:
        self._known = list(known)
        self._unnamed: typing.Optional[Unnamed] = None
        self._search = True
        self._doubled: typing.Optional[torch.Tensor] = None
        self._before: dict[torch.Tensor, tuple[typing.Any, torch.Tensor]] = {}
        self._then: typing.Optional[dict[torch.Tensor, torch.Tensor]] = None  # when the failed run was overtaken

    def failed(self) -> None:
        """Gradients that are new since then are searched for before the next run."""
        self._search = True

    def begin(self, had: "Had") -> None:
        """`had`: of all parameters. A gradient that the failed run made anew is made anew again."""
        self._compare()  # with what the last run left, if that failed too
        if self._search or self._unnamed is None:
            self._unnamed = Unnamed(self._known)
            self._search = False
        self._unnamed.note()
        self._before = {parameter: (weakref.ref(parameter.grad), content) for parameter, count in had.items()
                        if count >= 0 and (content := _content(parameter.grad)) is not None}
        self._then = None

    def overtaken(self) -> None:
        """Before the first contribution that the failed run did not have. Waits for no device."""
        if self._then is None:
            self._doubled = self._unnamed.changed() if self._unnamed is not None else None
            self._then = self._now()

    def check(self) -> None:
        """After a run that succeeded."""
        self._compare()
        self._before, self._then = {}, None
        if self._unnamed is not None:
            self._unnamed.note()

    def _now(self) -> dict["torch.Tensor", "torch.Tensor"]:
        """Of the gradients that are still there: the function may drop them itself."""
        return {parameter: content for parameter, (gradient, _) in self._before.items()
                if gradient() is parameter.grad and (content := _content(parameter.grad)) is not None}

    def _compare(self) -> None:
        if self._then is None and self._unnamed is not None:
            self._doubled = self._unnamed.changed()
        if self._doubled is not None:
            raise unknown(self._doubled)
        then = self._now() if self._then is None else self._then
        for parameter, content in then.items():
            if content.item() != self._before[parameter][1].item():
                raise _changed(parameter)


def _changed(parameter: "torch.Tensor") -> RuntimeError:
    # Without the words by which a shortage is known.
    return RuntimeError("spillway.step: something else than the backward pass changed the gradient of a parameter of "
                        f"shape {list(parameter.shape)}, in a call that is redone or split. That cannot be repeated. "
                        "Call zero_grad() before the function that is redone, and clip, scale and unscale gradients "
                        "after it, not inside. Gradients are incomplete now: call zero_grad() before training goes on")


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
        self._version = 0 if gradient is None else gradient._version

    def __call__(self, gradients: tuple["torch.Tensor", ...]) -> typing.Optional[tuple]:
        import torch

        self._seen += 1
        if self._passed == 0 and (self._piece or self._seen <= self._drop) and not self._is_as_before():
            raise _changed(self._parameter)
        if self._gone is not None and self._parameter.grad is self._gone:
            raise _changed(self._parameter)
        if self._unchanged is not None and self._seen > self._drop:
            self._unchanged.overtaken()
        if self._seen <= self._drop or self._scale == 0 or gradients[0] is None:
            return (None,)  # a scale of 0: rows without targets, whose mean is no number
        self._passed += 1
        self._replaces |= torch.is_grad_enabled() or gradients[0].is_sparse
        return None if self._scale == 1 else (gradients[0] * self._scale,)

    def arrived(self, *_: typing.Any) -> None:
        self._content = _content(self._parameter.grad)

    def _is_as_before(self) -> bool:
        gradient = self._parameter.grad
        if self._before is None:
            return gradient is None
        return gradient is self._before() and gradient is not None and gradient._version == self._version

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
            wrong = gradient._version != self._version + self._passed
        else:
            wrong = not self._replaces
        if self._content is not None and gradient is not None:
            wrong = wrong or self._content.item() != _content(gradient).item()
        if wrong:
            raise _changed(self._parameter)

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
    chosen = {one: had.get(one, 0) for one in parameters if one.requires_grad}
    chosen.update(had)
    if unchanged is not None:
        unchanged.begin(chosen)
    arrivals: list[_Arrivals] = []
    handles: list[typing.Any] = []
    try:
        for parameter, count in chosen.items():
            arrivals.append(_Arrivals(parameter, count, 1.0 if scale is None else scale, scale is not None, unchanged))
            if parameter.requires_grad:
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


def _around_accumulation(parameter: "torch.Tensor", arrivals: _Arrivals, contents: bool) -> list[typing.Any]:
    """The node, which the parameter does not keep alive, and the hooks' handles."""
    from torch.autograd.graph import get_gradient_edge

    node = get_gradient_edge(parameter).node
    return [node, node.register_prehook(arrivals), *([node.register_hook(arrivals.arrived)] if contents else [])]


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
