"""Pairs of texts as users have them: JSON lines with two named fields, or two columns of a *.tsv."""
import codecs
import json
import pathlib
import typing

from .text_pieces import BadText


class Pair(typing.NamedTuple):
    source: str
    target: str
    offset: int  # bytes of the file up to its end


def _of_json(line: str, fields: tuple[str, str]) -> tuple[str, str]:
    try:
        read = json.loads(line)
    except ValueError as error:
        raise BadText(f"is no JSON: {error}") from None
    except RecursionError:
        raise BadText("is no JSON: it is nested too deeply") from None
    if not isinstance(read, dict):
        raise BadText("is no object of JSON")
    for field in fields:
        if field not in read:
            raise BadText(f"has no '{field}', but {', '.join(map(repr, sorted(read))) or 'nothing'}: name the two with "
                          "--fields")
        if not isinstance(read[field], str):
            raise BadText(f"has a '{field}' that is no text")
    return read[fields[0]], read[fields[1]]


def _of_columns(line: str) -> tuple[str, str]:
    columns = line.rstrip("\r\n").split("\t")
    if len(columns) != 2:
        raise BadText(f"has {len(columns)} columns, and must have 2")
    return columns[0], columns[1]


def _pair(line: bytes, columns: bool, fields: tuple[str, str]) -> tuple[str, str]:
    try:
        text = line.decode()
        source, target = _of_columns(text) if columns else _of_json(text, fields)
        (source + target).encode()
    except UnicodeDecodeError:
        raise BadText("is no UTF-8: convert the file first, as iconv does") from None
    except UnicodeEncodeError:
        raise BadText("has half of a character (a surrogate without its other)") from None
    return source, target


def _is_empty(line: bytes, columns: bool) -> bool:
    """Spaces are a text in a column, and a tab stands between two."""
    return not (line.rstrip(b"\r\n") if columns else line.strip())


def pairs_of(path: pathlib.Path, fields: tuple[str, str]) -> typing.Iterator[Pair]:
    """The pairs of a file in their order; empty lines are passed over, and a mark of the byte order in front.

    `fields` name source and target in JSON lines, where lines of spaces are empty too. Errors: BadText, with the line.
    """
    offset, columns = 0, path.suffix == ".tsv"
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            offset += len(line)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if _is_empty(line, columns):
                continue
            try:
                source, target = _pair(line, columns, fields)
            except BadText as error:
                raise BadText(f"{path}: line {number} {error}") from None
            yield Pair(source, target, offset)
