"""What counts as running out of memory, and how its exception lets go of the failed work's tensors."""
import builtins
import sys
import textwrap
import traceback
import typing

# Libraries say it in their own words where PyTorch passes these on; an error of PyTorch's own has a class.
_TEXTS = (
    "out of memory",  # CUDA, HIP, XPU and MPS; NCCL's and the runtime's "CUDA error: out of memory" too
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",  # no room for the handle's workspace
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_NOT_SUPPORTED",  # no algorithm that fits
    "CUFFT_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "DefaultCPUAllocator: can't allocate memory",
    "MODULE:PT_DEVMEM Allocation failed",  # HPU
)
_GROUP = getattr(builtins, "BaseExceptionGroup", ())  # of Python 3.11


def causes(error: BaseException,
           outer: typing.Optional[BaseException] = None) -> typing.Iterator[BaseException]:
    """The exception, what it was raised from or while handling, and the members of groups; each once. `outer` and what
    is reached through it alone are left out."""
    seen = {id(outer)}
    waiting: list[typing.Optional[BaseException]] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting.append(one.__cause__)
        if not one.__suppress_context__:
            waiting.append(one.__context__)
        if isinstance(one, _GROUP):
            waiting.extend(one.exceptions)


def _says_so(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS)


def is_out_of_memory(error: BaseException, outer: typing.Optional[BaseException] = None) -> bool:
    """Whether the exception, or one that it was raised from or while handling, says that memory ran out.

    outer  the exception that was handled (`sys.exc_info()[1]`) before the work began in which `error` was raised.
           Python makes it the context of all that are raised meanwhile, and it says nothing of this work.

    Thread-safe. Imports nothing: without PyTorch in the process only the texts decide.
    """
    return any(_says_so(one) for one in causes(error, outer))


def release_tensors(error: BaseException) -> None:
    """Clears the local variables of all functions that the exception left: they keep the failed work's tensors alive.

    The lines of its traceback stay. Call it outside `except`.
    """
    for one in causes(error):
        traceback.clear_frames(one.__traceback__)


def summary(error: BaseException) -> str:
    """The exception in a line of a log: PyTorch's message goes on with what holds memory."""
    return textwrap.shorten(str(error), 120, placeholder=" ...") or type(error).__name__
