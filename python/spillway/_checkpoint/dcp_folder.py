"""Folders of torch.distributed.checkpoint, written and read by one process without a process group.

Its index is a pickle, which runs what it says when it is read: that is how PyTorch made it. Only folders of somebody
who is trusted are to be read.
"""
import contextlib
import os
import pathlib
import shutil
import typing
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from .._tokens.token_file import partial_of
from .trainer_file import BadCheckpoint

_EXACT = {(torch.bfloat16, torch.float32), (torch.float16, torch.float32)}  # conversions that lose nothing


@contextlib.contextmanager
def _alone() -> typing.Iterator[None]:
    """PyTorch warns of one process without a group, which is meant here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def save(state: dict[str, torch.Tensor], folder: pathlib.Path) -> None:
    """The folder, which must not exist, appears whole or not at all. Errors: BadCheckpoint, OSError."""
    if folder.exists():
        raise BadCheckpoint(f"{folder}: is there already")
    partial = partial_of(folder)
    try:
        with _alone():
            dcp.save(state, checkpoint_id=partial, no_dist=True)
        os.rename(partial, folder)
    except CheckpointException as error:
        raise BadCheckpoint(f"{folder}: cannot be written: {_summary(error)}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class Folder:
    """What has been saved, by its keys. Errors: BadCheckpoint."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            self._stored = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
        except Exception as error:  # a damaged pickle may raise anything
            raise BadCheckpoint(f"{path}: no folder that torch.distributed.checkpoint has written: {error}") from None

    def weights(self, prefix: str) -> list[str]:
        """The keys of matrices' and norms' weights below a prefix, as PyTorch's modules name them."""
        return [key for key in self._stored if key.startswith(prefix) and key.endswith(".weight")]

    def __contains__(self, key: str) -> bool:
        return key in self._stored

    def check(self, key: str, wanted: torch.Tensor) -> None:
        """That the tensor under this key can stand for this one."""
        stored = self._stored[key]
        shape, kind = getattr(stored, "size", None), getattr(getattr(stored, "properties", None), "dtype", None)
        if shape is None or kind is None:
            raise BadCheckpoint(f"{self.path}: '{key}' is no tensor")
        if list(shape) != list(wanted.shape):
            raise BadCheckpoint(f"{self.path}: '{key}' is {list(shape)}, not {list(wanted.shape)}")
        if kind != wanted.dtype and (kind, wanted.dtype) not in _EXACT:
            raise BadCheckpoint(f"{self.path}: '{key}' is {kind}, not {wanted.dtype}")

    def tensors(self, keys: list[str]) -> list[torch.Tensor]:
        """Whole, on the CPU, with the types that they are stored with. REQUIRES: `check` has passed each."""
        state = {key: torch.empty(self._stored[key].size, dtype=self._stored[key].properties.dtype) for key in keys}
        try:
            with _alone():
                dcp.load(state, checkpoint_id=self.path, no_dist=True)
        except (CheckpointException, Exception) as error:  # the first, which is no Exception, has a reader's error
            raise BadCheckpoint(f"{self.path}: cannot be read: {_summary(error)}") from None
        return [state[key] for key in keys]


def _summary(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
