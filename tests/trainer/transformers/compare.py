"""compare.py BUILD --corpus TEXT NAME...: the trainer beside transformers and others' optimizers, on the same weights.

NAME is a family, which is trained by AdamW beside torch.optim's, or an optimizer, by which a GPT-2 is trained:
adafactor beside transformers', adamw8bit beside torchao's (pip install torchao==0.18.0). For each model: transformers
makes it and saves it; spillway-train begins with that, trains 50 steps and saves. The logits of the first batch, the
loss and gradient norm of every step, and the logits of the saved model must be those that transformers computes. Prints
how far they are apart.
The family `tokens` reads the text as the tokens of a small tokenizer: what spillway-train then trains on must be what
Hugging Face's tokenizers makes of the whole text. The family `pairs` trains a T5 on padded pairs in micro-batches with
unequal numbers of targets: transformers gets the same rows with an attention mask and labels of -100, and each
micro-batch's loss is divided by the targets of the whole batch.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import safetensors.torch
import tokenizers
import torch
import transformers

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "python"

STEPS, BATCH, CONTEXT = 50, 4, 24
TRAIN = {"learning_rate": 2e-3, "minimum_learning_rate": 2e-4, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95,
         "epsilon": 1e-8, "clip": 0.5, "warmup": 10}
OPTIMIZERS = {"adamw": {}, "adafactor": {"learning_rate": 2e-2, "minimum_learning_rate": 2e-3}, "adamw8bit": {}}
FAMILIES = {}


def family(name):
    def add(function):
        FAMILIES.setdefault(name, []).append(function)
        return function
    return add


@family("gpt2")
def gpt2(**more):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        **{"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT, "vocab_size": 256, "resid_pdrop": 0,
           "embd_pdrop": 0, "attn_pdrop": 0, **more}))


@family("gpt2")
def gpt2_own_head():
    return gpt2(tie_word_embeddings=False, n_inner=80)


@family("gpt2")
def gpt2_of_more_positions():
    return gpt2(n_positions=2 * CONTEXT)


def llama(**sizes):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=6, intermediate_size=112, vocab_size=300,
        max_position_embeddings=CONTEXT, **sizes))


@family("llama")
def llama_grouped():
    return llama(num_key_value_heads=2, rope_theta=5000.0)


@family("llama")
def llama_single_key_tied():
    return llama(num_key_value_heads=1, tie_word_embeddings=True, head_dim=12)


def t5(**more):
    sizes = {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3,
             "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "vocab_size": 384,
             "dropout_rate": 0.0, "decoder_start_token_id": 0, **more}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))


@family("t5")
def t5_plain():
    return t5()


@family("t5")
def t5_gated():
    return t5(feed_forward_proj="gated-gelu", d_kv=16)


@family("t5")
def t5_gated_own_head():
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())  # transformers 5 shares it
    return model


WORDS, SENTINELS = 600, 8


@family("tokens")
def gpt2_words():
    return gpt2(vocab_size=WORDS + SENTINELS)


@family("tokens")
def t5_words():
    return t5(vocab_size=WORDS + SENTINELS + 20)  # more than the tokenizer has, as T5's own


@family("pairs")
def t5_pairs():
    return t5_words()


@family("pairs")
def t5_pairs_gated_own_head():
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False, d_kv=16,
               vocab_size=WORDS + SENTINELS)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


PAIRS, TARGET, PREFIX = 300, 10, "last: "
PLANS = {"t5_pairs_gated_own_head": {"micro_batch": 2, "head_chunks": 3}}


def plan_of(make):
    return {"micro_batch": 3, "recompute": [0], **PLANS.get(make.__name__, {})}


def pairs_of(corpus):
    """Lines of the text, of all lengths, and their last words, of one to five."""
    lines = [line.split() for line in corpus.read_text().splitlines() if len(line) > 20][:PAIRS]
    return [(" ".join(words[:1 + i % 9]), " ".join(words[-(1 + i % 5):])) for i, words in enumerate(lines)]


def tokenizer_of(corpus):
    """Of parts of words, with T5's marks: the pad first, sentinels last and falling."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train([str(corpus)], tokenizers.trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([f"<extra_id_{i}>" for i in reversed(range(SENTINELS))])
    return tokenizer


