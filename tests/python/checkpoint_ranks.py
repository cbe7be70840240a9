"""A program of several ranks that goes on with a training from a folder of torch.distributed.checkpoint, sharded by
FSDP, and saves it as it would its own, before its steps and after them: checkpoint_ranks.py FROM BEFORE AFTER STEPS.
Rank 0 prints, of what it loaded, a digest of each weight and moment."""
import hashlib
import json
import os
import pathlib
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict,
                                                     set_model_state_dict, set_optimizer_state_dict)
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

source, before, after = map(pathlib.Path, sys.argv[1:4])


def digest(tensor):
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def save(folder):
    dcp.save({"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)},
             checkpoint_id=folder)


torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4, n_positions=64, vocab_size=256, resid_pdrop=0,
                                   embd_pdrop=0, attn_pdrop=0))
mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
for block in model.transformer.h:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

state = {"model": get_model_state_dict(model), "optim": {"state": get_optimizer_state_dict(model, optimizer)["state"]}}
dcp.load(state, checkpoint_id=source)
set_model_state_dict(model, state["model"])
groups = get_optimizer_state_dict(model, optimizer)["param_groups"]
set_optimizer_state_dict(model, optimizer, {"state": state["optim"]["state"], "param_groups": groups})

whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
weights = get_model_state_dict(model, options=whole)
moments = get_optimizer_state_dict(model, optimizer, options=whole)
if torch.distributed.get_rank() == 0:
    print(json.dumps({"weights": {name: digest(one) for name, one in weights.items()},
                      "first": {name: digest(one["exp_avg"]) for name, one in moments["state"].items()},
                      "second": {name: digest(one["exp_avg_sq"]) for name, one in moments["state"].items()},
                      "steps": sorted({float(one["step"]) for one in moments["state"].values()})}))
save(before)
for _ in range(int(sys.argv[4])):
    tokens = torch.randint(0, 256, (4, 32))
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
save(after)
torch.distributed.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # an interpreter that ends meets threads of PyTorch that still run, now and then, and aborts
