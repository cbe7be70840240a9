"""One call of a function that is redone when memory runs out; what spillway.step keeps about the function."""
import gc
import logging
import sys
import typing

from ._containers import ContainersBefore
from ._functions import name_of
from ._gradients import CannotUndo, GradientsBefore, Unchanged, arriving, scale_new, wait_for_autograd
from ._models import Models
from ._optimizers import watched
from ._out_of_memory import summary, is_out_of_memory, release_tensors
from ._pieces import (Arguments, Cut, check_joinable, check_repeatable, first_with_rows, join, leaves_of, rows_of,
                      tensors_of)
from ._ranks.wrappers import exchanges, has_other_ranks
from ._restored import Restored
from ._undo import Buffers, Undo

if typing.TYPE_CHECKING:
    import torch

    Had = dict[torch.Tensor, int]

log = logging.getLogger("spillway")
_INTERRUPTED = ("spillway.step: some parameters have this micro-batch's gradients and others not: call zero_grad() "
                "before training goes on")

_IN_A_REDO = ("spillway.step: the call was done again because memory ran out. Where the function had changed an object "
              "that was not put back, name that in `restore`, or change it outside the function")


class Recovery:
    """What spillway.step keeps about one function: the attribute `recovery` of the decorated function."""

    def __init__(self, function: typing.Callable[..., typing.Any], models: Models, restore: Restored,
                 make_room: typing.Any, attempts: int, split: typing.Union[bool, str],
                 count: typing.Optional[typing.Callable[..., float]], ranks_bound: float = 60.0) -> None:
        if not isinstance(attempts, int):
            raise TypeError(f"spillway.step: attempts is {attempts!r}, and must be a whole number")
        if attempts < 1:
            raise ValueError(f"spillway.step: attempts is {attempts}, and must be at least 1")
        if split not in (False, True, "mean", "sum"):
            raise ValueError(f"spillway.step: split is {split!r}, and must be False, True, 'mean' or 'sum'")
        if ranks_bound <= 0:
            raise ValueError(f"spillway.step: ranks_bound is {ranks_bound}, and must be above 0")
        self.failures = 0  # runs of this rank that were out of memory
        self.redone = 0  # calls that succeeded after one, of this rank or another
        self.rows: typing.Optional[int] = None  # the largest piece after a split; None: the whole micro-batch
        self._function, self._models = function, models
        self._make_room = _functions_of(make_room)
        self._attempts, self._count = attempts, count
        # For this package.
        self.split, self.others, self.ranks_bound = split, restore, ranks_bound
        self.buffers = Buffers()
        self.cut = Cut()
        self.name = name_of(function)
        self.pieces_known = False  # that the function leaves gradients alone, as it must in pieces
        self.known: typing.Any = None  # the collectives of calls that have succeeded, once there were any
        self._warned_of_steps = self._warned_of_no_rows = False

    def run(self, args: tuple, kwargs: dict) -> typing.Any:
        import torch

        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return self._function(*args, **kwargs)  # what a capture records cannot be redone
        failures = self.failures
        try:
            call = _Call(self, (args, kwargs))
            result = self._done(call)
        finally:
            self.buffers.forget()
        self.redone += self.failures > failures or call.repeated
        return result

    def warn_of_steps(self, optimizer: str) -> None:
        """Once, and at the first call: the failure that would show it may be days away."""
        if not self._warned_of_steps:
            log.warning("%s: an optimizer (%s) steps inside the function: a call that runs out of memory after that is "
                        "not redone. Call step() outside", self.name, optimizer)
        self._warned_of_steps = True

    def warn_of_no_rows(self) -> None:
        """Once, and at the first call, for the same reason."""
        if not self._warned_of_no_rows:
            log.warning("%s: split: no argument is a tensor or an array with rows, so that nothing can be split",
                        self.name)
        self._warned_of_no_rows = True

    def _done(self, call: "_Call") -> typing.Any:
        import torch

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            from ._ranks import redo

            return redo.run(self, call)
        return call.run()


