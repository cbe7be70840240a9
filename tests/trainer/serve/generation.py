"""generation.py BUILD --corpus TEXT: spillway-serve beside transformers, on the same small weights.

Greedy tokens of prompts of several lengths, in one batch with room and in one whose cache is too small for it, equal
those of transformers' `generate`, one prompt at a time; so do those of layers on two simulated cards. The perplexity of
a text by strided windows equals that of transformers' models, each token predicted once.
"""
import argparse
import json
import math
import pathlib
import random
import re
import subprocess
import tempfile
import unittest

import torch
import transformers

CONTEXT, NEW = 96, 32
LENGTHS = [1, 5, 16, 17, 31, 50, 3, 40, 7, 23, 48]
GPT2 = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT, "vocab_size": 256, "bos_token_id": None,
        "eos_token_id": None}
LLAMA = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 112,
         "vocab_size": 300, "max_position_embeddings": CONTEXT, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "vocab_size": 384,
      "decoder_start_token_id": 0, "n_positions": CONTEXT, "feed_forward_proj": "gated-gelu"}
ON_TWO_CARDS = ["simulate", "--gpus", "2", "--capacity", "256MiB", "--values", "compute", "--"]
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, num_key_value_heads=2)),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
}


def perplexity(model, tokens, window, stride):
    """The mean of the losses in nats, and how many there are."""
    total, count, end = 0.0, 0, 0
    for begin in range(0, len(tokens), stride):
        before, end = end, min(begin + window, len(tokens))
        part = torch.tensor([tokens[begin:end]])
        predicted = end - max(before, 1)
        logits = model(input_ids=part).logits[0, -predicted - 1:-1]
        total += torch.nn.functional.cross_entropy(logits, part[0, -predicted:], reduction="sum").item()
        count += predicted
        if end == len(tokens):
            return total / count, count


class Generation(unittest.TestCase):
    build = corpus = None

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def model(self, name):
        torch.manual_seed(11)
        model = MODELS[name]().eval()
        with torch.no_grad():  # larger than new ones, so that no two logits are as good as equal
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.save_pretrained(self.folder / name)
        return model

    def serve(self, name, *arguments):
        several = "--device-map" in arguments
        before = [self.build / "bin" / "spillway", *ON_TWO_CARDS] if several else []
        where = [] if several else ["--device", "cpu"]
        done = subprocess.run([*before, self.build / "bin" / "spillway-serve", *where, "--threads", "1", "--model",
                               self.folder / name, *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done

    def answers(self, name, prompts, *options):
        requests = self.folder / "requests.jsonl"
        requests.write_text("".join(json.dumps({"prompt": prompt, "max_tokens": NEW, "temperature": 0}) + "\n"
                                    for prompt in prompts))
        done = self.serve(name, *options, "generate", requests)
        choices = [json.loads(line)["choices"][0] for line in done.stdout.splitlines()]
        preempted = int(re.search(r"(\d+) pre-emptions", done.stderr).group(1))
        return [choice["token_ids"] for choice in choices], [choice["finish_reason"] for choice in choices], preempted

    def test_greedy_tokens_are_those_of_transformers(self):
        for name in MODELS:
            with self.subTest(name):
                model = self.model(name)
                draw = random.Random(3)
                prompts = [[draw.randrange(3, 256) for _ in range(length)] for length in LENGTHS]
                theirs = []
                for prompt in prompts:
                    ids = torch.tensor([prompt])
                    made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                          max_new_tokens=NEW, pad_token_id=0,
                                          use_cache=name != "t5")[0].tolist()  # theirs wants as many layers of both
                    theirs.append(made[1:] if name == "t5" else made[len(prompt):])
                ours, reasons, preempted = self.answers(name, prompts)
                self.assertEqual(ours, theirs)
                self.assertEqual(preempted, 0)
                self.assertEqual(reasons, ["length" if len(made) == NEW else "stop" for made in theirs])
                ours, _, preempted = self.answers(name, prompts, "--blocks", "8", "--prefill-tokens", "24")
                self.assertEqual(ours, theirs, "with a cache that is too small")
                self.assertGreater(preempted, 0)
                ours, _, spread = self.answers(name, prompts, "--device-map", "even", "--blocks", "8",
                                               "--prefill-tokens", "24")
                self.assertEqual(ours, theirs, "with layers on two cards")
                self.assertEqual(spread, preempted)
                print(f"{name}: {sum(map(len, theirs))} tokens equal, also with {preempted} pre-emptions, and on two "
                      "cards", flush=True)

    def test_perplexity_is_that_of_transformers_models(self):
        text = self.folder / "text.txt"
        text.write_bytes(self.corpus.read_bytes()[:1500])
        model = self.model("gpt2")
        for window, stride in ((96, 48), (40, 7), (96, 95)):
            with torch.no_grad():
                nats, count = perplexity(model, list(text.read_bytes()), window, stride)
            said = self.serve("gpt2", "perplexity", text, "--window", str(window), "--stride", str(stride)).stdout
            ours = re.search(r"perplexity (\S+): (\S+) nats a token, of (\d+) tokens", said)
            self.assertEqual(int(ours.group(3)), count)
            self.assertEqual(count, 1499)
            self.assertLess(abs(float(ours.group(2)) - nats) / nats, 2e-6)
            self.assertLess(abs(float(ours.group(1)) - math.exp(nats)) / math.exp(nats), 2e-5)
            a_byte = float(re.search(r"^(\S+) nats and", said, re.MULTILINE).group(1))
            self.assertAlmostEqual(a_byte, nats * count / 1500, places=4)
            if window == stride * 2:
                spread = self.serve("gpt2", "perplexity", text, "--window", str(window), "--stride", str(stride),
                                    "--device-map", "[0, 1, 0]").stdout
                self.assertEqual(spread, said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    options = parser.parse_args()
    Generation.build, Generation.corpus = options.build.resolve(), options.corpus
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    unittest.main(argv=["generation.py"])
