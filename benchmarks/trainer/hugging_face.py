"""hugging_face.py CORPUS RESULT: a GPT-2 trained by Hugging Face's Trainer; tokens a second and peak bytes as JSON.

The same model, text and batch as techniques.py gives spillway-train: bytes as tokens, windows of the text, AdamW.
"""
import json
import pathlib
import sys
import time

import torch
import transformers

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, STEPS, WARM = 6, 384, 6, 128, 8, 10, 2


class Windows(torch.utils.data.Dataset):
    def __init__(self, text):
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def __len__(self):
        return len(self.text) // CONTEXT

    def __getitem__(self, index):
        tokens = self.text[index * CONTEXT:(index + 1) * CONTEXT].long()
        return {"input_ids": tokens, "labels": tokens}


class Clock(transformers.TrainerCallback):
    seconds = []

    def on_step_begin(self, *_, **__):
        torch.cuda.synchronize()
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.start)


def main():
    corpus, result = map(pathlib.Path, sys.argv[1:3])
    torch.set_num_threads(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=LAYERS, n_embd=WIDTH, n_head=HEADS, n_positions=CONTEXT, vocab_size=256, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, use_cache=False))
    arguments = transformers.TrainingArguments(
        output_dir=str(result.with_suffix("")), per_device_train_batch_size=BATCH, max_steps=STEPS, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True, learning_rate=1e-3, optim="adamw_torch")
    transformers.Trainer(model, arguments, train_dataset=Windows(corpus.read_bytes()), callbacks=[Clock()]).train()
    steps = Clock.seconds[WARM:]
    result.write_text(json.dumps({"tokens_per_second": BATCH * CONTEXT * len(steps) / sum(steps),
                                  "peak": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
