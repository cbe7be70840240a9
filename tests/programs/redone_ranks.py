"""spillway.step under DDP and fully_shard: in each micro-batch a request of one rank fails, another one each time.

Every rank prints how many of its requests failed, and whether its weights, gradients and losses are those of an
undisturbed run.
"""
import ctypes
import hashlib
import os
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import small_gpt
import spillway
from ranks import Ranks

STEPS, ROWS, LENGTH, VOCABULARY = 14, 2, 16, 64


class Faults:
    """Fails one request of a micro-batch, on the rank whose turn it is."""

    def __init__(self, rank):
        self._library = ctypes.CDLL(str(pathlib.Path(os.environ["SPILLWAY_LIBRARIES"]) / "libspillway_test_faults.so"))
        self._library.requests.restype = self._library.fail_one_request.restype = ctypes.c_uint64
        self.rank, self.most, self.fired, self.sweeps = rank, 0, 0, False
        self._begun, self._swept = 0, set()

    def begin(self, step):
        """Of a micro-batch that is made again only the first run is failed."""
        self._begun = self._library.requests()
        if self.sweeps and step % 2 == self.rank and step not in self._swept:
            self._swept.add(step)
            self._library.fail_one_request(ctypes.c_uint64(1 + step * self.most // STEPS))

    def end(self):
        """At the end of the forward and backward that may fail; what DDP then reduces is not part of them."""
        self.most = max(self.most, self._library.requests() - self._begun)
        self.fired += self._library.fail_one_request(ctypes.c_uint64(0))


def new_model(api):
    torch.manual_seed(3)
    with torch.device("cuda"):
        gpt = small_gpt.GPT(2, 32, 4, VOCABULARY, LENGTH)
    if api == "ddp":
        return DistributedDataParallel(gpt)
    for part in gpt:
        if isinstance(part, small_gpt.Block):
            fully_shard(part)
    return fully_shard(gpt)


def train(api, ranks, faults, decorate):
    model = new_model(api)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = hashlib.sha256()

    @decorate
    def micro_batch(model, tokens, step):
        faults.begin(step)
        loss = small_gpt.loss_of(model(tokens), tokens)
        loss.backward()
        faults.end()
        return loss.detach()

    generator = torch.Generator().manual_seed(ranks.number)
    for step in range(STEPS):
        tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator).cuda()
        loss = micro_batch(model, tokens, step)
        for tensor in (loss, *(one.grad for one in model.parameters())):
            state.update(getattr(tensor, "_local_tensor", tensor).cpu().numpy().tobytes())
        optimizer.step()
        optimizer.zero_grad()
    return state.hexdigest()


def main():
    spillway.install()
    ranks = Ranks()
    for api in ("ddp", "fully_shard"):
        faults = Faults(ranks.number)
        undisturbed = train(api, ranks, faults, lambda function: function)
        faults.sweeps = True
        disturbed = train(api, ranks, faults, spillway.step)
        ranks.print(f"{api} fired={faults.fired} equal={int(disturbed == undisturbed)}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
