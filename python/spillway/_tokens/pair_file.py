"""Writes pairs of tokens as a safetensors file that appears whole or not at all, however long they are."""
import array
import json
import pathlib
import shutil
import tempfile
import types
import typing

from .token_file import numbers_of, partial_of, put_in_place, type_of


class Side:
    """The tokens of all sources or of all targets: in a temporary file, and where each begins."""

    def __init__(self, folder: pathlib.Path, code: str):
        self.tokens = tempfile.TemporaryFile(dir=folder)
        self.offsets = array.array("q", [0])
        self.longest = 0
        self._code = code

    def write(self, tokens: list[int]) -> None:
        self.tokens.write(numbers_of(self._code, tokens))
        self.offsets.append(self.offsets[-1] + len(tokens))
        self.longest = max(self.longest, len(tokens))

    def count(self) -> int:
        return self.offsets[-1]

    def covering(self, share: float) -> int:
        """A length that at least this share of all do not exceed."""
        lengths = sorted(end - begin for begin, end in zip(self.offsets, self.offsets[1:]))
        return lengths[min(len(lengths) - 1, int(share * len(lengths)))]


class PairFile:
    """A context, within which pairs are written; `finish` has the file take its place.

    Errors: OSError, and then nothing is left behind.
    """

    def __init__(self, path: pathlib.Path, vocabulary: int):
        self._type, code = type_of(vocabulary)
        self._path, self._partial = path, partial_of(path)
        self.sources, self.targets = Side(path.parent, code), Side(path.parent, code)

    def __enter__(self) -> "PairFile":
        return self

    def write(self, source: list[int], target: list[int]) -> None:
        self.sources.write(source)
        self.targets.write(target)

    def __len__(self) -> int:
        return len(self.targets.offsets) - 1

    def finish(self, metadata: dict[str, str]) -> None:
        with open(self._partial, "xb") as file:
            file.write(self._header(metadata))
            for side in (self.sources, self.targets):
                file.write(numbers_of("q", side.offsets))
            for side in (self.sources, self.targets):
                side.tokens.seek(0)
                shutil.copyfileobj(side.tokens, file)
            put_in_place(file, self._partial, self._path)

    def _header(self, metadata: dict[str, str]) -> bytes:
        header: dict[str, typing.Any] = {"__metadata__": metadata}
        end = 0
        for name, kind, count in (("source_offsets", "I64", len(self.sources.offsets)),
                                  ("target_offsets", "I64", len(self.targets.offsets)),
                                  ("sources", self._type, self.sources.count()),
                                  ("targets", self._type, self.targets.count())):
            begin, end = end, end + count * {"I64": 8, "I32": 4, "U16": 2}[kind]
            header[name] = {"dtype": kind, "shape": [count], "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def __exit__(self, kind: typing.Optional[type[BaseException]], error: typing.Optional[BaseException],
                 trace: typing.Optional[types.TracebackType]) -> None:
        self._partial.unlink(missing_ok=True)
        self.sources.tokens.close()
        self.targets.tokens.close()
