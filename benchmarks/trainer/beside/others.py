"""others.py WAY RESULT [SIZES]: a Hugging Face GPT-2 trained a few steps by others' offload; peaks and losses as JSON.

beside.py runs it on a simulated card. A way is a function here. The model, the batch and AdamW are the same in each;
all have weights in bfloat16 for the computation, 32-bit masters and moments, and recompute every block.
"""
import argparse
import contextlib
import json
import os
import pathlib
import tempfile

import torch
import torch.distributed
import transformers

RATE = 1e-4


def make_model(options):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=options.layers, n_embd=options.width, n_head=options.width // 64, n_positions=options.context,
        vocab_size=256, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False))


def recompute(model):
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def usual_step(model, optimizer, forward_in):
    def step(tokens):
        with forward_in():
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step


def torch_alone(options):
    """32-bit weights, and autocast: the usual loop without offload."""
    model = recompute(make_model(options)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    return usual_step(model, optimizer, lambda: torch.autocast("cuda", torch.bfloat16))


def fsdp2(options):
    """PyTorch's FSDP2 with CPUOffloadPolicy, a unit a layer, on one rank: what Accelerate's FSDP version 2 calls."""
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    join_group("cpu:gloo,cuda:nccl")
    model = recompute(make_model(options))
    kinds = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
             "offload_policy": CPUOffloadPolicy(pin_memory=True)}
    for layer in model.transformer.h:
        fully_shard(layer, **kinds)
    fully_shard(model, **kinds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    return usual_step(model, optimizer, contextlib.nullcontext)


def join_group(backend):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    store = torch.distributed.TCPStore("127.0.0.1", 0, 1, is_master=True)
    torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)


def deepspeed(options, zero):
    import deepspeed as package
    join_group("nccl")
    square = options.width**2  # sizes of buffers: what Hugging Face's integration sets where a user says "auto"
    zero = {**zero, "reduce_bucket_size": square, "stage3_prefetch_bucket_size": square * 9 // 10,
            "stage3_param_persistence_threshold": 10 * options.width}
    config = {"train_micro_batch_size_per_gpu": options.batch, "gradient_accumulation_steps": 1,
              "bf16": {"enabled": True}, "gradient_clipping": 1.0, "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": RATE}},
              "aio": {"block_size": 1 << 20, "queue_depth": 64, "intra_op_parallelism": 1, "overlap_events": True}}
    engine, *_ = package.initialize(model=recompute(make_model(options)), config=config, dist_init_required=False)

    def step(tokens):
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        return loss
    return step


def zero_offload(options):
    return deepspeed(options, {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}})


def zero_infinity_cpu(options):
    return deepspeed(options, {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True},
                               "offload_param": {"device": "cpu", "pin_memory": True}})


def zero_infinity_nvme(options):
    where = {"device": "nvme", "nvme_path": options.folder, "pin_memory": True}
    return deepspeed(options, {"stage": 3, "offload_optimizer": {**where, "buffer_count": 4},
                               "offload_param": {**where, "buffer_count": 5, "buffer_size": 5 * 10**7}})


WAYS = {"torch": torch_alone, "fsdp2": fsdp2, "zero-offload": zero_offload, "zero-infinity-cpu": zero_infinity_cpu,
        "zero-infinity-nvme": zero_infinity_nvme}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("result", type=pathlib.Path)
    for name in ("layers", "width", "context", "batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(dir=options.result.parent) as options.folder:
        step = WAYS[options.way](options)
        losses = []
        for _ in range(options.steps):
            losses.append(step(torch.randint(256, (options.batch, options.context)).cuda()).detach())
        torch.cuda.synchronize()
        options.result.write_text(json.dumps({"peak": torch.cuda.max_memory_allocated(),
                                              "losses": [loss.item() for loss in losses]}))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
