"""Ranks under Ray Train: a PyTorch loop whose micro-batches are redone, or spillway-train's own ranks.

usage: ray_train.py [--workers N] [--gpu]                    a DDP loop; the last rank's third micro-batch runs out of
                                                             memory once
       ray_train.py [--workers N] [--gpu] -- PROGRAM ...     each worker starts PROGRAM (spillway-train --config ...) as
                                                             its rank

Needs `pip install "ray[train]==2.60.0"` beside PyTorch and Spillway. On a cluster start it as any Ray job.
"""
import argparse
import os
import socket
import subprocess

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def train_loop(settings):
    """On each worker. Ray has made the process group, over NCCL or Gloo."""
    import spillway

    torch.manual_seed(0)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    device, rank = ray.train.torch.get_device(), ray.train.get_context().get_world_rank()
    last = ray.train.get_context().get_world_size() - 1
    failures = [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")] if rank == last else []

    @spillway.step(split=True)
    def micro_batch(model, rows, step):
        loss = (model(rows) - rows).square().mean()
        if step == 2 and failures:
            raise failures.pop()  # for show
        loss.backward()
        return loss.detach()

    torch.manual_seed(1 + rank)
    for step in range(4):
        loss = micro_batch(model, torch.randn(32, 64, device=device), step)
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step} on {device}: loss {loss.item():.4f} redone {micro_batch.recovery.redone}")
        ray.train.report({"loss": loss.item()})


def start_program(settings):
    """The program reads RANK and its like, which Ray has set. It meets the other ranks at a port of its own: that of
    MASTER_PORT is taken by Ray's process group."""
    with socket.socket() as one:
        one.bind(("", 0))
        ports = [one.getsockname()[1]]
    torch.distributed.broadcast_object_list(ports, src=0)
    done = subprocess.run(settings["program"], env={**os.environ, "MASTER_PORT": str(ports[0])})
    if done.returncode != 0:
        raise RuntimeError(f"{settings['program'][0]} ended with exit code {done.returncode}")
    ray.train.report({"exit_code": 0})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpu", action="store_true", help="a GPU for each worker")
    parser.add_argument("program", nargs="*")
    settings = vars(parser.parse_args())
    if settings["gpu"]:  # Ray uses a worker's GPU before the worker's function begins
        ray.init(runtime_env={"worker_process_setup_hook": "spillway.install"})
    trainer = TorchTrainer(start_program if settings["program"] else train_loop, train_loop_config=settings,
                           scaling_config=ScalingConfig(num_workers=settings["workers"], use_gpu=settings["gpu"]),
                           run_config=RunConfig(storage_path=os.environ.get("RAY_STORAGE", "/tmp/ray-results")))
    trainer.fit()


if __name__ == "__main__":
    main()
