#!/usr/bin/env python3
"""sharing.py: under `spillway run --mode replace --limit BYTES`, gives tensors to another process by
torch.multiprocessing, one of them with memory that was moved to the host. Each process reads what the other has
written, byte by byte. Prints as JSON what was wrong, or "right"."""
import json

import torch
import torch.multiprocessing as multiprocessing
from spilled_memory import MEMORY_TYPE, attribute
from spillway_memory import query

SECONDS = 60  # that one process waits for the other
HOST, PIECE = 1, 64 << 20  # CU_MEMORYTYPE_HOST; bytes of each tensor until one is moved
SMALL = (1, 100_003, 5 << 20)  # bytes: parts of a page, and more than one page


def expected(size, seed):
    return torch.randint(256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def judged(tensor, seed):
    wrong = (tensor.cpu() != expected(tensor.numel(), seed)).sum().item()
    return "right" if wrong == 0 else f"{wrong} of {tensor.numel()} bytes are wrong"


def reader(questions, answers):
    """Has memory of its own from Spillway beside what it is given."""
    own = torch.full((4 << 20,), 5, dtype=torch.uint8, device="cuda")
    answers.put(query().live >= own.numel())
    for tensor, seed in iter(questions.get, None):
        answers.put(judged(tensor, seed))
        tensor.copy_(expected(tensor.numel(), seed + 1))
        torch.cuda.synchronize()
        answers.put("written")
        del tensor
    answers.put(bool((own == 5).all()))


def pass_on(tensor, seed, questions, answers):
    """What the other process read, and what this one then reads of it."""
    tensor.copy_(expected(tensor.numel(), seed))
    torch.cuda.synchronize()
    questions.put((tensor, seed))
    read = answers.get(timeout=SECONDS)
    answers.get(timeout=SECONDS)
    return {"read": read, "written": judged(tensor, seed + 1)}


def bytes_on_the_host(tensor):
    """As far as the driver says so."""
    pages = range(tensor.data_ptr(), tensor.data_ptr() + tensor.numel(), 2 << 20)
    return (2 << 20) * sum(attribute(address, MEMORY_TYPE) == HOST for address in pages)


def with_moved_memory(limit):
    """A tensor that lies on the host, and how much of it does."""
    pieces, before = [], query().spilled
    while query().spilled == before and len(pieces) <= limit // PIECE:
        pieces.append(torch.zeros(PIECE, dtype=torch.uint8, device="cuda"))
    return max(((piece, bytes_on_the_host(piece)) for piece in pieces), key=lambda found: found[1])


def main():
    context = multiprocessing.get_context("spawn")
    questions, answers = context.Queue(), context.Queue()
    child = context.Process(target=reader, args=(questions, answers), daemon=True)
    child.start()
    torch.ones(1, device="cuda")
    result = {"spillway in the other process": answers.get(timeout=SECONDS)}
    tensors = {f"{size} bytes": torch.empty(size, dtype=torch.uint8, device="cuda") for size in SMALL}
    result["spillway here"] = query().live >= sum(tensor.numel() for tensor in tensors.values())
    tensors["moved memory"], result["moved"] = with_moved_memory(query().limit)
    result["tensors"] = {name: pass_on(tensor, 2 * number, questions, answers)
                         for number, (name, tensor) in enumerate(tensors.items())}
    questions.put(None)
    result["its own bytes"] = answers.get(timeout=SECONDS)
    child.join(SECONDS)
    result["exit code"] = child.exitcode
    print(json.dumps(result))


if __name__ == "__main__":
    main()
