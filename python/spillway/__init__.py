"""Spillway for PyTorch: keeps a training program alive when GPU memory runs out.

    import spillway
    spillway.install()   # before the first use of a CUDA device

makes Spillway PyTorch's CUDA allocator. A failure that Spillway cannot serve in place is still raised as
torch.OutOfMemoryError, with a line that says what was tried. Where Spillway is not built for the PyTorch in the
process, install() says so, and install_plugin() does what every version allows.
"""
import ctypes
import os
import pathlib
import types
import typing

from ._batch_size import find_executable_batch_size
from ._out_of_memory import is_out_of_memory
from ._ranks.errors import RanksStopped
from ._step import step

__all__ = ["RanksStopped", "core", "find_executable_batch_size", "install", "install_plugin", "is_out_of_memory",
           "step"]

_SETTERS = {  # of CUDAPluggableAllocator: the name of Spillway's function, after "spillway_plugin_"
    "set_init_fn": "init",
    "set_reset_fn": "reset",
    "set_memory_fraction_fn": "memory_fraction",
    "set_base_alloc_fn": "base_alloc",
    "set_record_stream_fn": "record_stream",
    "set_begin_allocate_to_pool": "begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "end_allocate_to_pool",
    "set_release_pool": "release_pool",
}
_installed: typing.Optional[str] = None  # "shim" or "plugin"


def _library_folder() -> pathlib.Path:
    named = os.environ.get("SPILLWAY_LIBRARIES")
    here = pathlib.Path(__file__).resolve().parent
    # Of a wheel; of an installed tree, whose module lies in lib/spillway/python; of a source tree.
    folders = [here / "lib", here.parents[1], here.parents[1] / "build" / "lib"]
    if named:
        folders = [pathlib.Path(named)]
    for folder in folders:
        if (folder / "libspillway_plugin.so").exists():
            return folder
    places = " or ".join(str(folder) for folder in folders)
    raise RuntimeError(f"Spillway's libraries are not in {places}: install the package again, build the project, or "
                       "name their folder in SPILLWAY_LIBRARIES")


def _plugin_path() -> str:
    return str(_library_folder() / "libspillway_plugin.so")


def core() -> ctypes.CDLL:
    """The functions of include/spillway/spillway.h, those of the one core in this process.

    Register no Python function with it: it may be called inside an allocation, on a thread that holds locks and not the
    interpreter's. A plan move without functions (spillway_strategy) is what Python registers.
    Raises RuntimeError where Spillway's libraries are not found.
    """
    library = ctypes.CDLL(str(_library_folder() / "libspillway.so"))
    library.spillway_last_error.restype = library.spillway_trace_path.restype = ctypes.c_char_p
    library.spillway_chosen_move.restype = ctypes.c_uint64
    return library


def _torch_with_cuda() -> types.ModuleType:
    import torch

    if torch.version.cuda is None:
        raise RuntimeError("this PyTorch is built without CUDA: install a CUDA build")
    return torch


def install() -> None:
    """Makes Spillway PyTorch's CUDA allocator. Call it before the first use of a CUDA device; again, it does nothing.

    Raises RuntimeError, with what to do, when it cannot; PyTorch's own allocator then stays in place.
    """
    global _installed
    _torch_with_cuda()
    library = ctypes.CDLL(_plugin_path())
    library.spillway_install_error.restype = ctypes.c_char_p
    if library.spillway_install() != 0:
        raise RuntimeError("Spillway is not installed: " + library.spillway_install_error().decode())
    _installed = "shim"


def install_plugin() -> None:
    """Makes Spillway the CUDA allocator of any version of PyTorch, through torch.cuda.memory.CUDAPluggableAllocator.

    Call it before the first use of a CUDA device; again, it does nothing. Prefer install(): under the plug-in PyTorch
    has no memory statistics, snapshots, history, memory pools or sharing between processes, whoever provides it.
    Raises RuntimeError when it cannot; PyTorch's own allocator then stays in place.
    """
    global _installed
    if _installed is not None:
        if _installed == "shim":
            raise RuntimeError("Spillway is installed already, by spillway.install(): the plug-in adds nothing to it")
        return
    torch = _torch_with_cuda()
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA is already initialised: call spillway.install_plugin() before the first use of a CUDA "
                           "device")
    path = _plugin_path()
    plugin = torch.cuda.memory.CUDAPluggableAllocator(path, "spillway_plugin_allocate", "spillway_plugin_free")
    library = ctypes.CDLL(path)
    allocator = plugin.allocator()
    for setter, name in _SETTERS.items():
        if hasattr(allocator, setter):  # an older PyTorch has fewer
            function = getattr(library, f"spillway_plugin_{name}")
            getattr(allocator, setter)(ctypes.cast(function, ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(plugin)
    # Tensors that outlive the interpreter are freed through it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(allocator))
    _installed = "plugin"
