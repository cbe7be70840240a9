"""One call of a function that several ranks make together: done by all of them, or by none."""
import logging
import typing

from .._containers import ContainersBefore
from .._gradients import CannotUndo, wait_for_autograd
from .._out_of_memory import is_out_of_memory, release_tensors, summary
from .._pieces import rows_of
from .._undo import Undo
from . import data_parallel, sharded
from .alone import Alone
from .control import Turn, control_of, new_number, note
from .errors import RanksStopped
from .known import Known

if typing.TYPE_CHECKING:
    import torch

    from .._recovery import Recovery, _Call

    AnyTurn = typing.Union[Turn, Alone]

log = logging.getLogger("spillway")
_NOBODY = ("spillway.step: incident %s: no rank has made this step. All ranks stop at this call: call zero_grad() "
           "before training goes on")


def run(owner: "Recovery", call: "_Call") -> typing.Any:
    """The call's result, whether other ranks take part in it or not."""
    import torch

    modules = call.modules
    replicas = [one for one in modules if _is_replica(one)]
    states = _states(modules)
    others = [one for one in modules if type(one).__name__ == "FullyShardedDataParallel"]
    ranks = _ranks_of(replicas, states, others)
    if ranks is None or (len(ranks) == 1 and not torch.is_grad_enabled()):
        return call.run()
    owner.known = owner.known or Known()
    with _turn_of(owner, ranks) as turn:
        why = _obstacle(call, replicas, states, others)
        if why is not None:
            result = _run_once(call, turn, why)
        elif states:
            result = _Sharded(owner, call, turn, _roots(modules, states)).run()
        else:
            result = _run_replicas(call, turn, data_parallel.DataParallel(replicas))
        turn.done(call.devices)
        return result


def _turn_of(owner: "Recovery", ranks: tuple[int, ...]) -> "AnyTurn":
    return Alone() if len(ranks) == 1 else Turn(control_of(ranks, owner.ranks_bound), owner.name)


def _is_replica(module: "torch.nn.Module") -> bool:
    """A DDP module whose backward pass waits for other ranks now."""
    import torch

    return (isinstance(module, torch.nn.parallel.DistributedDataParallel) and module.require_backward_grad_sync
            and torch.is_grad_enabled())


def _states(modules: list["torch.nn.Module"]) -> list[tuple["torch.nn.Module", typing.Any]]:
    found = [(one, one._get_fsdp_state()) for one in modules if hasattr(one, "set_requires_gradient_sync")]
    return found


def _roots(modules: list["torch.nn.Module"], states: list[tuple["torch.nn.Module", typing.Any]]) -> list[typing.Any]:
    """The states of modules that are no part of another one's."""
    inner = {id(part) for module, _ in states for part in module.modules() if part is not module}
    roots: dict[int, typing.Any] = {id(state): state for module, state in states if id(module) not in inner}
    return list(roots.values())


