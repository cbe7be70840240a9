"""fully_shard (FSDP2): forward and backward gather parameters and scatter gradients, and every rank takes part in each.

A rank that runs out of memory leaves the others in such a collective. It therefore first takes part in what is left of
them, with its parameters and with gradients of zero, so that the others come to the end of their call. Then all ranks
agree, drop what they have, and make the call again.

Which collectives are left is known from the last call. Where nothing is known yet, as in a first call, each rank writes
into the store what it is about to do, and the failed one reads it there.
"""
import json
import time
import typing

from .alone import Alone
from .control import Control, Turn
from .known import Known, Step

if typing.TYPE_CHECKING:
    import torch

_POLL = 0.002  # seconds


def obstacle(groups: list[typing.Any], parameters: list["torch.Tensor"]) -> typing.Optional[str]:
    """Why a failed rank could not take part in the collectives that are left, or not with the same gradients."""
    from torch.distributed.fsdp._fully_shard import _fsdp_common

    for group in groups:
        if not hasattr(group, "_all_gather_comm"):
            return "fully_shard of a PyTorch before 2.9"
        if type(group.mesh_info) is not _fsdp_common.FSDPMeshInfo:
            return "fully_shard over a mesh that replicates"
        if group._use_post_forward_mesh:
            return "fully_shard with reshard_after_forward to a smaller group"
        if not group.reduce_grads or not group.reshard_after_backward:
            return "fully_shard without gradient synchronization, or without resharding after backward"
        if any(one.is_dtensor for one in group.fsdp_params):
            return "fully_shard together with tensor parallelism"
        if group._all_reduce_hook is not None:
            return "fully_shard with an all-reduce hook"
        if any(leaf.grad is not None for leaf in _leaves(group)):
            return "fully_shard with gradients that have not been reduced yet"
    if len({group.mesh_info.shard_process_group for group in groups}) > 1:
        return "fully_shard over several process groups"
    # Gradients of others are neither put aside in a redo nor weighed in pieces, which is done to what is scattered.
    own = {id(one) for group in groups for one in (*_shards(group), *_leaves(group))}
    if any(one.requires_grad and id(one) not in own for one in parameters):
        return "fully_shard beside parameters that it does not shard"
    return None


def ranks_of(group: typing.Any) -> list[int]:
    """All ranks of the mesh, in the dimensions that replicate or cut its parameters too."""
    meshes = [group.mesh_info.mesh, *(one._spmd_mesh for one in group.fsdp_params if one.is_dtensor)]
    return list(max((one.mesh.flatten().tolist() for one in meshes), key=len))


def _shards(group: typing.Any) -> list["torch.Tensor"]:
    return [one.sharded_param for one in group.fsdp_params]


def shards_of(module: "torch.nn.Module") -> list["torch.Tensor"]:
    """Those of its own state and of its submodules', which are no parameters of these while they are gathered."""
    states = [one._get_fsdp_state() for one in module.modules() if hasattr(type(one), "set_requires_gradient_sync")]
    return [shard for state in states for group in groups_of(state) for shard in _shards(group)]


def _leaves(group: typing.Any) -> list["torch.Tensor"]:
    leaves = [getattr(one, "_unsharded_param", None) for one in group.fsdp_params]
    return [one for one in leaves if one is not None]


class Uncertain(Exception):
    """Nobody knows what the others have before them: a collective itself ran out of memory, or the call is another one
    than the last of this model."""


