"""Pairs of texts as pairs of tokens, each ended and cut as transformers' tokenizer of T5 does it."""
import dataclasses
import itertools
import pathlib
import typing

from .pair_file import PairFile
from .pairs import Pair, pairs_of
from .text_pieces import BadText
from .tokenizers import BadTokenizer, Tokenizer, decoder_start_of, sha256_of

FORMAT = "spillway-pairs 1"
_TOGETHER = 256  # pairs, which tokenizers share among threads
_MANY = 0.95


class PairOptions(typing.NamedTuple):
    fields: tuple[str, str] = ("source", "target")  # of JSON lines
    prefix: str = ""  # of each source, as "summarize: "
    source_tokens: typing.Optional[int] = None  # the most, with the end of text; None: all
    target_tokens: typing.Optional[int] = None


@dataclasses.dataclass
class _Counts:
    sources_cut: int = 0
    targets_cut: int = 0
    left_out: int = 0  # pairs without a token on one side
    target_bytes: int = 0


class _Writer:
    def __init__(self, tokenizer: Tokenizer, options: PairOptions, file: PairFile):
        if "eos" not in tokenizer.marks:
            raise BadTokenizer(f"{tokenizer.path} has no end of text, which a source and a target end with")
        self._tokenizer, self._options, self._file = tokenizer, options, file
        self.counts = _Counts()

    def _ended(self, tokens: list[int], most: typing.Optional[int]) -> list[int]:
        return (tokens if most is None else tokens[:most - 1]) + [self._tokenizer.marks["eos"]]

    def write(self, pairs: list[Pair]) -> None:
        options, counts = self._options, self.counts
        sources = self._tokenizer.encode([pair.source.strip() and options.prefix + pair.source for pair in pairs])
        targets = self._tokenizer.encode([pair.target.strip() and pair.target for pair in pairs])
        for pair, source, target in zip(pairs, sources, targets):
            if not source or not target:
                counts.left_out += 1
                continue
            ended = self._ended(source, options.source_tokens), self._ended(target, options.target_tokens)
            counts.sources_cut += len(ended[0]) <= len(source)
            counts.targets_cut += len(ended[1]) <= len(target)
            counts.target_bytes += len(pair.target.encode())
            self._file.write(*ended)


def _metadata(tokenizer: Tokenizer, file: PairFile, options: PairOptions, counts: _Counts) -> dict[str, str]:
    return {"format": FORMAT, "vocabulary": str(tokenizer.vocabulary), "tokenizer": tokenizer.path.name,
            "tokenizer_sha256": sha256_of(tokenizer), "pairs": str(len(file)), "prefix": options.prefix,
            "longest_source": str(file.sources.longest), "longest_target": str(file.targets.longest),
            **{name: str(number) for name, number in dataclasses.asdict(counts).items()},
            "pad": "0", **{mark: str(number) for mark, number in tokenizer.marks.items()},
            "decoder_start": str(decoder_start_of(tokenizer))}


def _said(out: pathlib.Path, tokenizer: Tokenizer, file: PairFile, counts: _Counts) -> str:
    lines = [f"{out}: {len(file)} pairs of a vocabulary of {tokenizer.vocabulary}"]
    for name, side, cut in (("source", file.sources, counts.sources_cut), ("target", file.targets, counts.targets_cut)):
        lines.append(f"{name}s: {side.count()} tokens, {side.count() / len(file):.1f} each, 95% at most "
                     f"{side.covering(_MANY)}, the longest {side.longest}; {cut} cut by --{name}-tokens")
    if counts.left_out:
        lines.append(f"{counts.left_out} pairs left out: a source or a target without a token")
    return "\n".join(lines)


def tokenize_pairs(paths: list[pathlib.Path], tokenizer: Tokenizer, out: pathlib.Path, options: PairOptions,
                   progress: typing.Callable[[int, int, int], None]) -> str:
    """Writes the file; lines that say what it has. `progress` gets the bytes of the files before, those that were
    read of this one, and the tokens. Errors: BadText, BadTokenizer, OSError."""
    before = 0
    with PairFile(out, tokenizer.vocabulary) as file:
        writer = _Writer(tokenizer, options, file)
        for path in paths:
            pairs = pairs_of(path, options.fields)
            while some := list(itertools.islice(pairs, _TOGETHER)):
                writer.write(some)
                progress(before, some[-1].offset, file.sources.count() + file.targets.count())
            before += path.stat().st_size
        if len(file) == 0:
            raise BadText(f"{', '.join(map(str, paths))}: no pair with a token on both sides is in it")
        file.finish(_metadata(tokenizer, file, options, writer.counts))
        return _said(out, tokenizer, file, writer.counts)
