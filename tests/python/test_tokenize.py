"""python -m spillway.tokenize: a text in pieces has the tokens of the whole text, and no error leaves a file."""
import io
import itertools
import json
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PACKAGE))

import safetensors.numpy  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers  # noqa: E402

from spillway._tokens import text_pieces, token_file  # noqa: E402

try:
    import sentencepiece
except ImportError:
    sentencepiece = None

LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
           r"\s+(?!\S)|\s+")
WORDS = ["the", "page", "spills", "back", "it's", "123456", "a-b", "été", "日本語。", "🎉", "...", "among"]


def text_of(seed, words):
    """Words, and every kind of space and line end between them."""
    choose = random.Random(seed)
    spaces = [" "] * 8 + ["  ", "\n", "\r\n", "\n\n", " \n ", "\t", "\n\n\n  ", "\u00a0"]
    return "".join(choose.choice(WORDS) + choose.choice(spaces) for _ in range(words))


def trained(pre_tokenizer, normalizer=None):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator([text_of(1, 4000)], trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>", "<pad>", "<extra_id_0>", "<extra_id_1>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


KINDS = {
    "gpt2": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "gpt2, space in front": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama 3": lambda: trained(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])),
    "metaspace": lambda: trained(pre_tokenizers.Metaspace(), normalizers.NFKC()),
    "bert": lambda: trained(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer()),
}


class Tokenize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.safetensors"

    def write(self, name, text):
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return self.folder / name

    def start(self, *words, **options):
        return subprocess.Popen([sys.executable, "-m", "spillway.tokenize", *map(str, words), "--out", str(self.out)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={"PYTHONPATH": str(PACKAGE)}, **options)

    def fault(self, *words, code=1):
        done = self.start(*words)
        said = done.communicate()[1]
        self.assertEqual(done.returncode, code, said)
        self.assertNotIn("Traceback", said)
        return said

    def read(self):
        with safetensors.safe_open(self.out, "np") as file:
            return file.get_tensor("tokens").tolist(), file.metadata()

    def tokenized(self, *words):
        done = self.start(*words)
        said = done.communicate()[1]
        self.assertEqual(done.returncode, 0, said)
        self.assertEqual([path for path in self.folder.iterdir() if "partial" in path.name], [])
        return self.read()

    def sequence(self, text, piece, tokenizer):
        """The tokens of the text in pieces of this size, read in blocks of few bytes."""
        from spillway.tokenize import _tokens_of
        with mock.patch.multiple(text_pieces, PIECE=piece, MOST=4 * piece, BLOCK=251):
            pieces = list(text_pieces.pieces_of("text", io.BytesIO(text.encode())))
        self.assertEqual("".join(piece.text for piece in pieces), text)
        self.assertGreater(len(pieces), len(text) // (5 * piece))
        both = list(_tokens_of(tokenizer, pieces))
        self.assertTrue(all(sure for _, sure in both))
        return [token for tokens, _ in both for token in tokens]

    def test_a_text_without_an_end_is_read_in_pieces(self):
        class Endless:
            def read(self, size):
                return b"the page " * (size // 9)

        first = list(itertools.islice(text_pieces.pieces_of("text", Endless()), 200))
        self.assertLess(max(len(piece.text) for piece in first), 2 * text_pieces.PIECE)
        self.assertLess(first[-1].offset, sum(len(piece.text) for piece in first) + (1 << 22))

    def test_pieces_have_the_tokens_of_the_whole(self):
        from spillway._tokens.tokenizers import open_tokenizer
        for name, make in KINDS.items():
            path = self.folder / "tokenizer.json"
            make().save(str(path))
            for seed in range(5):
                with self.subTest(name, seed=seed):
                    text = text_of(seed, 3000)
                    whole = make_ids(path, text)
                    self.assertEqual(self.sequence(text, 300, open_tokenizer(path, None)), whole)

    @unittest.skipIf(sentencepiece is None, "sentencepiece is not installed")
    def test_a_sentencepiece_model(self):
        from spillway._tokens.tokenizers import open_tokenizer
        for kind, options in {"t5": {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
                              "llama 2": {"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False,
                                          "normalization_rule_name": "identity"}}.items():
            model = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text_of(1, 4000).splitlines()),
                                                     model_writer=model, vocab_size=400, minloglevel=2,
                                                     hard_vocab_limit=False, **options)
            path = self.write("spiece.model", model.getvalue())
            theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
            text = text_of(9, 2000)
            with self.subTest(kind):
                self.assertEqual(self.sequence(text, 300, open_tokenizer(path, None)), theirs.encode(text))
            pieces = theirs.get_piece_size()
            self.write("text", text)
            tokens, metadata = self.tokenized(self.folder / "text", "--tokenizer", path, "--sentinels", 100)
            self.assertEqual(tokens, theirs.encode(text))
            self.assertEqual(metadata["vocabulary"], str(pieces + 100))
            self.assertEqual(json.loads(metadata["sentinels"]), list(range(pieces + 99, pieces - 1, -1)))
            self.assertEqual(metadata["eos"], str(theirs.eos_id()))
            self.write("tokenizer_config.json", '{"extra_ids": 7}')
            self.assertEqual(self.tokenized(self.folder / "text", "--tokenizer", self.folder)[1]["vocabulary"],
                             str(pieces + 7))

    @unittest.skipIf(sentencepiece is None, "sentencepiece is not installed")
    def test_sentinels_among_a_models_pieces_are_its_own(self):
        model = io.BytesIO()
        own = [f"<extra_id_{i}>" for i in (2, 0, 1)]
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text_of(1, 4000).splitlines()),
                                                 model_writer=model, vocab_size=400, hard_vocab_limit=False,
                                                 minloglevel=2, user_defined_symbols=own)
        path = self.write("spiece.model", model.getvalue())
        self.write("tokenizer_config.json", '{"extra_ids": 7}')
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
        metadata = self.tokenized(self.write("text", "the page"), "--tokenizer", path)[1]
        self.assertEqual(metadata["vocabulary"], str(theirs.get_piece_size()))
        self.assertEqual(json.loads(metadata["sentinels"]), [theirs.piece_to_id(f"<extra_id_{i}>") for i in range(3)])
        self.assertIn("3 sentinels of its own", self.fault(self.folder / "text", "--tokenizer", path, "--sentinels", 3))

    def test_the_file_says_what_the_trainer_must_know(self):
        KINDS["gpt2"]().save(str(self.folder / "tokenizer.json"))
        theirs = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        texts = [self.write(name, text) for name, text in {"a": "the page", "b": "", "c": "spills back\n"}.items()]
        tokens, metadata = self.tokenized(*texts, "--tokenizer", self.folder)
        end = theirs.token_to_id("<|endoftext|>")
        self.assertEqual(tokens, theirs.encode("the page").ids + [end, end] + theirs.encode("spills back\n").ids)
        self.assertEqual(metadata["text_bytes"], "20")
        self.assertEqual(metadata["vocabulary"], str(theirs.get_vocab_size()))
        self.assertEqual((metadata["eos"], metadata["pad"]), (str(end), str(theirs.token_to_id("<pad>"))))
        self.assertEqual(json.loads(metadata["sentinels"]), [theirs.token_to_id(f"<extra_id_{i}>") for i in (0, 1)])
        self.write("tokenizer_config.json", '{"eos_token": {"content": "<pad>"}}')
        self.assertEqual(self.tokenized(*texts, "--tokenizer", self.folder)[1]["eos"], metadata["pad"])

    def test_a_vocabulary_of_65536_is_the_last_of_16_bits(self):
        for size, kind in ((65536, "U16"), (65537, "I32")):
            vocabulary = {f"w{i}": i for i in range(size)}
            tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
            tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
            tokenizer.enable_truncation(2)  # as many published files ask for
            tokenizer.save(str(self.folder / "tokenizer.json"))
            text = self.write("text", f"w7 w{size - 1} w1")
            self.assertEqual(self.tokenized(text, "--tokenizer", self.folder)[0], [7, size - 1, 1])
            with safetensors.safe_open(self.out, "np") as file:
                self.assertEqual(file.get_slice("tokens").get_dtype(), kind)

    def test_errors_say_what_to_do_and_leave_the_file_alone(self):
        KINDS["gpt2"]().save(str(self.folder / "tokenizer.json"))
        text, own = self.write("text", "the page"), ("--tokenizer", self.folder)
        self.write("out.safetensors", "what was there")
        late = self.write("late", b"the page " * 200000 + b"\xff")
        self.assertIn(f"late: byte {9 * 200000} is no UTF-8", self.fault(late, *own))
        self.assertIn("byte 8 is no UTF-8", self.fault(self.write("cut", b"the page\xe6\x97"), *own))
        self.assertIn("no tokens", self.fault(self.write("empty", ""), *own))
        self.assertIn("No such file", self.fault(self.folder / "none", *own))
        self.assertIn("no file and no folder", self.fault(text, "--tokenizer", self.folder / "none"))
        self.assertIn("no tokenizer.json", self.fault(text, "--tokenizer", text))
        self.assertIn("--sentinels is for a *.model", self.fault(text, *own, "--sentinels", 3))
        (self.folder / "other").mkdir()
        self.assertIn("it has neither", self.fault(text, "--tokenizer", self.folder / "other"))
        model = self.write("x.model", "no model")
        for missing in ("tokenizers", "sentencepiece"):
            program = (f"import sys; sys.modules['{missing}'] = None; from spillway.tokenize import main; "
                       "sys.exit(main())")
            done = subprocess.run([sys.executable, "-c", program, text, "--out", self.out, "--tokenizer",
                                   self.folder if missing == "tokenizers" else model],
                                  env={"PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"pip install {missing}", done.stderr)
        if sentencepiece is not None:
            self.assertIn("no model of SentencePiece", self.fault(text, "--tokenizer", model))
        self.assertEqual(self.out.read_text(), "what was there")
        self.assertIn("from 0 to 65535", self.fault(text, *own, "--sentinels", -1, code=2))

    def read_pairs(self):
        with safetensors.safe_open(self.out, "np") as file:
            lists = []
            for side in ("source", "target"):
                tokens, offsets = (file.get_tensor(f"{side}{end}").tolist() for end in ("s", "_offsets"))
                lists.append([tokens[a:b] for a, b in zip(offsets, offsets[1:])])
            return *lists, file.metadata()

    def paired(self, *words, **options):
        done = self.start(*words, "--pairs", **options)
        said, wrong = done.communicate()
        self.assertEqual((done.returncode, wrong), (0, ""))
        self.assertEqual([path for path in self.folder.iterdir() if "partial" in path.name], [])
        return *self.read_pairs(), said

    def test_pairs_have_the_tokens_of_both_sides_with_their_end(self):
        KINDS["gpt2"]().save(str(self.folder / "tokenizer.json"))
        theirs = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        pairs = [(text_of(seed, 1 + seed % 40), text_of(-seed, 1 + seed % 7)) for seed in range(600)]  # several batches
        lines = "".join(json.dumps({"id": 7, "to": target, "article": source}) + "\n\n" for source, target in pairs)
        path = self.write("pairs.jsonl", lines)
        *lists, metadata, said = self.paired(path, "--tokenizer", self.folder, "--fields", "article", "to", "--prefix",
                                             "a: ")
        end = theirs.token_to_id("<|endoftext|>")
        self.assertEqual(lists[0], [theirs.encode("a: " + source).ids + [end] for source, _ in pairs])
        self.assertEqual(lists[1], [theirs.encode(target).ids + [end] for _, target in pairs])
        longest = {side: str(max(map(len, made))) for side, made in zip(("source", "target"), lists)}
        expected = {"format": "spillway-pairs 1", "pairs": "600", "vocabulary": str(theirs.get_vocab_size()),
                    "longest_source": longest["source"], "longest_target": longest["target"], "sources_cut": "0",
                    "targets_cut": "0", "left_out": "0", "decoder_start": "0", "prefix": "a: ", "eos": str(end),
                    "target_bytes": str(sum(len(target.encode()) for _, target in pairs)),
                    "pad": str(theirs.token_to_id("<pad>"))}
        self.assertEqual({key: metadata[key] for key in expected}, expected)
        self.assertIn(f"the longest {longest['source']}; 0 cut", said)
        columns = self.write("pairs.tsv", "the page\tpage\nspills back\tback\n")
        self.assertEqual(self.paired(columns, "--tokenizer", self.folder)[1],
                         [theirs.encode(target).ids + [end] for target in ("page", "back")])
        self.write("config.json", '{"decoder_start_token_id": 2}')
        self.assertEqual(self.paired(columns, "--tokenizer", self.folder)[2]["decoder_start"], "2")
        self.write("config.json", "[" * 200000)
        self.assertIn("config.json: it is nested too deeply",
                      self.fault(columns, "--pairs", "--tokenizer", self.folder))

    def test_what_is_cut_and_what_is_left_out_of_pairs_is_counted(self):
        path = self.write("pairs.tsv", "abcdef\txyz\r\nab\tvwxyz\n\r\n\nabcde\té\n\tx\n  \tx\nx\t\nx\t \n\t\n \t \r\n")
        sources, targets, metadata, said = self.paired(path, "--bytes", "--source-tokens", 6, "--target-tokens", 4)
        as_bytes = [[[byte + 3 for byte in text.encode()] + [1] for text in texts]
                    for texts in (("abcde", "ab", "abcde"), ("xyz", "vwx", "é"))]
        self.assertEqual([sources, targets], as_bytes)
        expected = {"sources_cut": "1", "targets_cut": "1", "left_out": "6", "target_bytes": "10", "vocabulary": "384"}
        self.assertEqual({key: metadata[key] for key in expected}, expected)
        self.assertIn("sources: 15 tokens, 5.0 each, 95% at most 6, the longest 6; 1 cut by --source-tokens", said)
        self.assertIn("6 pairs left out", said)

    def test_bytes_read_no_configuration_of_where_they_are_run(self):
        self.write("config.json", '{"decoder_start_token_id": 2}')
        path = self.write("pairs.tsv", "a\tb\n")
        self.assertEqual(self.paired(path, "--bytes", cwd=self.folder)[2]["decoder_start"], "0")

    def test_a_mark_of_the_byte_order_is_no_text(self):
        for name, text in ("pairs.tsv", "a\tb\n"), ("pairs.jsonl", '{"source": "a", "target": "b"}\n'):
            path = self.write(name, b"\xef\xbb\xbf" + text.encode())
            self.assertEqual(self.paired(path, "--bytes")[:2], ([[100, 1]], [[101, 1]]))

    def test_what_is_wrong_with_pairs_is_said_and_leaves_what_was_there(self):
        self.out.write_text("what was there")
        wrong = {"is no JSON": "{", "is no JSON: it is nested too deeply": "[" * 200000, "is no object": "[1]",
                 "no 'target', but 'source'": '{"source": "x"}',
                 "a 'target' that is no text": '{"source": "x", "target": 1}',
                 "half of a character": '{"source": "\\ud800", "target": "x"}', "no UTF-8": b'{"source": "\xff"}'}
        for says, line in wrong.items():
            line = line if isinstance(line, bytes) else line.encode()
            path = self.write("pairs.jsonl", b'{"source": "a", "target": "b"}\n' + line + b"\n")
            said = self.fault(path, "--pairs", "--bytes")
            self.assertIn(says, said)
            self.assertIn("pairs.jsonl: line 2 ", said)
        self.assertIn("has 1 columns", self.fault(self.write("pairs.tsv", "a\tb\n  \n"), "--pairs", "--bytes"))
        self.assertIn("has 3 columns", self.fault(self.write("pairs.tsv", "a\tb\tc\n"), "--pairs", "--bytes"))
        self.assertIn("no pair with", self.fault(self.write("pairs.tsv", "\t\n"), "--pairs", "--bytes"))
        self.assertEqual(self.out.read_text(), "what was there")
        tokenizer = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
        tokenizer.save(str(self.folder / "tokenizer.json"))
        columns = self.write("pairs.tsv", "a\tb\n")
        self.assertIn("no end of text", self.fault(columns, "--pairs", "--tokenizer", self.folder))
        self.assertIn("give --pairs too", self.fault(columns, "--bytes", code=2))
        self.assertIn("from 2 to", self.fault(columns, "--pairs", "--bytes", "--source-tokens", 1, code=2))

    def test_an_interrupt_leaves_nothing(self):
        KINDS["gpt2"]().save(str(self.folder / "tokenizer.json"))
        process = self.start(*[self.write("text", text_of(1, 300000))] * 50, "--tokenizer", self.folder)
        end = time.monotonic() + 30
        while not list(self.folder.glob(".out*partial")) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
        self.assertEqual((process.returncode, said), (130, ""))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["text", "tokenizer.json"])


def make_ids(path, text):
    return tokenizers.Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids


class Partial(unittest.TestCase):
    def test_processes_of_one_number_do_not_meet(self):
        """Two containers that write to one folder, or one that was killed and started again."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            for writes in ([3, 1], [2, 5]):
                with token_file.TokenFile(out, 100, {}) as first, token_file.TokenFile(out, 100, {}) as last:
                    first.write([1] * writes[0])
                    last.write([1] * writes[1])
                self.assertEqual(out.stat().st_size, (1 << 16) + 2 * writes[0])
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], ["out"])


class Full(unittest.TestCase):
    def test_a_disk_that_is_full_at_the_first_write_leaves_nothing(self):
        usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        with tempfile.TemporaryDirectory() as folder:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, most))
            try:
                with self.assertRaises(OSError), token_file.TokenFile(pathlib.Path(folder) / "out", 100, {}):
                    pass
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (usual, most))
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
