"""What this folder's programs share: a small GPT-2 with dropout, its batches, and failures inside micro-batches."""
import ctypes
import gc
import hashlib
import os
import pathlib
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import spillway

ACCUMULATION = 2
ROWS = 4


def new_model():
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=97, n_positions=16, n_embd=32, n_layer=1, n_head=4,
                        bos_token_id=None, eos_token_id=None)  # dropout 0.1 by default
    return GPT2LMHeadModel(config)


def batches(count):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, 97, (ROWS, 16), generator=generator) for _ in range(count)]


def digest(model, losses):
    """Of every bit of the weights and the losses."""
    state = hashlib.sha256()
    for tensor in (*model.parameters(), *model.buffers(), *losses):
        state.update(tensor.detach().cpu().numpy().tobytes())
    return state.hexdigest()


class Faults:
    """Fails each micro-batch at another of its requests, and all that follow, until `make_room` is called."""

    def __init__(self):
        self._library = ctypes.CDLL(str(pathlib.Path(os.environ["SPILLWAY_LIBRARIES"]) / "libspillway_test_faults.so"))
        self._library.requests.restype = self._library.fail_requests.restype = ctypes.c_uint64
        self.positions = iter(())
        self.counted = []  # requests of each micro-batch
        self.fired = 0  # micro-batches in which a request failed
        self._begun = None

    def begin(self):
        """Inside a micro-batch, before its first request. Of one that is redone only the first run is failed."""
        if self._begun is None:
            self._begun = self._library.requests()
            self._library.fail_requests(ctypes.c_uint64(next(self.positions, 0)))

    def make_room(self):
        self.fired += self._library.fail_requests(ctypes.c_uint64(0)) > 0

    def end(self):
        """After the micro-batch."""
        self.make_room()
        self.counted.append(self._library.requests() - self._begun)
        self._begun = None


def main(train):
    """A program that is called with MICRO_BATCHES: `train(step, faults, micro_batches)` is swept."""
    torch.set_num_threads(2)
    count = int(sys.argv[1])
    sweep(lambda step, faults: train(step, faults, count), count)


def sweep(train, micro_batches):
    """Trains undisturbed, then with a failure in each micro-batch, spread over all of its requests; what it prints is
    compared by the tests. `train(step, faults)` returns the digest of its result; `step`: spillway.step, or nothing."""
    spillway.install()
    gc.freeze()  # what was imported: a collection takes 0.3 s otherwise
    faults = Faults()
    undisturbed = train(lambda function, **_: function, faults)
    most = max(faults.counted)
    print("micro-batches", len(faults.counted), "requests", most)
    faults.positions = iter([1 + i * most // micro_batches for i in range(micro_batches)])
    recoveries = []

    def step(function, **options):
        redone = spillway.step(function, make_room=faults.make_room, **options)
        recoveries.append(redone.recovery)
        return redone

    disturbed = train(step, faults)
    gc.unfreeze()
    print("fired", faults.fired, "redone", sum(one.redone for one in recoveries))
    print("undisturbed", undisturbed)
    print("disturbed", disturbed)
