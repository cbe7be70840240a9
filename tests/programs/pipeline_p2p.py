"""A pipeline over the ranks with sends and receives: each rank has a part of the layers, micro-batches go through.

Activations go forward and their gradients back, all forward passes first; --batched exchanges with batch_isend_irecv.
"""
import torch
import torch.distributed as dist

import common
import small_gpt
from ranks import Ranks


class Neighbours:
    def __init__(self, ranks, batched):
        self.ranks, self.batched = ranks, batched

    def exchange(self, operation, tensor, peer):
        if self.batched:
            for work in dist.batch_isend_irecv([dist.P2POp(operation, tensor, peer)]):
                work.wait()
        else:
            operation(tensor, peer).wait()

    def send(self, tensor, to):
        self.exchange(dist.isend, tensor.contiguous(), to)

    def receive(self, shape, source):
        tensor = torch.empty(shape, device="cuda")
        self.exchange(dist.irecv, tensor, source)
        return tensor


def main():
    options = common.options(__doc__, layers=24, width=1024, heads=16, vocabulary=50257, batch=8, length=512,
                             micro_batches=4, batched=False)
    ranks = Ranks()
    number, last = ranks.number, ranks.count - 1
    with torch.device("cuda"):
        gpt = small_gpt.GPT(options.layers, options.width, options.heads, options.vocabulary, options.length)
    size = -(-len(gpt) // ranks.count)
    stage = torch.nn.Sequential(*list(gpt)[number * size : (number + 1) * size])
    del gpt
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    neighbours = Neighbours(ranks, options.batched)
    shape = (options.batch // options.micro_batches, options.length, options.width)
    for step, batch in zip(range(options.steps), small_gpt.batches(options)):
        flights, total = [], torch.zeros((), device="cuda")
        for tokens in batch.to("cuda").chunk(options.micro_batches):
            given = tokens if number == 0 else neighbours.receive(shape, number - 1).requires_grad_()
            result = stage(given)
            if number == last:
                result = small_gpt.loss_of(result, tokens) / options.micro_batches
                total += result.detach()
            else:
                neighbours.send(result.detach(), number + 1)
            flights.append((given, result))
        for given, result in flights:
            result.backward(None if number == last else neighbours.receive(shape, number + 1))
            if number > 0:
                neighbours.send(given.grad, number - 1)
        optimizer.step()
        optimizer.zero_grad()
        dist.broadcast(total, last)
        ranks.print(f"step {step}: loss={total.item():.7f} memory_allocated={torch.cuda.memory_allocated()}")
    dist.barrier()
    ranks.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
