"""Writes tokens as a safetensors file that appears whole or not at all, however long they are."""
import array
import json
import os
import pathlib
import sys
import types
import typing

_HEADER = 1 << 16  # bytes of the header with the spaces behind it: written last, when all is known
_NUMBERS = 256  # bytes of it for what is known last
_MOST_16_BITS = 1 << 16


class TokenFile:
    """A context: the file takes its place when the context is left without an error.

    Errors: OSError, and then nothing is left behind.
    """

    def __init__(self, path: pathlib.Path, vocabulary: int, metadata: dict[str, str]):
        self.count = 0
        self._metadata = metadata
        self._type, self._code = ("U16", "H") if vocabulary <= _MOST_16_BITS else ("I32", "i")
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")

    def __enter__(self) -> "TokenFile":
        self._header()  # now, not after hours
        self._file = open(self._partial, "xb")
        self._file.write(b" " * _HEADER)
        return self

    def write(self, tokens: typing.Iterable[int]) -> None:
        values = array.array(self._code, tokens)
        if sys.byteorder == "big":
            values.byteswap()
        self._file.write(values.tobytes())
        self.count += len(values)

    def __exit__(self, kind: typing.Optional[type[BaseException]], error: typing.Optional[BaseException],
                 trace: typing.Optional[types.TracebackType]) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self._file.close()
            self._partial.unlink(missing_ok=True)

    def _header(self) -> bytes:
        item = array.array(self._code).itemsize
        header = json.dumps({"__metadata__": self._metadata,
                             "tokens": {"dtype": self._type, "shape": [self.count],
                                        "data_offsets": [0, item * self.count]}}).encode()
        if len(header) > _HEADER - 8 - _NUMBERS:
            raise OSError(f"{self._path}: its metadata are too long: fewer sentinels fit (--sentinels)")
        return header

    def _finish(self) -> None:
        header = self._header()
        self._file.seek(0)
        self._file.write((_HEADER - 8).to_bytes(8, "little") + header.ljust(_HEADER - 8))
        self._file.flush()
        os.fsync(self._file.fileno())
        os.replace(self._partial, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
