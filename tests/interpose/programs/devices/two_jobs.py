"""two_jobs.py JOB RANK FOLDER: one of two jobs' two ranks, on two cards of 40 GiB. Rank 0 of both has the first card,
rank 1 of both the second one, and the jobs know nothing of each other. FOLDER is only for where a job meets, and
their timing.

In each job one rank has 30 GiB in its cache and waits in a sum for the other rank, which comes to it when it has 20
GiB. Those who lack memory are rank 0 of job 0 and rank 1 of job 1: each can have it from the rank beside it alone,
which waits for the one that asks on the other card. If help waited for a sum to end, and a sum for help, all four
would for ever.
"""
import os
import pathlib
import sys
import time

job, rank, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

GIB = 1 << 30


def wait_for(name):
    for _ in range(1200):
        if (folder / name).exists():
            return
        time.sleep(0.05)
    sys.exit(f"job {job}, rank {rank}: {name} never came")


dist.init_process_group("nccl", init_method=f"file://{folder}/job-{job}", rank=rank, world_size=2,
                        device_id=torch.device("cuda", 0))
summed = torch.ones(1 << 10, device="cuda")
dist.all_reduce(summed)
torch.cuda.synchronize()
if job == rank:
    wait_for(f"hoarded-{1 - job}")
    time.sleep(1)  # the other ranks are in their sums by then
    blocks = []
    try:
        blocks += [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(20)]
    except torch.OutOfMemoryError:
        print(f"job {job}, rank {rank}: ran out", flush=True)
else:
    blocks = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(30)]
    del blocks
    (folder / f"hoarded-{job}").touch()
dist.all_reduce(summed)
torch.cuda.synchronize()
print(f"job {job}, rank {rank}: past the sum", flush=True)
(folder / f"past-{job}-{rank}").touch()
wait_for(f"past-{job}-{1 - rank}")
os._exit(0)  # c10d's threads end with it
