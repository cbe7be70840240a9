"""A training step that is redone exactly when memory runs out: spillway.step (docs/recovery.md)."""
import functools
import typing

from ._functions import check_callable
from ._models import Models
from ._recovery import Recovery
from ._restored import Restored

Function = typing.TypeVar("Function", bound=typing.Callable[..., typing.Any])
_Count = typing.Optional[typing.Callable[..., float]]
_Restore = typing.Union[object, typing.Iterable[object]]
_MakeRoom = typing.Union[typing.Callable[[], typing.Any], typing.Iterable[typing.Callable[[], typing.Any]]]


@typing.overload
def step(function: Function, *, model: typing.Any = ..., restore: _Restore = ...,
         make_room: _MakeRoom = ..., attempts: int = ..., split: typing.Union[bool, str] = ...,
         count: _Count = ..., ranks_bound: float = ...) -> Function: ...
@typing.overload
def step(*, model: typing.Any = ..., restore: _Restore = ..., make_room: _MakeRoom = ...,
         attempts: int = ..., split: typing.Union[bool, str] = ...,
         count: _Count = ..., ranks_bound: float = ...) -> typing.Callable[[Function], Function]: ...


def step(function=None, *, model=None, restore=(), make_room=(), attempts=4, split=False, count=None, ranks_bound=60.0):
    """Redoes a function when it runs out of memory, so that what it computes is what it would have computed with room.

    The function runs forward and backward of one micro-batch, and nothing that changes weights, gradients, the learning
    rate or counters: zero_grad(), clipping, `scaler.unscale_()`, `optimizer.step()` and the schedule stay outside.
    Before it is called again its exception's tensors are gone, and gradients, random states (Python, NumPy, PyTorch's
    CPU and all CUDA devices), modules' buffers, the lists, dictionaries, sets, deques and bytearrays among the
    arguments and in them, and the objects in `restore` are what they were. Other objects are not: a counter in an
    object of your own counts twice. Gradients are not copied: parameters that have the micro-batch already get no
    second one.

        @spillway.step(model=model)
        def micro_batch(batch):
            loss = model(**batch).loss / accumulation
            loss.backward()
            return loss.detach()

    model      whose gradients the function computes: a module, a tensor, an optimizer, or an iterable or dictionary of
               these (`named_parameters()`, `param_groups`). Modules and optimizers are asked at each call, anything
               else once, here. Buffers are known of modules alone. Left out: the modules among the arguments of each
               call, such as `self`, of which one must have a parameter that requires a gradient.
    restore    an object, or several, with state_dict and load_state_dict (a StatefulDataLoader) or get_state and
               set_state (a torch.Generator) that the function draws from; a GradScaler whose unscale_() it calls. The
               state is copied in each call. Of a module its buffers are put back, and not its parameters.
    make_room  a function without arguments, or several, called in order outside the failed work until one returns
               anything but False, which says that it has nothing to give. The caches are emptied anyway. The first redo
               needs none of them; each further one needs one that gives.
    attempts   most runs of one micro-batch or piece of it.
    split      "mean" (or True): when nothing else helps, the arguments are halved, and again down to one row: every
               tensor and NumPy array that has as many rows as the first tensor (without a tensor, the first array), and
               every list and tuple that has as many parts. In other lists and tuples, in named tuples and in
               dictionaries each part is halved by itself; all else stays whole. A list or tuple of as many parts, each
               of which has as many rows itself, may be either: ValueError, unless earlier pieces have told which.
               Gradients are those of the mean over all rows; "sum": of losses that are sums. The function must return
               None, numbers, tensors or containers of them, with as many parts in each piece. Pieces stay as small for
               later calls: `function.recovery.rows`, None for whole micro-batches again.
    count      of the arguments of a call, how much they weigh in the mean: the number of their targets. Left out: the
               number of rows.
    ranks_bound
               seconds without a sign of life of another rank, or of the store where ranks meet, after which all ranks
               stop. The first call of these ranks says it.

    With DDP and fully_shard all ranks make the call together, or none makes it: docs/recovery.md, "On several ranks".
    DDP reduces gradients after all ranks have theirs; a rank that runs out of memory is redone, and split, alone. Under
    fully_shard all ranks redo the call, in as many pieces. Where that cannot be, and where a rank dies, all stop: by
    spillway.RanksStopped, but for the rank that failed, which raises its own error.

    Guarantee: without `split` bit exact, as far as PyTorch's kernels repeat themselves. A split is numerically equal;
    with dropout its masks are others, and with BatchNorm its statistics are those of the pieces.

    Errors: what is no shortage of memory passes through. When nothing helps the last out-of-memory error is raised;
    then gradients are incomplete, and zero_grad() must come before training goes on, while random states and buffers
    are as before. So it is, without a redo, when something was changed that cannot be put back (logged), and where
    what ranks exchange cannot be repeated (FSDP1, SyncBatchNorm, and others that docs/recovery.md names). RuntimeError
    in a redo or in pieces: the function itself changes gradients, and would have changed them twice, or it adds to
    those of a tensor that is not known; zero_grad() must come here too. TypeError: the function is a generator function
    or async, `model` or `restore` has something else in it, no module is known, or an iterator that is not in `restore`
    is among the arguments, from which a redo would take other data. ValueError: `model` has nothing in it. Nothing is
    redone during a CUDA graph capture. Optimizers that run inside the backward pass cannot be undone.

    Thread-safety: one call at a time of each decorated function, and nothing else may draw random numbers from the
    process's generators meanwhile. Logs to logging.getLogger("spillway").
    """
    model = model if isinstance(model, Models) else Models(model)
    restore = restore if isinstance(restore, Restored) else Restored(restore)
    if function is None:
        return functools.partial(step, model=model, restore=restore, make_room=make_room, attempts=attempts,
                                 split=split, count=count, ranks_bound=ranks_bound)
    check_callable(function, "step")
    recovery = Recovery(function, model, restore, make_room, attempts, split, count, ranks_bound)

    # A plain function, so that it may be a method; frameworks look at its signature.
    @functools.wraps(function, updated=())
    def redone(*args, **kwargs):
        return recovery.run(args, kwargs)

    redone.recovery = recovery
    return redone
