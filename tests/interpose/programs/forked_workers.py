"""Forks two workers before anything uses the card; each takes all of its memory, and says its number."""
import multiprocessing
import os

import torch


def work():
    kept = []
    try:
        while True:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print(os.getpid(), flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    for _ in range(2):
        worker = multiprocessing.Process(target=work)
        worker.start()
        worker.join()
        assert worker.exitcode == 0
