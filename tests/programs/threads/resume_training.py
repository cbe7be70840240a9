"""A small GPT: resume_training.py --init_from scratch --out_dir FOLDER, later the same with resume."""
import argparse
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--init_from", choices=["scratch", "resume"], default="scratch")
parser.add_argument("--out_dir", default="out")
parser.add_argument("--max_iters", type=int, default=3)
args = parser.parse_args()

batch_size, block_size, learning_rate = 2, 256, 6e-4
device = "cuda"
model_args = dict(n_layer=8, n_head=8, n_embd=512, vocab_size=8192, n_positions=block_size)
ckpt_path = os.path.join(args.out_dir, "ckpt.pt")


def get_batch():
    x = torch.randint(model_args["vocab_size"], (batch_size, block_size))
    return x.pin_memory().to(device, non_blocking=True)


iter_num = 0
if args.init_from == "scratch":
    print("Initializing a new model from scratch")
    model = GPT2LMHeadModel(GPT2Config(**model_args))
else:
    print(f"Resuming training from {args.out_dir}")
    checkpoint = torch.load(ckpt_path, map_location=device)
    model = GPT2LMHeadModel(GPT2Config(**checkpoint["model_args"]))
    state_dict = checkpoint["model"]
    model.load_state_dict(state_dict)
    iter_num = checkpoint["iter_num"]
model.to(device)

optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
if args.init_from == "resume":
    optimizer.load_state_dict(checkpoint["optimizer"])

last = iter_num + args.max_iters
while iter_num < last:
    tokens = get_batch()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    print(f"iter {iter_num}: loss {loss.item():.4f}", flush=True)

if args.init_from == "scratch":
    os.makedirs(args.out_dir, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "model_args": model_args,
                "iter_num": iter_num}, ckpt_path)
