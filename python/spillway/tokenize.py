"""Makes a file of tokens, which spillway-train trains on, of texts, or of pairs of them.

    python -m spillway.tokenize TEXT... --tokenizer FILE_OR_FOLDER --out FILE.safetensors
    python -m spillway.tokenize PAIRS... --pairs --fields SOURCE TARGET --tokenizer FILE_OR_FOLDER --out F.safetensors

The tokenizer is a tokenizer.json (pip install tokenizers), a SentencePiece *.model (pip install sentencepiece), or a
folder that holds one of them. Texts are UTF-8 and may be larger than the memory; between two of them stands the
tokenizer's end of text, where it has one. The file has one tensor, `tokens`, of 16-bit numbers for a vocabulary of at
most 65536 tokens, else of 32-bit ones, and as metadata what the trainer must know of the vocabulary.

With --pairs, which a T5 learns from, a file has JSON lines, of which two fields are source and target, or, if it is
named *.tsv, two columns. Each side ends with the tokenizer's end of text. Nothing is cut unless --source-tokens and
--target-tokens say so, and then it is counted; the trainer pads all pairs to the longest, so that they decide how much
memory it needs.
"""
import argparse
import functools
import itertools
import json
import pathlib
import sys
import time
import typing

from ._tokens.pair_tokens import PairOptions, tokenize_pairs
from ._tokens.text_pieces import BadText, Piece, pieces_of
from ._tokens.token_file import TokenFile
from ._tokens.tokenizers import BadTokenizer, Bytes, Tokenizer, open_tokenizer, sha256_of

FORMAT = "spillway-tokens 1"
_TOGETHER = 128  # pieces, which tokenizers share among threads


