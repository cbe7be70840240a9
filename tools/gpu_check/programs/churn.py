#!/usr/bin/env python3
"""churn.py SECONDS [MOST_SECONDS SERVED]: under `spillway run --mode replace --limit BYTES`, several threads allocate
and launch while blocks are moved under them, and every block's sum is compared with what it should be. With SERVED it
goes on until so many failures were served, or MOST_SECONDS are over. Prints counts as JSON."""
import json
import random
import sys
import threading
import time

import torch
from spillway_memory import query

THREADS, BLOCKS = 4, 12


def fill(block, value):
    block.fill_(value)
    return value * block.numel()


class Churn:
    """Each thread owns some blocks, and each round asks for one more, for which others' or its own may have to move."""

    def __init__(self, limit, goes_on):
        self.count = limit // 4 * 3 // 4 // BLOCKS  # numbers of a block: three quarters of the limit are held
        self.goes_on, self.rounds, self.wrong, self.refused = goes_on, 0, 0, 0
        self.lock = threading.Lock()

    def run(self, number):
        chance = random.Random(number)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            held = [torch.empty(self.count, dtype=torch.int32, device="cuda") for _ in range(BLOCKS // THREADS)]
            sums = [fill(block, chance.randrange(100)) for block in held]
            while self.goes_on():
                self.step(held, sums, chance)

    def step(self, held, sums, chance):
        refused = wrong = 0
        try:
            more = torch.empty(self.count * chance.choice((1, 2)) // 2, dtype=torch.int32, device="cuda")
            total = fill(more, chance.randrange(100))
            wrong += more.sum(dtype=torch.int64).item() != total
            del more
        except torch.OutOfMemoryError:
            refused = 1
        at = chance.randrange(len(held))
        wrong += held[at].sum(dtype=torch.int64).item() != sums[at]
        if chance.random() < 0.3:
            sums[at] = fill(held[at], chance.randrange(100))
        with self.lock:
            self.rounds, self.wrong, self.refused = self.rounds + 1, self.wrong + wrong, self.refused + refused


def main():
    least, most, served = map(float, sys.argv[1:] if len(sys.argv) > 2 else (sys.argv[1], 0, 0))
    torch.ones(1, device="cuda")
    before, start = query(), time.monotonic()

    def goes_on():
        seconds = time.monotonic() - start
        return seconds < least or (seconds < most and query().rescued - before.rescued < served)
    churn = Churn(before.limit - before.context, goes_on)
    threads = [threading.Thread(target=churn.run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = query()
    print(json.dumps({"rounds": churn.rounds, "wrong": churn.wrong, "refused": churn.refused,
                      "rescued": after.rescued - before.rescued, "lost": after.gave_up - before.gave_up,
                      "seconds": time.monotonic() - start}))


if __name__ == "__main__":
    main()
