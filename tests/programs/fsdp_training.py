"""Fully sharded data parallel on a GPT-2 XL shape (1.6 billion parameters), bf16 with fp32 reduction.

--api fully_shard shards each block's parameters as DTensors, --api fsdp1 as one flat parameter.
"""
import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

import common
import small_gpt
from ranks import Ranks


def shard(gpt, options):
    low = torch.bfloat16 if options.bf16 else torch.float32
    if options.api == "fsdp1":
        blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={small_gpt.Block})
        precision = MixedPrecision(param_dtype=low, reduce_dtype=torch.float32)
        return FullyShardedDataParallel(gpt, auto_wrap_policy=blocks, mixed_precision=precision,
                                        device_id=torch.cuda.current_device(), use_orig_params=True)
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32)
    for part in gpt:
        if isinstance(part, small_gpt.Block):
            fully_shard(part, mp_policy=policy)
    return fully_shard(gpt, mp_policy=policy)


def main():
    options = common.options(__doc__, api="fully_shard", layers=48, width=1600, heads=25, vocabulary=50257, batch=8,
                             length=512, bf16=False)
    ranks = Ranks()
    with torch.device("cuda"):
        gpt = small_gpt.GPT(options.layers, options.width, options.heads, options.vocabulary, options.length)
    model = shard(gpt, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in zip(range(options.steps), small_gpt.batches(options)):
        tokens = small_gpt.part_of(batch, ranks.number, ranks.count)
        loss = small_gpt.loss_of(model(tokens), tokens)
        loss.backward()
        if options.api == "fsdp1":
            model.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ranks.print(f"step {step}: loss={ranks.mean(loss):.7f} memory_allocated={torch.cuda.memory_allocated()}")
    dist.barrier()
    ranks.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