def _ranks_of(replicas: list[typing.Any], states: list[tuple[typing.Any, typing.Any]],
              others: list[typing.Any]) -> typing.Optional[tuple[int, ...]]:
    """All that this rank's failure can hold up, itself too; None where no module has a process group, or where the
    ranks are not there at all."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_backend() == "fake":
        return None
    groups = [one.process_group for one in (*replicas, *others)]
    groups += [one._inter_node_pg for one in others if getattr(one, "_inter_node_pg", None) is not None]
    parts = [set(dist.get_process_group_ranks(one)) for one in groups]
    parts += [set(sharded.ranks_of(one)) for _, state in states for one in sharded.groups_of(state)]
    most = max(parts, key=len, default=set())
    if any(not part <= most for part in parts):
        most = set(range(dist.get_world_size()))  # groups that cross
    return tuple(sorted(most)) if most else None


def _obstacle(call: "_Call", replicas: list[typing.Any], states: list[tuple[typing.Any, typing.Any]],
              others: list[typing.Any]) -> typing.Optional[str]:
    import torch
    import torch.distributed as dist

    if others:
        return "FullyShardedDataParallel (use fully_shard)"
    if any(_exchanges_statistics(one) for one in call.modules):
        return "SyncBatchNorm"
    if replicas and states:
        return "DDP together with fully_shard"
    if states:
        if not torch.is_grad_enabled():
            return "fully_shard without gradients"
        return sharded.obstacle([group for _, state in states for group in sharded.groups_of(state)], call.parameters)
    if len({tuple(dist.get_process_group_ranks(one.process_group)) for one in replicas}) > 1:
        return "DDP modules of several process groups"
    return next((why for one in replicas if (why := data_parallel.obstacle(one)) is not None), None)


def _exchanges_statistics(module: "torch.nn.Module") -> bool:
    import torch
    import torch.distributed as dist

    return (isinstance(module, torch.nn.SyncBatchNorm) and module.training
            and dist.get_world_size(module.process_group) > 1)


def _run_once(call: "_Call", turn: "AnyTurn", why: str) -> typing.Any:
    """Where a rank cannot redo alone: its failure ends the call of all ranks."""
    turn.collective()
    call.why_not = why
    result = call.run()
    turn.meet()
    return result


def _run_replicas(call: "_Call", turn: "AnyTurn", replicas: data_parallel.DataParallel) -> typing.Any:
    failure: typing.Optional[BaseException] = None
    result = None
    try:
        turn.collective()
        replicas.begin()
        turn.collective(False)
        try:
            result = call.run()
            replicas.check()
        except Exception as error:
            failure = error
    finally:
        replicas.end()
    _stop_if_any(turn, turn.meet(_said(turn, call, failure)), failure)
    turn.collective()
    replicas.reduce()
    turn.check()
    return result


def _said(turn: "AnyTurn", call: "_Call", failure: typing.Optional[BaseException], **more: typing.Any) -> typing.Any:
    if failure is None:
        return None
    what = "ran out of memory" if is_out_of_memory(failure, call.outer) else f"ended by {type(failure).__name__}"
    return {"rank": turn.rank, "cause": f"{what}: {summary(failure)}", "number": new_number(), **more}


def _stop_if_any(turn: "AnyTurn", said: list[typing.Any], failure: typing.Optional[BaseException]) -> None:
    """Raises on all ranks where one of them has failed for good: its own error there, RanksStopped elsewhere."""
    if not said:
        return
    turn.agreed = True
    first = min(said, key=lambda one: one["rank"])  # the same on all ranks
    if failure is None:
        raise RanksStopped(first["number"], first["rank"], first["cause"])
    note(failure, _NOBODY % first["number"])
    raise failure


class _Sharded:
    """A call of modules that are sharded: all ranks make it in as many pieces, and again when one has failed."""

    def __init__(self, owner: "Recovery", call: "_Call", turn: "AnyTurn", roots: list[typing.Any]) -> None:
        self._owner, self._call, self._turn = owner, call, turn
        self._shards = sharded.Sharded(roots, owner.known)
        self._rows = rows_of(call.arguments) if owner.split else 0
        self._attempts = 0
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def run(self) -> typing.Any:
        with self._shards:
            pieces = self._pieces_now()
            self._put_gradients_aside()
            undo = Undo(self._call.modules, self._owner.buffers, self._owner.others)
            while True:
                containers = ContainersBefore(self._call.arguments)
                failure = self._attempt(pieces)
                said = self._turn.meet(self._report(failure, pieces))
                self._shards.forget_shown()
                if not said:
                    return self._commit()
                self._drop_gradients()
                pieces = self._agree(said, failure, (containers, undo), pieces)
                self._call.repeated = True

    def _pieces_now(self) -> int:
        """All ranks make as many pieces, of no more rows than have fitted on all; one where nothing has been split yet,
        or where a rank has no rows."""
        if not self._owner.split:
            return 1
        said = self._turn.meet({"rows": self._rows, "most": self._owner.rows})
        rows, limits = [one["rows"] for one in said], [one["most"] for one in said if one["most"]]
        if not limits or min(rows) == 0:
            return 1
        return min(-(-max(rows) // min(limits)), *rows)

    def _put_gradients_aside(self) -> None:
        """What a failed attempt adds cannot be taken back: other ranks' gradients are in it."""
        for parameter in self._parameters():
            if parameter.grad is not None:
                self._before.append((parameter, parameter.grad))
                parameter.grad = None

    def _parameters(self) -> list["torch.Tensor"]:
        return [one for module in self._call.modules for one in module._parameters.values() if one is not None]

    def _drop_gradients(self) -> None:
        for parameter in self._parameters():
            parameter.grad = None

    def _commit(self) -> typing.Any:
        for parameter, before in self._before:
            if parameter.grad is not None:
                _local(before).add_(_local(parameter.grad))
            parameter.grad = before
        self._shards.learn()
        self._owner.buffers.learn()
        return self._call.joined()

    def _attempt(self, pieces: int) -> typing.Optional[BaseException]:
        """None; or why memory ran out, after the others have been helped to the end of theirs."""
        self._attempts += 1
        self._call.forget_results()
        self._shards.begin_attempt(self._turn)
        self._turn.collective()
        edges = [self._rows * i // pieces for i in range(pieces + 1)]
        for number, (first, end) in enumerate(zip(edges, edges[1:])):
            arguments, weight = self._call.arguments, 1.0
            if pieces > 1:
                arguments = self._call.cut(first, end)
                weight = self._call.weight(arguments)
            self._shards.begin_piece(weight)
            failure = self._call.run_piece(arguments, weight)
            if failure is not None:
                self._owner.failures += 1
                release_tensors(failure)
                wait_for_autograd(self._call.devices)
                self._shards.reset()
                self._call.free()
                self._drain(pieces - number - 1, failure)
                return failure
        self._shards.end_attempt()
        return None

    def _drain(self, pieces_after: int, failure: BaseException) -> None:
        try:
            self._shards.drain(pieces_after)
        except sharded.Uncertain:
            raise failure

    def _report(self, failure: typing.Optional[BaseException], pieces: int) -> typing.Any:
        if failure is None:
            return None
        if self._call.has_room(self._attempts, failure):
            then = "redo"
        else:
            then = "split" if self._owner.split and self._rows >= 2 * pieces else "stop"
        return _said(self._turn, self._call, failure, then=then)

    def _agree(self, said: list[typing.Any], failure: typing.Optional[BaseException],
               before: tuple[ContainersBefore, Undo], pieces: int) -> int:
        """How many pieces the next attempt has; raises on all ranks where there is none. All say that they can."""
        stops = [one for one in said if one["then"] == "stop"]
        obstacle = self._restore(*before)
        answers = self._turn.meet({"rank": self._turn.rank, "rows": self._rows, "obstacle": obstacle})
        stops += [{**said[0], "cause": f"{said[0]['cause']}; rank {one['rank']}: {one['obstacle']}"}
                  for one in answers if one["obstacle"] is not None]
        if not stops and any(one["then"] == "split" for one in said):
            wanted = min(2 * pieces, *(one["rows"] for one in answers))
            if wanted <= pieces:
                stops = said
            else:
                pieces, self._attempts = wanted, 0
                self._owner.rows = min(-(-one["rows"] // pieces) for one in answers)
                log.warning("%s: all ranks split into %d pieces, of at most %d rows from now on", self._owner.name,
                            pieces, self._owner.rows)
        if stops:
            for parameter, before in self._before:
                parameter.grad = before
            _stop_if_any(self._turn, stops, failure)
        return pieces

    def _restore(self, containers: ContainersBefore, undo: Undo) -> typing.Optional[str]:
        try:
            containers.restore()
            undo.restore()
            self._call.check()
        except CannotUndo as obstacle:
            return str(obstacle)
        return None


def _local(gradient: "torch.Tensor") -> "torch.Tensor":
    return typing.cast("torch.Tensor", getattr(gradient, "_local_tensor", gradient))
