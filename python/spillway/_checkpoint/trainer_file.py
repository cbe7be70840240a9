"""A checkpoint of spillway-train: a safetensors file of tensors by name, and of texts about the run."""
import collections.abc
import json
import math
import mmap
import os
import pathlib
import typing

import torch

from .._tokens.token_file import partial_of, put_in_place

FORMAT = "spillway-train 3"
CHECKSUMS = "checksums"  # of other bytes than a changed file has; spillway-train takes a file without them
_MOST_HEADER = 100 << 20  # bytes, as the format limits it
_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "U64": torch.uint64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
          "U8": torch.uint8, "BOOL": torch.bool}


class BadCheckpoint(Exception):
    """What is wrong with a checkpoint, and of which file."""


def count_of(text: str) -> typing.Optional[int]:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def rows_of(text: str) -> typing.Optional[int]:
    """Of a step, as the settings have it: "8", "1e+05"."""
    try:
        rows = float(text)
    except ValueError:
        return None
    return int(rows) if rows.is_integer() and 0 < rows < 1 << 53 else None


class TrainerFile(collections.abc.Mapping[str, torch.Tensor]):
    """The tensors of a file by name, in its order, and its `metadata`. A tensor is a view of the file, whose bytes are
    read when they are used; the file must not change meanwhile.

    Errors: BadCheckpoint, OSError.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else b""
        header = self._header()
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        items = {name: self._checked(name, item) for name, item in header.items()}
        items.pop(CHECKSUMS, None)
        self._items = dict(sorted(items.items(), key=lambda item: item[1][2]))  # as they lie in the file
        texts = isinstance(self.metadata, dict) and all(isinstance(text, str) for text in self.metadata.values())
        if not texts or self.metadata.get("format") != FORMAT:
            raise BadCheckpoint(f"{path}: is no checkpoint of this version of spillway-train")

    def __getitem__(self, name: str) -> torch.Tensor:
        kind, shape, begin, end = self._items[name]
        if begin == end:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(self._bytes, dtype=kind, count=(end - begin) // kind.itemsize, offset=begin).view(shape)

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def number(self, key: str) -> int:
        count = count_of(self.metadata.get(key, ""))
        if count is None:
            raise BadCheckpoint(f"{self.path}: its metadata has no number '{key}'")
        return count

    def _header(self) -> dict[str, typing.Any]:
        size = int.from_bytes(self._bytes[:8], "little")
        if len(self._bytes) < 8 or size > min(len(self._bytes) - 8, _MOST_HEADER):
            raise BadCheckpoint(f"{self.path}: is no safetensors file, or was cut off")
        self._data = 8 + size
        try:
            header = json.loads(self._bytes[8:self._data])
        except (ValueError, RecursionError) as error:
            raise BadCheckpoint(f"{self.path}: its header is no JSON: {error}") from None
        if not isinstance(header, dict):
            raise BadCheckpoint(f"{self.path}: its header is no object")
        return header

    def _checked(self, name: str, item: typing.Any) -> tuple[torch.dtype, list[int], int, int]:
        try:
            kind, shape, (begin, end) = _TYPES[item["dtype"]], list(item["shape"]), item["data_offsets"]
            sound = all(type(number) is int and 0 <= number < 1 << 62 for number in (*shape, begin, end)) \
                and end - begin == math.prod(shape) * kind.itemsize and self._data + end <= len(self._bytes)
        except (KeyError, TypeError, ValueError):
            sound = False
        if not sound:
            raise BadCheckpoint(f"{self.path}: tensor '{name}' has a type, a shape or a place that cannot be")
        return kind, shape, self._data + begin, self._data + end


def write(path: pathlib.Path, like: TrainerFile, changed: dict[str, str],
          tensors: typing.Iterable[tuple[str, torch.Tensor]]) -> None:
    """Writes a checkpoint with the names, types and shapes of `like`, its metadata but for `changed`, and the bytes of
    `tensors`, which come in the order of `like`. It takes its place when it is whole. Errors: OSError."""
    header: dict[str, typing.Any] = {"__metadata__": {**like.metadata, **changed}}
    names = {dtype: name for name, dtype in _TYPES.items()}
    end = 0
    for name, tensor in like.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = partial_of(path)
    try:
        with open(partial, "xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, tensor in tensors:
                file.write(memoryview(tensor.contiguous().flatten().view(torch.uint8).numpy()))
            put_in_place(file, partial, path)
    finally:
        partial.unlink(missing_ok=True)