def text_of(row, tokenizer):
    """The tokens of the corpus that a row was made of: of a T5's, with the spans where they were taken out."""
    if len(row) == CONTEXT + 1:
        return row
    end, sentinels = tokenizer.token_to_id("</s>"), [tokenizer.token_to_id(f"<extra_id_{i}>") for i in range(SENTINELS)]
    spans, text, span = {}, [], []
    for token in row[CONTEXT:-1]:
        if token in sentinels:
            span = spans[token] = []
        else:
            span.append(token)
    assert row[CONTEXT - 1] == row[-1] == end
    used = [token for token in row[:CONTEXT] if token in sentinels]
    assert used and used == sentinels[:len(used)], "the first sentinels, in order"
    for token in row[:CONTEXT - 1]:
        text += spans[token] if token in sentinels else [token]
    return text


def logits_of(model, rows):
    """The logits and the targets, of which padding is -100."""
    if model.config.model_type == "t5" and rows.shape[1] == CONTEXT + TARGET:
        inputs, targets = rows[:, :CONTEXT], rows[:, CONTEXT:]
        labels = targets.masked_fill(targets < 0, -100)
        return model(input_ids=inputs.clamp_min(0), attention_mask=(inputs >= 0).long(), labels=labels).logits, labels
    if model.config.model_type == "t5":
        inputs, targets = rows[:, :CONTEXT], rows[:, CONTEXT:]
        return model(input_ids=inputs, labels=targets.contiguous()).logits, targets
    return model(input_ids=rows[:, :-1]).logits, rows[:, 1:]


def rate_at(step, train):
    if step < train["warmup"]:
        return train["learning_rate"] * (step + 1) / train["warmup"]
    done = (step - train["warmup"]) / (STEPS - train["warmup"])
    least = train["minimum_learning_rate"]
    return least + (train["learning_rate"] - least) * 0.5 * (1 + math.cos(math.pi * done))


def optimizer_of(name, groups, train):
    betas, epsilon = (train["beta1"], train["beta2"]), train["epsilon"]
    if name == "adafactor":
        return transformers.optimization.Adafactor(groups, lr=1.0, scale_parameter=True, relative_step=False)
    if name == "adamw8bit":
        torch.compiler.set_stance("force_eager")  # its update is compiled otherwise
        from torchao.optim import AdamW8bit
        return AdamW8bit(groups, betas=betas, eps=epsilon)
    return torch.optim.AdamW(groups, betas=betas, eps=epsilon)


def accumulate(model, rows, micro_batch):
    """The gradients of a batch's mean loss, in micro-batches; the loss."""
    parts = [logits_of(model, part) for part in rows.split(micro_batch)]
    count = sum(int((targets >= 0).sum()) for _, targets in parts)
    loss = 0.0
    for logits, targets in parts:
        part = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / count
        part.backward()
        loss += part.item()
    return loss


def trained(model, rows, name, train, micro_batch):
    """Loss and gradient norm of each step, of the same schedule."""
    decaying = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = optimizer_of(name, [{"params": decaying, "weight_decay": train["weight_decay"]},
                                    {"params": others, "weight_decay": 0.0}], train)
    seen = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            rate = rate_at(step, train)
            group["lr"] = torch.tensor(rate) if name == "adamw8bit" else rate
        optimizer.zero_grad()
        loss = accumulate(model, rows[step], micro_batch)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), train["clip"])
        optimizer.step()
        seen.append((loss, norm.item()))
    return seen


def write_config(path, folder, corpus, name, train, plan):
    lengths = [] if corpus.name == "pairs.safetensors" else [f"context = {CONTEXT}"]
    lines = ["[model]", f'pretrained = "{folder / "from"}"', *lengths, "[data]", f'corpus = "{corpus}"',
             "[train]", f"steps = {STEPS}", f"batch = {BATCH}", f'optimizer = "{name}"',
             *(f"{key} = {value}" for key, value in train.items()),
             "[evaluation]", "windows = 2", "[run]", 'device = "cpu"', f'out = "{folder / "run"}"',
             f'save = "{folder / "to"}"', "[plan]", *(f"{key} = {value}" for key, value in plan.items())]
    path.write_text("\n".join(lines) + "\n")


def difference(a, b):
    return float((a - b).abs().max() / b.abs().max())


