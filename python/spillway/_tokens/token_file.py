"""Writes tokens as a safetensors file that appears whole or not at all, however long they are."""
import array
import json
import os
import pathlib
import secrets
import sys
import types
import typing

_HEADER = 1 << 16  # bytes of the header with the spaces behind it: written last, when all is known
_NUMBERS = 256  # bytes of it for what is known last
_MOST_16_BITS = 1 << 16


def type_of(vocabulary: int) -> tuple[str, str]:
    """The type of its tokens, as safetensors and as `array` name it."""
    return ("U16", "H") if vocabulary <= _MOST_16_BITS else ("I32", "i")


def numbers_of(code: str, numbers: typing.Iterable[int]) -> bytes:
    values = array.array(code, numbers)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def partial_of(path: pathlib.Path) -> pathlib.Path:
    """Where what will take the place of `path` is made. No other process has that name, nor one that was killed: in
    containers many processes have the same number."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")


def put_in_place(file: typing.BinaryIO, partial: pathlib.Path, path: pathlib.Path) -> None:
    """The whole file, which is open as `file`, takes its place; also after a power cut it is there or not."""
    file.flush()
    os.fsync(file.fileno())
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class TokenFile:
    """A context: the file takes its place when the context is left without an error.

    Errors: OSError, and then nothing is left behind.
    """

    def __init__(self, path: pathlib.Path, vocabulary: int, metadata: dict[str, str]):
        self.count = 0
        self._metadata = metadata
        self._type, self._code = type_of(vocabulary)
        self._path, self._partial = path, partial_of(path)

    def __enter__(self) -> "TokenFile":
        self._header()  # now, not after hours
        self._file = open(self._partial, "xb")
        try:
            self._file.write(b" " * _HEADER)
        except BaseException:
            self._leave_nothing()
            raise
        return self

    def write(self, tokens: typing.Sequence[int]) -> None:
        self._file.write(numbers_of(self._code, tokens))
        self.count += len(tokens)

    def __exit__(self, kind: typing.Optional[type[BaseException]], error: typing.Optional[BaseException],
                 trace: typing.Optional[types.TracebackType]) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self._leave_nothing()

    def _leave_nothing(self) -> None:
        """Behind the file that has taken its place, or has not."""
        self._partial.unlink(missing_ok=True)
        self._file.close()  # last: it writes what is still in memory, which fails on a full disk

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
        put_in_place(self._file, self._partial, self._path)
