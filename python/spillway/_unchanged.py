"""What must be as a failed run left it until the next comes to where that failed: changes before may be made twice."""
import threading
import typing
import weakref

from ._models import Unnamed, unknown

if typing.TYPE_CHECKING:
    import torch

    Had = dict[torch.Tensor, int]  # contributions of the micro-batch, or what _gradients says instead


def content(tensor: typing.Optional["torch.Tensor"]) -> typing.Optional["torch.Tensor"]:
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

    def __init__(self) -> None:
        self._known: list[torch.Tensor] = []
        self._unnamed: typing.Optional[Unnamed] = None
        self._search = True
        # Autograd has a thread for each device. That of one must not go on while another's still looks: it would look
        # at what the first has added. Reentrant, because looking may run the program's own functions.
        self._looks = threading.RLock()
        self._doubled: typing.Optional[torch.Tensor] = None
        self._before: dict[torch.Tensor, tuple[typing.Any, torch.Tensor]] = {}
        self._then: typing.Optional[dict[torch.Tensor, torch.Tensor]] = None  # when the failed run was overtaken

    def failed(self, known: typing.Iterable["torch.Tensor"]) -> None:
        """Other tensors that have a gradient then are searched for before the next run."""
        self._known, self._search = list(known), True

    def begin(self, had: "Had") -> None:
        """`had`: of all parameters. A gradient that the failed run made anew is made anew again."""
        self._compare()  # with what the last run left, if that failed too
        if self._search or self._unnamed is None:
            self._unnamed = Unnamed(self._known)
            self._search = False
        self._unnamed.note()
        self._before = {parameter: (weakref.ref(parameter.grad), bits) for parameter, count in had.items()
                        if count >= 0 and (bits := content(parameter.grad)) is not None}
        self._then = None

    def overtaken(self) -> None:
        """Before the first contribution that the failed run did not have. Waits for no device."""
        with self._looks:
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
        return {parameter: bits for parameter, (gradient, _) in self._before.items()
                if gradient() is parameter.grad and (bits := content(parameter.grad)) is not None}

    def _compare(self) -> None:
        if self._then is None and self._unnamed is not None:
            self._doubled = self._unnamed.changed()
        if self._doubled is not None:
            raise unknown(self._doubled)
        then = self._now() if self._then is None else self._then
        for parameter, bits in then.items():
            if bits.item() != self._before[parameter][1].item():
                raise changed(parameter)


def changed(parameter: "torch.Tensor") -> RuntimeError:
    # Without the words by which a shortage is known.
    return RuntimeError("spillway.step: something else than the backward pass changed the gradient of a parameter of "
                        f"shape {list(parameter.shape)}, in a call that is redone or split. That cannot be repeated. "
                        "Call zero_grad() before the function that is redone, and clip, scale and unscale gradients "
                        "after it, not inside. Gradients are incomplete now: call zero_grad() before training goes on")
