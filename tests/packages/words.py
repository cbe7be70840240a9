"""A tokenizer that needs no download, and sentences of its words."""
import random

import tokenizers
import transformers

WORDS = [f"w{i}" for i in range(90)]


def tokenizer():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(special + WORDS)},
                                                             unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", eos_token="[SEP]", bos_token="[CLS]", padding_side="right",
        chat_template="{% for message in messages %}{{ message.content }} {% endfor %}")


def sentences(count, length, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(length // 2, length))) for _ in range(count)]