class Sharded:
    """The modules of one call; `roots` are FSDP's states that are no part of another one's modules."""

    def __init__(self, roots: list[typing.Any], memory: Known, weight: float = 1.0) -> None:
        self._roots, self._memory = roots, memory
        for root in roots:
            root._lazy_init()
        states = [state for root in roots for state in root._state_ctx.all_states]
        self.groups = [group for state in states for group in groups_of(state)]
        self._known = memory.of(roots, self.groups)
        self.weight = weight  # what a piece's gradients are multiplied by
        self._done: list[Step] = []  # of the attempt
        self._begun = 0  # where the piece began
        self._key = ""
        self._control: typing.Optional[Control] = None
        self._draining = self._uncertain = False
        self._comms: list[tuple[typing.Any, typing.Any, typing.Any]] = []

    @property
    def process_group(self) -> "torch.distributed.ProcessGroup":
        return self.groups[0].mesh_info.shard_process_group

    def __enter__(self) -> "Sharded":
        for index, group in enumerate(self.groups):
            group.reshard()  # an evaluation leaves the root's parameters gathered
            self._comms.append((group, group._all_gather_comm, group._reduce_scatter_comm))
            group._all_gather_comm = _Gather(self, index, group._all_gather_comm)
            group._reduce_scatter_comm = _Scatter(self, index, group._reduce_scatter_comm)
        return self

    def __exit__(self, *_: object) -> None:
        for group, gather, scatter in self._comms:
            group._all_gather_comm, group._reduce_scatter_comm = gather, scatter

    def begin_attempt(self, turn: typing.Union[Turn, Alone]) -> None:
        self._done, self._begun = [], 0
        self._key, self._control = turn.key, turn.control

    def begin_piece(self, weight: float) -> None:
        self._begun, self.weight = len(self._done), weight

    def learn(self) -> None:
        """The collectives of the piece that has just ended are those of the next call."""
        self._memory.learn(self._roots, self.groups, self._done[self._begun:])

    def note(self, step: Step) -> None:
        """Before each collective."""
        if self._draining:
            return
        self._moved()
        if self._known is None and self._control is not None:
            self._control.show(f"{self._key}/step/{len(self._done)}", json.dumps(step))
        expected = len(self._done) - self._begun
        if self._known is not None and self._known[expected:expected + 1] != [step]:
            self._uncertain = True
        self._done.append(step)

    def _moved(self, count: int = 1) -> None:
        if self._control is not None:
            self._control.watch.moved(count)

    def failed_inside(self) -> None:
        self._uncertain = True

    def reset(self) -> None:
        """Brings FSDP back to where a forward may begin, after a call that has failed."""
        for root in self._roots:
            if hasattr(root, "_reset_iter_state"):
                root._reset_iter_state()
            else:
                _reset_state(root)
        for group in self.groups:
            _drop_gradients(group)

    def drain(self, pieces_after: int) -> None:
        """Takes part in the collectives that the others still have before them in this attempt."""
        if self._control is None:
            return
        if self._uncertain:
            raise Uncertain
        self._draining = True
        try:
            if self._known is not None:
                for step in [*self._known[len(self._done) - self._begun:], *self._known * pieces_after]:
                    self._moved()
                    self._take_part(step)
            else:
                self._drain_as_shown()
        finally:
            self._draining = False

    def _drain_as_shown(self) -> None:
        """Until all ranks have ended the attempt: a rank whose call is done has shown all of its steps before."""
        assert self._control is not None
        position, control = len(self._done), self._control
        ended = f"{self._key}/ended"
        control.add(ended, 1)
        self._moved()  # it waits for the next one already
        while True:
            everyone = control.add(ended, 0) == len(control.ranks)
            shown = control.shown(f"{self._key}/step/{position}")
            if shown is not None:
                self._take_part(tuple(json.loads(shown)))
                self._moved()
                position += 1
            elif everyone:
                return self._moved(-1)
            else:
                control.check()
                time.sleep(_POLL)

    def end_attempt(self) -> None:
        """Of a rank that has come to the end of its call."""
        if self._known is None and self._control is not None:
            self._control.add(f"{self._key}/ended", 1)

    def forget_shown(self) -> None:
        """After all have met."""
        if self._known is None and self._control is not None and self._control.index == 0:
            for position in range(len(self._done)):
                self._control.forget(f"{self._key}/step/{position}")
            self._control.forget(f"{self._key}/ended")

    def _take_part(self, step: Step) -> None:
        import torch
        import torch.distributed as dist

        group = self.groups[step[1]]
        if step[0] == "gather":
            group.unshard()
            result, group._all_gather_result = group._all_gather_result, None
            if result.all_gather_event is not None:
                group.device_handle.current_stream().wait_event(result.all_gather_event)
            if isinstance(result.all_gather_work, dist.Work):
                result.all_gather_work.wait()
            return
        _, _, numbers, kind, operation = step
        zeros = torch.zeros(numbers, dtype=getattr(torch, kind), device=group.device)
        part = torch.empty(numbers // self.process_group.size(), dtype=zeros.dtype, device=group.device)
        work = group._reduce_scatter_comm(output_tensor=part, input_tensor=zeros, op=getattr(dist.ReduceOp, operation),
                                          group=group._reduce_scatter_process_group)
        if isinstance(work, dist.Work):
            work.wait()


class _Gather:
    """Stands before FSDP's all-gather."""

    def __init__(self, owner: Sharded, index: int, comm: typing.Any) -> None:
        self._owner, self._index, self._comm = owner, index, comm
        self.allocate = comm.allocate

    def __call__(self, output_tensor, input_tensor, group, async_op=False):  # type: ignore[no-untyped-def]
        self._owner.note(("gather", self._index))
        try:
            return self._comm(output_tensor=output_tensor, input_tensor=input_tensor, group=group, async_op=async_op)
        except BaseException:
            self._owner.failed_inside()
            raise


class _Scatter:
    """Stands before FSDP's reduce-scatter, and weighs a piece's gradients."""

    def __init__(self, owner: Sharded, index: int, comm: typing.Any) -> None:
        self._owner, self._index, self._comm = owner, index, comm
        self.allocate = comm.allocate

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):  # type: ignore[no-untyped-def]
        import torch.distributed as dist

        name = next((one for one in ("AVG", "SUM") if op == getattr(dist.ReduceOp, one)), None)
        if name is None:
            self._owner.failed_inside()  # an operation with a factor, which the store cannot carry
        kind = str(input_tensor.dtype).removeprefix("torch.")
        self._owner.note(("scatter", self._index, input_tensor.numel(), kind, name))
        if self._owner.weight == 0:
            input_tensor.zero_()  # rows without targets, whose mean is no number
        elif self._owner.weight != 1:
            input_tensor.mul_(self._owner.weight)
        try:
            return self._comm(output_tensor=output_tensor, input_tensor=input_tensor, group=group, op=op,
                              async_op=async_op)
        except BaseException:
            self._owner.failed_inside()
            raise


