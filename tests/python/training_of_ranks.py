"""A training of some steps on one rank of several, in which memory runs out where a test wants it to."""
import hashlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import spillway

STEPS, ROWS, WIDTH = 4, 4, 6


def shortage():
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")


class Net(torch.nn.Module):
    """Three layers, each of which can run out of memory in its forward or its backward."""

    def __init__(self, batch_norm, unused):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.norm = torch.nn.BatchNorm1d(WIDTH) if batch_norm else torch.nn.Identity()
        self.dropout = torch.nn.Dropout(0.3)
        # One that rank 0 alone uses, and one that nobody does.
        self.unused = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2 * unused))

    def forward(self, rows):
        if self.unused and dist.get_rank() == 0:
            rows = self.unused[0](rows)
        for layer in self.layers:
            rows = layer(rows)
        return self.dropout(self.norm(rows))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, rows):
        if FAULT.hits("forward", self, rows):
            raise shortage()
        rows = torch.tanh(self.linear(rows))
        if rows.requires_grad:
            rows.register_hook(lambda gradient: fail() if FAULT.hits("backward", self, gradient) else None)
        return rows


def fail():
    raise shortage()


class Fault:
    """At one rank, layer and step, in forward or backward, `times` times, of calls with more than `most` rows."""

    def __init__(self):
        self.where, self.layer, self.step, self.left, self.most, self.now = "", 0, 0, 0, 0, 0
        self.action = fail

    def hits(self, where, layer, rows):
        mine = where == self.where and layer.number == self.layer and self.now >= self.step and len(rows) > self.most
        if not mine or not self.left:
            return False
        self.left -= 1
        self.action()
        return True


FAULT = Fault()


def batch(rank, step, rows=ROWS):
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(100 * rank + step))


def digest(tensors):
    state = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        state.update(whole.detach().numpy().tobytes())
    return state.hexdigest()


class Training:
    """Some steps of one rank; `before(step, micro_batch)` runs before each step; `named(model, optimizer)` is what
    spillway.step is given as `model`."""

    def __init__(self, kind, fault=None, before=lambda step, function: None, rows=ROWS, evaluation=False, stock=False,
                 accumulation=1, ddp=None, unused=False, two_models=False, named=None, **options):
        self.kind, self.fault, self.before, self.rows, self.evaluation = kind, fault, before, rows, evaluation
        self.accumulation, self.ddp, self.unused, self.two_models = accumulation, ddp or {}, unused, two_models
        self.stock, self.named, self.options = stock, named, options

    def model(self):
        model = Net(self.kind == "ddp", self.unused)
        for number, layer in enumerate(model.layers):
            layer.number = number
        if self.kind == "ddp":
            return DistributedDataParallel(model, **self.ddp)
        if self.kind == "fully_shard":
            for layer in model.layers:
                fully_shard(layer)
            return fully_shard(model)
        if self.kind == "replicated shards":
            return fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))
        return model

    def decorate(self, model, optimizer):
        if self.stock:
            return lambda function: function
        return spillway.step(model=self.named and self.named(model, optimizer), **self.options)

    def __call__(self, rank, size):
        FAULT.__init__()
        for name, value in (self.fault or {}).get(rank, {}).items():
            setattr(FAULT, name, value)
        model = self.model()
        other = fully_shard(torch.nn.Linear(WIDTH, WIDTH)) if self.two_models else None
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        @self.decorate(model, optimizer)
        def micro_batch(model, rows):
            loss = model(rows).square().mean() / self.accumulation
            loss.backward()
            return loss.detach()

        torch.manual_seed(rank)
        seen = []
        for step in range(STEPS):
            self.before(step, micro_batch)
            FAULT.now = step
            for part in range(self.accumulation):
                seen.append(micro_batch(model, batch(rank, step * self.accumulation + part, self.rows)))
            if other is not None:
                seen.append(micro_batch(other, batch(rank, step)))
            seen.append(torch.as_tensor(digest_of_gradients(model), dtype=torch.int64))
            optimizer.step()
            optimizer.zero_grad()
            if self.evaluation:
                with torch.no_grad():
                    model(batch(rank, 50))
        recovery = getattr(micro_batch, "recovery", None)
        return (digest([*model.parameters(), *model.buffers()]), digest(seen),
                recovery and (recovery.failures, recovery.redone, recovery.rows))


def digest_of_gradients(model):
    return int(digest([one.grad for one in model.parameters() if one.grad is not None])[:12], 16)


def at(where, layer, step=1, times=1, most=0):
    return {"where": where, "layer": layer, "step": step, "left": times, "most": most}