class _Call:
    """One call of the decorated function."""

    def __init__(self, owner: Recovery, arguments: Arguments) -> None:
        self._owner, self.arguments = owner, arguments
        self.outer = sys.exc_info()[1]  # it is the context of what the function raises
        leaves = leaves_of(arguments)
        check_repeatable(owner.name, leaves, owner.others.objects)
        self.modules, self._parameters = owner._models.of(arguments)
        self._add(leaf for leaf in leaves if _is_trained(leaf))
        self.repeated = False  # because of another rank's failure
        self.why_not: typing.Optional[str] = None  # which of the modules' collectives cannot be repeated
        self.devices = {one.device for one in self._parameters if one.is_cuda}
        self._versions = [(tensor, tensor._version) for tensor in tensors_of(leaves) if not tensor.is_inference()]
        counted = first_with_rows(leaves) if owner.split else None
        if owner.split and counted is None:
            owner.warn_of_no_rows()
        self._rows = 0 if counted is None else counted.shape[0]
        self._total = self._amount(arguments) if owner.split else 0.0
        self._redone = False
        self._stepped = ""  # the optimizer that the function let step
        self._unchanged = Unchanged()
        self._weights: list[float] = []
        self._results: list[typing.Any] = []

    def _add(self, tensors: typing.Iterable["torch.Tensor"]) -> list["torch.Tensor"]:
        """Makes those known that are not; which these are."""
        known = set(map(id, self._parameters))
        new = {id(one): one for one in tensors if id(one) not in known}
        self._parameters += new.values()
        return list(new.values())

    @property
    def parameters(self) -> list["torch.Tensor"]:
        """All that are known."""
        return self._parameters

    def _made(self) -> list["torch.Tensor"]:
        """Parameters that the function has made since the models were asked last; known from now on."""
        self.modules, parameters = self._owner._models.now(self.arguments)
        return self._add(parameters)

    def run(self) -> typing.Any:
        self._run_pieces(0, self._rows, {})
        return self.joined()

    def joined(self) -> typing.Any:
        """The result of the pieces, once all of them have been run."""
        self._owner.pieces_known |= len(self._results) > 1
        return self._results[0] if len(self._results) == 1 else join(self._results, self._weights)

    def run_piece(self, arguments: Arguments, weight: float) -> typing.Optional[BaseException]:
        """Runs the function once, with nothing put back; why memory ran out, if it did."""
        try:
            result = self._call_function(arguments)
        except Exception as error:
            if not is_out_of_memory(error, self.outer):
                raise
            return error
        self._keep(result, weight)
        return None

    def _call_function(self, arguments: Arguments) -> typing.Any:
        with watched(self._parameters) as stepped:
            try:
                return self._owner._function(*arguments[0], **arguments[1])
            finally:
                if stepped.name:
                    self._stepped = stepped.name
                    self._owner.warn_of_steps(stepped.name)

    def cut(self, first: int, end: int) -> Arguments:
        try:
            return self._owner.cut(self.arguments, self._rows, first, end)
        except ValueError as error:
            raise _noted(error, _INTERRUPTED)
        except RecursionError:
            raise _noted(ValueError("spillway.step: an argument is a part of itself, and cannot be cut into rows"),
                         _INTERRUPTED)

    def forget_results(self) -> None:
        self._results, self._weights = [], []

    def _run_pieces(self, first: int, end: int, had: "Had") -> None:
        """Runs these rows in pieces that have fitted before; `had`: what a larger piece has accumulated of them."""
        most = self._owner.rows or end - first
        pieces = max(1, -(-(end - first) // max(1, most)))
        edges = [first + (end - first) * i // pieces for i in range(pieces + 1)]
        for start, stop in zip(edges, edges[1:]):
            self._run_rows(start, stop, dict(had))

    def _amount(self, arguments: Arguments) -> float:
        """How much of the mean is due to these rows."""
        if self._owner._count is None:
            return float(rows_of(arguments))
        return float(self._owner._count(*arguments[0], **arguments[1]))

    def weight(self, arguments: Arguments) -> float:
        if self._owner.split == "sum" or not self._total:
            return 1.0
        return self._amount(arguments) / self._total

    def _run_rows(self, first: int, end: int, had: "Had") -> None:
        """Runs these rows at once until that succeeds, or else in smaller pieces."""
        whole = (first, end) == (0, self._rows)
        arguments = self.arguments if whole else self.cut(first, end)
        weight = None if whole else self.weight(arguments)
        undo = Undo(self.modules, self._owner.buffers, self._owner.others)
        attempt = 1
        while (error := self._attempt(arguments, weight, undo, had)) is not None:
            if not self.has_room(attempt, error):
                break
            attempt += 1
        else:
            return
        if not self._owner.split or end - first < 2:
            raise _noted(error, _INTERRUPTED)
        middle = (first + end + 1) // 2
        self._owner.rows = middle - first
        log.warning("%s: split into pieces of %d rows from now on", self._owner.name, self._owner.rows)
        self._run_pieces(first, middle, had)
        self._run_pieces(middle, end, had)

    def _attempt(self, arguments: Arguments, weight: typing.Optional[float], undo: Undo,
                 had: "Had") -> typing.Optional[BaseException]:
        """None, with the result noted; or why memory ran out, with everything put back but for what `had` tells.
        `weight`: that of a piece."""
        gradients, containers = GradientsBefore(self._parameters), ContainersBefore(arguments)
        lazy = [] if weight is None else _lazy(self._parameters)
        failure: typing.Optional[BaseException] = None
        try:
            unchanged = self._unchanged if self._redone else None
            with arriving(self._parameters, had, weight, unchanged, contents=not self._owner.pieces_known):
                result = self._call_function(arguments)
        except Exception as error:
            if not is_out_of_memory(error, self.outer):
                raise _noted(error, _IN_A_REDO) if self._redone else error
            failure = error
        if failure is None:
            if weight is not None:
                scale_new([*lazy, *self._made()], weight)
            self._owner.buffers.learn()
            self._keep(result, 1.0 if weight is None else weight)
            return None
        # Outside `except`, and without the failed function's variables: they would keep its tensors alive.
        self._owner.failures += 1
        gradients.add_new(self._made())
        self._unchanged.failed(self._parameters)
        release_tensors(failure)
        wait_for_autograd(self.devices)
        obstacle = self._take_back(containers, undo, gradients, had)
        if obstacle is not None:
            log.error("%s: %s; not redone: %s", self._owner.name, summary(failure), obstacle)
            raise _noted(_noted(failure, f"spillway.step: not redone: {obstacle}"), _INTERRUPTED)
        return failure

    def _keep(self, result: typing.Any, weight: float) -> None:
        if self._owner.split:
            check_joinable(result)  # at the first call, and not at the first failure
        self._results.append(result)
        self._weights.append(weight)

    def _take_back(self, containers: ContainersBefore, undo: Undo, gradients: GradientsBefore,
                   had: "Had") -> typing.Optional[CannotUndo]:
        """All that can be. What could not be first, if anything."""
        obstacles: list[CannotUndo] = []
        for step in (containers.restore, undo.restore, lambda: gradients.undo(had), self.check,
                     self._check_ranks):
            try:
                step()
            except CannotUndo as obstacle:
                obstacles.append(obstacle)
        return obstacles[0] if obstacles else None

    def check(self) -> None:
        """That the function has changed nothing that stays changed."""
        if self._stepped:
            raise CannotUndo(f"an optimizer ({self._stepped}) began a step inside the function: call step() outside it")
        if any(tensor._version != version for tensor, version in self._versions):
            raise CannotUndo("the function changed a tensor among its arguments in place")

    def _check_ranks(self) -> None:
        """A redo repeats the collectives of the backward pass, which other ranks do not."""
        if self.why_not is not None:
            raise CannotUndo(f"the collectives of its modules cannot be repeated: {self.why_not}")
        if not has_other_ranks():
            return
        wrappers = self._owner._models.wrappers
        wrappers.search()  # one may have been made after the function's first call
        for module in (*self.modules, *wrappers.around(self.modules, self._parameters)):
            if exchanges(module):
                raise CannotUndo(f"the collectives of its modules cannot be repeated: {type(module).__name__}")

    def has_room(self, attempt: int, error: BaseException) -> bool:
        """Frees what can be freed; whether another attempt is worth it. A call's first redo always is: unwinding alone
        frees memory, and what was missing may have been another's."""
        most = self._owner._attempts
        given = attempt < most and (not self._redone or any(_gives(make_room) for make_room in self._owner._make_room))
        self._redone = True
        self.free()
        log.warning("%s: attempt %d of %d%s: %s", self._owner.name, attempt, most,
                    "" if given else ", nothing more can be given", summary(error))
        return given

    def free(self) -> None:
        gc.collect()
        if self.devices:
            import torch

            torch.cuda.empty_cache()


def _functions_of(make_room: typing.Any) -> list[typing.Callable[[], typing.Any]]:
    functions = [make_room] if callable(make_room) or not isinstance(make_room, typing.Iterable) else list(make_room)
    for one in functions:
        if not callable(one):
            raise TypeError(f"spillway.step: make_room has {one!r}, and must be a function without arguments, or "
                            "several")
    return functions


def _is_trained(leaf: typing.Any) -> bool:
    """An argument that gets a gradient of its own, as the inputs of adversarial training do."""
    import torch

    return isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.requires_grad


def _lazy(parameters: list["torch.Tensor"]) -> list["torch.Tensor"]:
    import torch

    return [one for one in parameters if torch.nn.parameter.is_lazy(one)]


def _noted(error: BaseException, text: str) -> BaseException:
    if hasattr(error, "add_note"):  # of Python 3.11
        error.add_note(text)
    return error


def _gives(make_room: typing.Callable[[], typing.Any]) -> bool:
    outer, failure = sys.exc_info()[1], None
    try:
        return make_room() is not False
    except Exception as error:
        if not is_out_of_memory(error, outer):
            raise
        failure = error
    release_tensors(failure)
    log.warning("making room failed: %s", summary(failure))
    return False