def groups_of(state: typing.Any) -> list[typing.Any]:
    """A state has one group of parameters, or from PyTorch 2.12 on several."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def _reset_state(root: typing.Any) -> None:
    """FSDPModule.reset_iter_state of later versions of PyTorch."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

    common = root._comm_ctx
    stream = root._device_handle.current_stream()
    has_several = hasattr(common, "reduce_scatter_states")  # since PyTorch 2.12
    scatters = common.reduce_scatter_states if has_several else [common.reduce_scatter_state]
    for held in (common.all_gather_state, *scatters):
        if held is not None and held.event is not None:
            stream.wait_event(held.event)
    common.all_gather_state = None
    if has_several:
        common.reduce_scatter_states.clear()
    else:
        common.reduce_scatter_state = None
    common.post_forward_order.clear()
    for state in root._state_ctx.all_states:
        state._modules_to_run_forward.clear()
        state._training_state = TrainingState.IDLE
        for group in groups_of(state):
            group.finalize_backward()  # waits for what is under way
            group._reshard_after_forward_event = None
            group._training_state = TrainingState.IDLE
            group._to_sharded()
    root._state_ctx.iter_forward_root = None
    root._state_ctx.post_backward_final_callback_queued = False


def _drop_gradients(group: typing.Any) -> None:
    """Those of the failed backward. reset_iter_state of PyTorch 2.14 leaves them, and they would count twice."""
    for one in group.fsdp_params:
        one.sharded_param.grad = None
        if "unsharded_accumulated_grad" in vars(one):  # until PyTorch 2.14; later it is the leaf's
            one.unsharded_accumulated_grad = None
    for leaf in _leaves(group):
        leaf.grad = None
