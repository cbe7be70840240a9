"""Two programs at a time on one card, each of which holds 3 tensors of 64 MiB until both have them."""
import multiprocessing


def hold(both):
    import torch

    held = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
    both.wait()
    return held


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    both = context.Barrier(2)
    processes = [context.Process(target=hold, args=(both,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
