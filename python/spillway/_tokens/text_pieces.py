"""A text in pieces that are tokenized one by one, with the tokens that the whole text has.

A piece ends before a space between two words, where pre-tokenizers begin a new word; in a text without such spaces,
behind a line end between two lines. Some tokenizers treat the begin of a text in another way than what follows, so a
piece comes with the words before it, whose tokens are taken off again.
"""
import codecs
import re
import typing

PIECE = 1 << 14  # characters from which on a piece ends at the next cut
MOST = 1 << 20  # characters; a text without spaces and line ends is cut there, wherever that is
BLOCK = 1 << 20  # bytes of one read
CONTEXT = 200  # characters, at most
_CUTS = re.compile(r"(?<=\S)(?= \S)"), re.compile(r"(?<=\S\n)(?=\S)")


class BadText(Exception):
    """A text that cannot be read; its text says which and why."""


class Piece(typing.NamedTuple):
    context: str  # the end of what comes before
    text: str
    offset: int  # bytes of the text that were read when it was made


def _context(text: str, end: int) -> str:
    start = max(0, end - CONTEXT)
    cut = _CUTS[0].search(text, start + 1, end)
    return text[cut.start() if cut else start:end]


def _end(text: str, begin: int, ended: bool) -> typing.Optional[int]:
    """Where the piece from `begin` ends; None: more text must be read to know."""
    if not ended and len(text) - begin <= MOST:
        return None
    for cut in _CUTS:
        if found := cut.search(text, begin + PIECE, begin + MOST):
            return found.start()
    return min(len(text), begin + MOST)


def pieces_of(name: str, stream: typing.BinaryIO) -> typing.Iterator[Piece]:
    """The pieces of a text in UTF-8, in order; at most a few MiB of it are in memory at a time.

    Errors: BadText where the text is no UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    text, begin, offset, ended, context = "", 0, 0, False, ""
    while not ended or begin < len(text):
        end = _end(text, begin, ended)
        if end is None:
            block = stream.read(BLOCK)
            try:
                more = decoder.decode(block, not block)
            except UnicodeDecodeError as error:
                at = offset + len(block) - len(error.object) + error.start
                raise BadText(f"{name}: byte {at} is no UTF-8: convert the text first, as iconv does") from None
            text, begin, offset, ended = text[begin:] + more, 0, offset + len(block), not block
        elif end > begin:
            yield Piece(context, text[begin:end], offset)
            context, begin = _context(text, end), end
