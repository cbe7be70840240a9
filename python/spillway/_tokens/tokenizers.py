"""Tokenizers of Hugging Face's tokenizers (tokenizer.json) and of SentencePiece (*.model) behind one interface."""
import hashlib
import json
import pathlib
import re
import typing

_KNOWN = {  # where no configuration beside the tokenizer names them
    "pad": ("<pad>", "<|pad|>", "[PAD]"),
    "eos": ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"),
    "unk": ("<unk>", "<|unk|>", "[UNK]"),
}
_T5_START = 0
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


class BadTokenizer(Exception):
    """A tokenizer that cannot be used; its text says which, why, and what to do."""


class Tokenizer(typing.Protocol):
    path: pathlib.Path
    vocabulary: int  # all ids are less
    marks: dict[str, int]  # the ids of "pad", "eos" and "unk", where it has them
    sentinels: list[int]  # of T5's spans, the first one's first

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, without marks around it."""


def sha256_of(tokenizer: Tokenizer) -> str:
    """Of its file; "" of bytes, which have none."""
    return "" if isinstance(tokenizer, Bytes) else hashlib.sha256(tokenizer.path.read_bytes()).hexdigest()


def decoder_start_of(tokenizer: Tokenizer) -> int:
    """What a decoder starts from, as the config.json beside the tokenizer says; of bytes, or without one, T5's."""
    if isinstance(tokenizer, Bytes):
        return _T5_START
    start = _json_of(tokenizer.path.parent / "config.json").get("decoder_start_token_id", _T5_START)
    if not isinstance(start, int) or not 0 <= start < tokenizer.vocabulary:
        raise BadTokenizer(f"{tokenizer.path.parent / 'config.json'}: 'decoder_start_token_id' is no token: {start}")
    return start


def _json_of(path: pathlib.Path) -> dict[str, typing.Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadTokenizer(f"{path}: {error}") from None
    except RecursionError:
        raise BadTokenizer(f"{path}: it is nested too deeply") from None
    return read if isinstance(read, dict) else {}


def _named(folder: pathlib.Path, mark: str) -> list[str]:
    """What the files beside a tokenizer call a mark, else what is usual."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        value = _json_of(folder / file).get(f"{mark}_token")
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            return [value]
    return list(_KNOWN[mark])


def _sentinels(ids: dict[str, int]) -> list[int]:
    numbered = {int(match[1]): number for token, number in ids.items() if (match := _SENTINEL.fullmatch(token))}
    first = 0
    while first in numbered:
        first += 1
    return [numbered[i] for i in range(first)]


class Bytes:
    """ByT5's: a byte's token is three more than it."""

    def __init__(self) -> None:
        self.path = pathlib.Path("bytes")
        self.vocabulary = 384
        self.marks = {"pad": 0, "eos": 1, "unk": 2}
        self.sentinels = list(range(383, 258, -1))

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[byte + 3 for byte in text.encode()] for text in texts]


class _Json:
    def __init__(self, path: pathlib.Path):
        try:
            import tokenizers
        except ImportError:
            raise BadTokenizer(f"{path} needs Hugging Face's tokenizers: pip install tokenizers") from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # it has no class of its own
            raise BadTokenizer(f"{path} is no tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()  # some files ask for it
        self._tokenizer.no_padding()
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        if not ids:
            raise BadTokenizer(f"{path} has no tokens")
        self.path = path
        self.vocabulary = max(ids.values()) + 1
        named = {mark: [name for name in _named(path.parent, mark) if name in ids] for mark in _KNOWN}
        self.marks = {mark: ids[names[0]] for mark, names in named.items() if names}
        self.sentinels = _sentinels(ids)

    def encode(self, texts: list[str]) -> list[list[int]]:
        encode = getattr(self._tokenizer, "encode_batch_fast", self._tokenizer.encode_batch)  # since tokenizers 0.20
        return [encoding.ids for encoding in encode(texts, add_special_tokens=False)]


def _configured_sentinels(folder: pathlib.Path) -> int:
    number = _json_of(folder / "tokenizer_config.json").get("extra_ids", 0)
    return number if isinstance(number, int) and 0 <= number < 1 << 16 else 0


class _Model:
    def __init__(self, path: pathlib.Path, asked: typing.Optional[int]):
        try:
            import sentencepiece
        except ImportError:
            raise BadTokenizer(f"{path} needs SentencePiece: pip install sentencepiece") from None
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.load_from_serialized_proto(path.read_bytes())
        except (OSError, RuntimeError) as error:
            raise BadTokenizer(f"{path} is no model of SentencePiece: {error}") from None
        pieces = self._model.get_piece_size()
        own = _sentinels({self._model.id_to_piece(i): i for i in range(pieces)})
        if own and asked:
            raise BadTokenizer(f"{path} has {len(own)} sentinels of its own: leave --sentinels out")
        usual = 0 if own else _configured_sentinels(path.parent)
        sentinels = usual if asked is None else asked
        self.path = path
        self.vocabulary = pieces + sentinels
        found = {"pad": self._model.pad_id(), "eos": self._model.eos_id(), "unk": self._model.unk_id()}
        self.marks = {mark: number for mark, number in found.items() if number >= 0}
        self.sentinels = own or [pieces + sentinels - 1 - i for i in range(sentinels)]

    def encode(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._model.encode(texts, out_type=int)
        return ids


def _file_of(path: pathlib.Path) -> pathlib.Path:
    if not path.is_dir():
        return path
    if (path / "tokenizer.json").is_file():
        return path / "tokenizer.json"
    models = sorted(path.glob("*.model"))
    if len(models) == 1:
        return models[0]
    has = ", ".join(model.name for model in models) or "neither"
    raise BadTokenizer(f"{path} must hold a tokenizer.json or one *.model; it has {has}")


def open_tokenizer(path: pathlib.Path, sentinels: typing.Optional[int]) -> Tokenizer:
    """The tokenizer of a tokenizer.json, of a *.model, or of a folder with one of them.

    `sentinels` is the number of sentinels that T5's tokenizer adds behind a *.model's pieces, the first one's id
    highest; None: as many as the tokenizer_config.json beside it says. Errors: BadTokenizer.
    """
    file = _file_of(path)
    if not file.is_file():
        raise BadTokenizer(f"{path} is no file and no folder: name a tokenizer.json, a *.model or the folder of one")
    if file.suffix != ".model":
        if sentinels is not None:
            raise BadTokenizer(f"{file} says its sentinels itself: --sentinels is for a *.model")
        return _Json(file)
    return _Model(file, sentinels)