class _Progress:
    """What is done, on stderr: on a terminal in one line, elsewhere a line in ten seconds."""

    def __init__(self, total: int):
        self._total, self._start = total, time.monotonic()
        self._live = sys.stderr.isatty()
        self._next = self._start + self._pause()

    def _pause(self) -> float:
        return 0.5 if self._live else 10

    def show(self, before: int, read: int, tokens: int) -> None:
        """Of the texts `before` this one all bytes are done, and of this one `read`."""
        done = before + read
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._pause()
        line = (f"{done / 1e6:.0f} of {self._total / 1e6:.0f} MB, {tokens / 1e6:.1f} M tokens, "
                f"{done / 1e6 / (now - self._start):.1f} MB/s")
        print(f"\r{line:<60}" if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print(f"\r{'':<60}\r", end="", file=sys.stderr, flush=True)


def _tokens_of(tokenizer: Tokenizer, pieces: list[Piece]) -> typing.Iterator[tuple[list[int], bool]]:
    """The tokens of each piece, and whether they are surely those that the whole text has there."""
    before = tokenizer.encode([piece.context for piece in pieces])
    together = tokenizer.encode([piece.context + piece.text for piece in pieces])
    for piece, context, both in zip(pieces, before, together):
        if both[:len(context)] == context:
            yield both[len(context):], True
        else:
            yield tokenizer.encode([piece.text])[0], False


def _write_text(tokenizer: Tokenizer, text: pathlib.Path, file: TokenFile,
                progress: typing.Callable[[int, int], None]) -> int:
    """The number of its cuts at which tokens may differ from those of the whole text."""
    unsure = 0
    with open(text, "rb") as stream:
        pieces = pieces_of(str(text), stream)
        while some := list(itertools.islice(pieces, _TOGETHER)):
            for tokens, sure in _tokens_of(tokenizer, some):
                file.write(tokens)
                unsure += not sure
            progress(some[-1].offset, file.count)
    return unsure


def _metadata(tokenizer: Tokenizer, texts: list[pathlib.Path], text_bytes: int) -> dict[str, str]:
    return {"format": FORMAT, "vocabulary": str(tokenizer.vocabulary), "tokenizer": tokenizer.path.name,
            "tokenizer_sha256": sha256_of(tokenizer), "texts": str(len(texts)), "text_bytes": str(text_bytes),
            **{mark: str(number) for mark, number in tokenizer.marks.items()},
            "sentinels": json.dumps(tokenizer.sentinels)}


def tokenize(texts: list[pathlib.Path], tokenizer: Tokenizer, out: pathlib.Path) -> str:
    """Writes the file; a line that says what it has. Errors: BadText, OSError."""
    sizes = [text.stat().st_size for text in texts]
    progress = _Progress(sum(sizes))
    unsure = 0
    with TokenFile(out, tokenizer.vocabulary, _metadata(tokenizer, texts, sum(sizes))) as file:
        for i, text in enumerate(texts):
            if i > 0 and "eos" in tokenizer.marks:
                file.write([tokenizer.marks["eos"]])
            unsure += _write_text(tokenizer, text, file, functools.partial(progress.show, sum(sizes[:i])))
        progress.end()
        if file.count == 0:
            raise BadText(f"{', '.join(map(str, texts))}: no tokens are in it")
    said = (f"{out}: {file.count} tokens of a vocabulary of {tokenizer.vocabulary}, "
            f"{sum(sizes) / file.count:.2f} bytes each")
    if unsure:
        said += f"\nat {unsure} cuts the tokens may differ from those of the whole text"
    return said


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spillway.tokenize", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=pathlib.Path, metavar="TEXT")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--tokenizer", type=pathlib.Path, metavar="FILE_OR_FOLDER")
    how.add_argument("--bytes", action="store_true", help="of pairs: a token for each byte, as ByT5 has them")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE.safetensors")
    parser.add_argument("--sentinels", type=int, metavar="N",
                        help="sentinels that stand behind a *.model's pieces, for T5's spans (T5: 100); without it as "
                             "many as 'extra_ids' in the tokenizer_config.json beside it")
    pairs = parser.add_argument_group("pairs")
    pairs.add_argument("--pairs", action="store_true", help="the texts are pairs: JSON lines, or *.tsv of two columns")
    pairs.add_argument("--fields", nargs=2, metavar=("SOURCE", "TARGET"), help="of JSON lines (source target)")
    pairs.add_argument("--prefix", metavar="TEXT", help='before each source, such as "summarize: "')
    for side in ("source", "target"):
        pairs.add_argument(f"--{side}-tokens", type=int, metavar="N",
                           help=f"a longer {side} is cut to N tokens, of which the last is the end of text")
    options = parser.parse_args()
    _check(parser, options)
    return options


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    for name in ("bytes", "fields", "prefix", "source_tokens", "target_tokens"):
        if getattr(options, name) and not options.pairs:
            parser.error(f"--{name.replace('_', '-')} is for pairs: give --pairs too")
    for name in ("source_tokens", "target_tokens"):
        most = getattr(options, name)
        if most is not None and not 2 <= most <= 1 << 20:
            parser.error(f"--{name.replace('_', '-')} must be from 2 to {1 << 20}: a token and the end of text")
    if options.bytes and options.sentinels is not None:
        parser.error("--sentinels is for a *.model")
    if options.sentinels is not None and not 0 <= options.sentinels < 1 << 16:
        parser.error("--sentinels must be from 0 to 65535")
    for text in options.texts:
        if options.out.exists() and text.exists() and options.out.samefile(text):
            parser.error(f"--out {options.out} is one of the texts")


def _made(options: argparse.Namespace) -> str:
    tokenizer = Bytes() if options.bytes else open_tokenizer(options.tokenizer, options.sentinels)
    if not options.pairs:
        return tokenize(options.texts, tokenizer, options.out)
    progress = _Progress(sum(text.stat().st_size for text in options.texts))
    said = tokenize_pairs(options.texts, tokenizer, options.out,
                          PairOptions(tuple(options.fields or PairOptions().fields), options.prefix or "",
                                      options.source_tokens, options.target_tokens), progress.show)
    progress.end()
    return said


def main() -> int:
    """0: the file is there. 1: an error, and the file is what it was before. 2: the command line."""
    options = _arguments()
    try:
        print(_made(options))
    except (BadText, BadTokenizer, OSError) as error:
        print(f"spillway.tokenize: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
