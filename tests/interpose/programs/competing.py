"""competing.py SEED FOLDER: allocates, frees and trains at random until FOLDER/stop is there, and finds that each of
its tensors holds what it wrote there. Does without memory that it does not get. At its end prints what it did as JSON.
"""
import faulthandler
import json
import os
import pathlib
import random
import sys
import time

import torch

from simulator_control import CONTROL, broken_invariant, counts, text

MIB = 1 << 20
MOST_LIVE = 300 * MIB
HANG_SECONDS, LONG_SECONDS, END_SECONDS = 60, 2, 20


class Wait:
    """Seconds in which this thread did not run and could not have run: a busy machine is no wait."""

    def __init__(self):
        self.begin, self.busy = time.monotonic(), self.ran_or_ready()

    @staticmethod
    def ran_or_ready():
        ran, ready, _ = pathlib.Path("/proc/self/schedstat").read_text().split()
        return (int(ran) + int(ready)) / 1e9

    def seconds(self):
        return time.monotonic() - self.begin - (self.ran_or_ready() - self.busy)


class Program:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tag = seed % (1 << 20)
        self.live = []  # a tensor and its value
        self.done = {"operations": 0, "refused": 0, "trained": 0, "longest_wait_ms": 0}
        self.losses = None

    def bytes_live(self):
        return sum(tensor.numel() * 4 for tensor, _ in self.live)

    def allocate(self):
        size = self.random.choice((self.random.randint(1, 4 * MIB), self.random.randint(4 * MIB, 64 * MIB)))
        if self.bytes_live() + size > MOST_LIVE:
            return self.free()
        value = (self.tag << 11 | self.random.getrandbits(11)) & 0x7FFFFFFF
        self.live.append((torch.full((max(size // 4, 1),), value, dtype=torch.int32, device="cuda"), value))

    def check(self, entry):
        tensor, value = entry
        if not bool((tensor == value).all()):
            sys.exit(f"{int((tensor != value).sum())} of {tensor.numel()} numbers are not {value}")

    def free(self):
        if self.live:
            entry = self.live.pop(self.random.randrange(len(self.live)))
            self.check(entry)

    def train(self):
        torch.manual_seed(5)
        layers = [torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)]
        model = torch.nn.Sequential(*layers).to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(2):
            loss = model(torch.ones(16, 512, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
        self.losses = self.losses or losses
        if losses != self.losses:
            sys.exit(f"the same training had the losses {self.losses} and {losses}")
        self.done["trained"] += 1

    def warm_up(self):
        """What PyTorch loads at a first training is no wait for memory."""
        for _ in range(20):
            try:
                return self.train()
            except torch.OutOfMemoryError:
                time.sleep(0.1)

    def check_all(self):
        for entry in self.live:
            self.check(entry)
        broken = broken_invariant()
        if broken is not None:
            sys.exit(broken)
        if counts().violations != 0:
            sys.exit(text(CONTROL.violations))

    def check_at_last(self):
        """A comparison needs memory too, of which the others leave some as soon as they are past theirs."""
        until = time.monotonic() + END_SECONDS
        while True:
            try:
                return self.check_all()
            except torch.OutOfMemoryError:
                if time.monotonic() > until:
                    raise
                torch.cuda.empty_cache()
                time.sleep(0.1)

    def operate(self):
        choices = (self.allocate, self.free, self.train, self.check_all, torch.cuda.empty_cache)
        operation = self.random.choices(choices, weights=(60, 25, 5, 3, 1))[0]
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        wait = Wait()
        try:
            operation()
        except torch.OutOfMemoryError:
            self.done["refused"] += 1
            del self.live[::2]
        waited = wait.seconds()
        faulthandler.cancel_dump_traceback_later()
        self.done["operations"] += 1
        self.done["longest_wait_ms"] = max(self.done["longest_wait_ms"], round(1000 * waited))
        if waited > LONG_SECONDS:
            print("waited", json.dumps({"in": operation.__name__, "seconds": waited, "begin": wait.begin,
                                        "end": time.monotonic()}), flush=True)


def main():
    folder = pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    program = Program(int(sys.argv[1]))
    program.warm_up()
    print("begun", os.getpid(), flush=True)
    while not (folder / "stop").exists():
        program.operate()
    program.check_at_last()
    print(json.dumps(program.done))


if __name__ == "__main__":
    main()