class Compared(unittest.TestCase):
    build = corpus = names = None

    def run_program(self, name, *arguments):
        done = subprocess.run([self.build / "bin" / name, *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])

    def tokenized(self, tokenizer, folder, *arguments, out="corpus.safetensors"):
        tokenizer.save(str(folder / "tokenizer.json"))
        done = subprocess.run([sys.executable, "-m", "spillway.tokenize", *arguments, "--tokenizer", folder, "--out",
                               folder / out], env={**os.environ, "PYTHONPATH": str(PACKAGE)}, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return folder / out

    def paired(self, tokenizer, folder):
        (folder / "pairs.jsonl").write_text("".join(
            json.dumps({"text": source, "end": target}) + "\n" for source, target in pairs_of(self.corpus)))
        lengths = ["--source-tokens", str(CONTEXT), "--target-tokens", str(TARGET)]
        return self.tokenized(tokenizer, folder, folder / "pairs.jsonl", "--pairs", "--fields", "text", "end",
                              "--prefix", PREFIX, *lengths, out="pairs.safetensors")

    def check_pairs(self, rows, tokenizer):
        """Each row is what a tokenizer of transformers' makes of a pair, padded and cut."""
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")

        def padded(texts, length):
            made = theirs(texts, max_length=length, truncation=True, padding="max_length", return_tensors="pt")
            return made["input_ids"].masked_fill(made["attention_mask"] == 0, -1)

        sources, targets = zip(*pairs_of(self.corpus))
        known = torch.cat([padded([PREFIX + source for source in sources], CONTEXT), padded(list(targets), TARGET)], 1)
        drawn = {tuple(row) for row in rows.flatten(0, 1).tolist()}
        self.assertLessEqual(drawn, {tuple(row) for row in known.tolist()})
        lengths = {(sum(token >= 0 for token in row[:CONTEXT]), sum(token >= 0 for token in row[CONTEXT:]))
                   for row in drawn}
        self.assertGreater(len(lengths), 50, "of many lengths")

    def check_rows(self, rows, tokenizer):
        ids = tokenizer.encode(self.corpus.read_bytes().decode(), add_special_tokens=False).ids
        whole = " ".join(map(str, ["", *ids, ""]))
        for row in rows.flatten(0, 1).tolist():
            self.assertIn(" ".join(map(str, ["", *text_of(row, tokenizer), ""])), whole)

    def compare(self, make, name, folder):
        train = {**TRAIN, **OPTIMIZERS[name]}
        torch.manual_seed(5)
        model = make().eval()
        with torch.no_grad():  # larger than at the start of a training, so that norms and positions matter
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        model.save_pretrained(folder / "from", max_shard_size="60KB")
        self.assertGreater(len(list((folder / "from").glob("*.safetensors"))), 1, "in shards")
        plan, paired = plan_of(make), make in FAMILIES["pairs"]
        tokenizer = tokenizer_of(self.corpus) if paired or make in FAMILIES["tokens"] else None
        corpus = self.corpus
        if tokenizer:
            corpus = self.paired(tokenizer, folder) if paired else self.tokenized(tokenizer, folder, corpus)
        write_config(folder / "config.toml", folder, corpus, name, train, plan)
        self.run_program("reference_dump", folder / "config.toml", folder / "seen.safetensors")
        self.run_program("spillway-train", "--config", folder / "config.toml")
        seen = safetensors.torch.load_file(folder / "seen.safetensors")
        rows = seen["rows"]
        if tokenizer:
            (self.check_pairs if paired else self.check_rows)(rows, tokenizer)
        with torch.no_grad():
            logits = difference(seen["logits"], logits_of(model, rows[0])[0])
        self.assertLess(logits, 1e-5)
        ours = [[float.fromhex(number) for number in line.split()[1:3]]
                for line in (folder / "run" / "losses.txt").read_text().splitlines() if line.split()[0].isdigit()]
        theirs = trained(model, rows, name, train, plan["micro_batch"])
        self.assertEqual(len(ours), STEPS)
        apart = [max(abs(a[i] - b[i]) / b[i] for a, b in zip(ours, theirs)) for i in range(2)]
        self.assertLess(apart[0], 1e-4, "losses")
        self.assertLess(apart[1], 1e-3, "gradient norms")
        self.assertLess(theirs[-1][0], 0.9 * theirs[0][0], "it learns")
        saved = type(model).from_pretrained(folder / "to").eval()
        with torch.no_grad():
            after = difference(logits_of(saved, rows[0])[0], logits_of(model, rows[0])[0])
        self.assertLess(after, 1e-2, "the weights after 50 steps")
        print(f"{make.__name__}, {name}: logits {logits:.1e}, losses {apart[0]:.1e}, norms {apart[1]:.1e} apart; "
              f"after the training {after:.1e}", flush=True)

    def test_models(self):
        for name in self.names:
            optimizer = name if name in OPTIMIZERS else "adamw"
            for make in FAMILIES.get(name, [gpt2]):
                with self.subTest(make.__name__, optimizer=optimizer), tempfile.TemporaryDirectory() as folder:
                    self.compare(make, optimizer, pathlib.Path(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="+", choices=[*sorted(FAMILIES), *OPTIMIZERS])
    options = parser.parse_args()
    Compared.build, Compared.corpus, Compared.names = options.build.resolve(), options.corpus, options.names
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    unittest.main(argv=["compare.py"])
