"""Spillway for PyTorch: keeps a training program alive when GPU memory runs out.

    import spillway
    spillway.install()   # before the first use of a CUDA device

makes Spillway PyTorch's CUDA allocator. A failure that Spillway can not serve in place is still raised as
torch.OutOfMemoryError, with a line that says what was tried.
"""
import ctypes
import os
import pathlib

__all__ = ["install"]

_TORCH = (2, 11)


def _library_folder() -> pathlib.Path:
    named = os.environ.get("SPILLWAY_LIBRARIES")
    here = pathlib.Path(__file__).resolve().parent
    folders = [pathlib.Path(named)] if named else [here / "lib", here.parents[1] / "build" / "lib"]
    for folder in folders:
        if (folder / "libspillway.so").exists():
            return folder
    places = " or ".join(str(folder) for folder in folders)
    raise RuntimeError(f"Spillway's libraries are not in {places}: build them, or name their folder in "
                       "SPILLWAY_LIBRARIES")


def install() -> None:
    """Makes Spillway PyTorch's CUDA allocator. Call it before the first use of a CUDA device; again, it does nothing.

    Raises RuntimeError, with what to do, when it can not; PyTorch's own allocator then stays in place.
    """
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version != _TORCH:
        raise RuntimeError(f"this Spillway is for PyTorch {_TORCH[0]}.{_TORCH[1]} and the process runs "
                           f"{torch.__version__}")
    if torch.version.cuda is None:
        raise RuntimeError("this PyTorch is built without CUDA: install a CUDA build")
    library = ctypes.CDLL(str(_library_folder() / "libspillway_torch_2_11.so"))
    library.spillway_torch_error.restype = ctypes.c_char_p
    if library.spillway_torch_install() != 0:
        raise RuntimeError("Spillway is not installed: " + library.spillway_torch_error().decode())
