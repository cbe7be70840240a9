"""A seeded random program of everything that reaches an allocator. It prints what a program can see, a line for each
operation.

usage: random_program.py SEED OPERATIONS values|graphs native|spillway

The same on PyTorch's allocator and on Spillway's, so the output of two processes must be the same. Not printed are
addresses, what a block takes beyond its request, and when memory that another stream still uses becomes free. `graphs`
captures some too, which the simulated card does only where no kernel computes, and then every byte reads as 0.
"""
import gc
import inspect
import random
import sys
import threading

import torch

# Since PyTorch 2.10.
NO_SPLIT = {"no_split": True} if "no_split" in inspect.signature(torch.cuda.MemPool).parameters else {}

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SLOTS = 48


class Slot:
    """A tensor of bytes that all have one value, its stream, and the streams that have used it since."""

    def __init__(self, tensor, value, stream):
        self.tensor, self.value, self.stream, self.users = tensor, value, stream, set()


class Program:
    def __init__(self, seed, graphs):
        self.random = random.Random(seed)
        self.streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        self.slots = [None] * SLOTS
        self.pools, self.graphs, self.raw = [], [], []
        self.counts = {}
        self.operations = [
            (300, self.allocate), (240, self.free), (60, self.check), (60, self.use_elsewhere), (30, self.grow),
            (20, self.temporaries), (12, self.allocate_in_pool), (4, self.drop_pool), (12, self.allocate_raw),
            (10, self.delete_raw), (10, self.statistics), (6, self.snapshot), (4, self.reset_peak),
            (2, self.reset_accumulated), (4, self.empty_cache), (6, self.wait_for_event), (3, self.synchronize),
            (5, self.ask_too_much), (3, self.fraction), (4, self.nothing), (6, self.other_thread),
            (4, self.nested_pools),
        ]
        if graphs:
            self.operations += [(4, self.capture), (6, self.replay), (3, self.drop_graph), (2, self.fail_in_capture)]

    def run(self, count):
        """Yields what each operation has to say."""
        weights, functions = zip(*self.operations)
        for _ in range(count):
            operation = self.random.choices(functions, weights)[0]
            self.counts[operation.__name__] = self.counts.get(operation.__name__, 0) + 1
            said = operation()
            yield f"{operation.__name__}: {said}"
        yield f"end: {self.finish()}"

    def size(self):
        kind = self.random.random()
        if kind < 0.45:
            return self.random.randint(1, 64 * KIB)
        if kind < 0.7:
            return self.random.randint(64 * KIB, MIB + 4 * KIB)
        if kind < 0.97:
            return self.random.randint(MIB, 4 * MIB)
        return self.random.randint(4 * MIB, 24 * MIB)

    def pick(self):
        """A slot that holds a tensor, or None."""
        full = [index for index, slot in enumerate(self.slots) if slot is not None]
        return self.random.choice(full) if full else None

    def make(self, stream):
        value = self.random.randrange(251)
        with torch.cuda.stream(stream):
            return Slot(torch.full((self.size(),), value, dtype=torch.uint8, device="cuda"), value, stream)

    def allocate(self):
        slot = self.make(self.random.choice(self.streams))
        self.slots[self.random.randrange(SLOTS)] = slot  # frees what was there
        return slot.tensor.numel()

    def free(self):
        index = self.pick()
        if index is not None:
            self.slots[index] = None
        return index

    def read(self, slot):
        with torch.cuda.stream(slot.stream):
            for user in slot.users:
                slot.stream.wait_stream(user)
            slot.users.clear()
            low, high = slot.tensor.min().item(), slot.tensor.max().item()
        return (low, high) if (low, high) != (slot.value, slot.value) else "as written"

    def check(self):
        index = self.pick()
        return None if index is None else self.read(self.slots[index])

    def use_elsewhere(self):
        index = self.pick()
        if index is None:
            return None
        slot = self.slots[index]
        user = self.random.choice(self.streams)
        user.wait_stream(slot.stream)
        for other in slot.users:
            user.wait_stream(other)
        with torch.cuda.stream(user):
            slot.tensor.bitwise_xor_(1)
        slot.value ^= 1
        slot.tensor.record_stream(user)
        slot.users.add(user)
        if self.random.random() < 0.5:
            self.slots[index] = None  # while the other stream uses it
        return index

    def grow(self):
        index = self.pick()
        if index is None:
            return None
        slot = self.slots[index]
        if slot.users or slot.tensor.numel() > 2 * MIB:
            return "left"
        with torch.cuda.stream(slot.stream):
            slot.tensor = torch.cat([slot.tensor, slot.tensor])
        return slot.tensor.numel()

    def temporaries(self):
        index = self.pick()
        if index is None:
            return None
        slot = self.slots[index]
        with torch.cuda.stream(slot.stream):
            for user in slot.users:
                slot.stream.wait_stream(user)
            part = slot.tensor[:64 * KIB]
            return (part.to(torch.int64) * 3 + 1).sum().item() - (3 * slot.value + 1) * part.numel()

    def allocate_in_pool(self):
        if len(self.pools) < 3 and self.random.random() < 0.4:
            self.pools.append(torch.cuda.MemPool())
        if not self.pools:
            return None
        pool = self.random.choice(self.pools)
        with torch.cuda.use_mem_pool(pool):
            slot = self.make(self.streams[0])
            self.slots[self.random.randrange(SLOTS)] = slot
        active = sum(block["state"] != "inactive" for segment in pool.snapshot() for block in segment["blocks"])
        return slot.tensor.numel(), active > 0, pool.use_count()

    @staticmethod
    def held_by(pool):
        """What is asked for and live in a pool: how many blocks, how many bytes."""
        live = [block["requested_size"] for segment in pool.snapshot() for block in segment["blocks"]
                if block["state"] == "active_allocated"]
        return len(live), sum(live)

    def nested_pools(self):
        """A request inside two pools goes to one of them; a pool without splitting, and one that serves others."""
        outer, inner = torch.cuda.MemPool(use_on_oom=True), torch.cuda.MemPool(**NO_SPLIT)
        before = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
        with torch.cuda.use_mem_pool(outer):
            first = torch.empty(self.size(), dtype=torch.uint8, device="cuda")
            with torch.cuda.use_mem_pool(inner):
                second = torch.empty(MIB + self.size(), dtype=torch.uint8, device="cuda")
            third = torch.empty(self.size(), dtype=torch.uint8, device="cuda")
        with torch.cuda.use_mem_pool(inner):
            fourth = torch.empty(MIB + self.size(), dtype=torch.uint8, device="cuda")
        asked = torch.cuda.memory_stats()["requested_bytes.all.allocated"] - before
        held = self.held_by(outer), self.held_by(inner)
        del first, second, third, fourth
        return held, asked, self.held_by(outer), self.held_by(inner)

    def other_thread(self):
        """Another thread makes a tensor, and lets one of this thread's go."""
        index, stream, made = self.pick(), self.random.choice(self.streams), []

        def work():
            made.append(self.make(stream))
            if index is not None:
                self.slots[index] = None

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.slots[self.random.randrange(SLOTS)] = made[0]
        return index, made[0].tensor.numel()

    def drop_pool(self):
        """A pool may go before its tensors."""
        if self.pools:
            self.pools.pop(self.random.randrange(len(self.pools)))
        return len(self.pools)

    def allocate_raw(self):
        bytes_, stream = self.size(), self.random.choice(self.streams)
        self.raw.append(torch.cuda.caching_allocator_alloc(bytes_, stream=stream))
        return bytes_, self.raw[-1] % 512

    def delete_raw(self):
        if self.raw:
            torch.cuda.caching_allocator_delete(self.raw.pop(self.random.randrange(len(self.raw))))
        return len(self.raw)

    def statistics(self):
        """Of what is live, and of what was ever asked for: current requested_bytes count what waits for a stream."""
        stats = torch.cuda.memory_stats()
        keys = [f"{what}.{pool}.{level}" for pool in ("all", "small_pool", "large_pool") for what in ("allocation",)
                for level in ("current", "peak", "allocated", "freed")]
        keys += [f"allocated_bytes.small_pool.{level}" for level in ("current", "peak", "allocated", "freed")]
        keys += [f"{what}.{pool}.allocated" for pool in ("all", "small_pool", "large_pool")
                 for what in ("requested_bytes", "active")]
        return {key: stats[key] for key in [*keys, "num_ooms"]}

    def snapshot(self):
        blocks = [(segment, block) for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]]
        live = [(segment, block) for segment, block in blocks if block["state"] == "active_allocated"]
        for segment in torch.cuda.memory_snapshot():
            assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"], "blocks tile a segment"
        starts = {block["address"] for _, block in live}
        tensors = {slot.tensor.untyped_storage().data_ptr() for slot in self.slots if slot is not None}
        return (len(live), sum(block["requested_size"] for _, block in live), (tensors - {0}) <= starts,
                sum(segment["allocated_size"] for segment in torch.cuda.memory_snapshot()) >= 0)

    def reset_peak(self):
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        stats = torch.cuda.memory_stats()
        return all(stats[f"{what}.all.peak"] == stats[f"{what}.all.current"] for what in
                   ("allocated_bytes", "allocation", "requested_bytes", "active_bytes", "reserved_bytes"))

    def reset_accumulated(self):
        self.synchronize()  # what is freed, but waits for a stream, is counted when it is free
        torch.cuda.reset_accumulated_memory_stats()
        return torch.cuda.memory_stats()["allocation.all.allocated"]

    def empty_cache(self):
        torch.cuda.empty_cache()

    def wait_for_event(self):
        event = torch.cuda.Event()
        event.record(self.random.choice(self.streams))
        event.synchronize()
        return event.query()

    def synchronize(self):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # which processes what other streams have finished
        stats = torch.cuda.memory_stats()
        return {f"{what}.{pool}.{level}": stats[f"{what}.{pool}.{level}"] for what in ("active", "requested_bytes")
                for pool in ("all", "small_pool", "large_pool") for level in ("current", "freed")}

    @staticmethod
    def request(bytes_):
        try:
            torch.empty(bytes_, dtype=torch.uint8, device="cuda")
            return "served"
        except torch.OutOfMemoryError as error:
            return str(error).split(" of which ")[0]

    def ask_too_much(self):
        return self.request(self.random.choice([64, 200, 1024]) * GIB)

    def fraction(self):
        """A quarter of the card, and a request for more than that."""
        torch.cuda.set_per_process_memory_fraction(0.25)
        answer = self.request(torch.cuda.mem_get_info()[1] // 4 + MIB)
        fraction = torch.cuda.get_per_process_memory_fraction()
        torch.cuda.set_per_process_memory_fraction(1.0)
        return answer, fraction

    def capture(self):
        if len(self.graphs) == 3:
            return "enough"
        data = torch.full((self.random.randint(1, MIB),), 3, dtype=torch.uint8, device="cuda")
        shared = self.graphs[-1][0].pool() if self.graphs and self.random.random() < 0.5 else None
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=shared):
            doubled = data * 2
            result = doubled + data
        del doubled
        self.graphs.append((graph, data, result))
        return data.numel()

    def replay(self):
        """The last one's result: those that share a pool may overwrite each other's."""
        if not self.graphs:
            return None
        graph, data, result = self.graphs[-1]
        value = self.random.randrange(80)
        data.fill_(value)
        graph.replay()
        return (result.min().item() - 3 * value, result.max().item() - 3 * value)

    def drop_graph(self):
        if self.graphs:
            self.graphs.pop(0)
        return len(self.graphs)

    def fail_in_capture(self):
        """A request that fails while a stream captures ends the capture, and not the program."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph):
                kept = torch.zeros(KIB, device="cuda")
                torch.empty(200 * GIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            return str(error).split(" of which ")[0], kept.numel()
        return "served"

    def nothing(self):
        tensor = torch.empty(0, device="cuda")
        torch.cuda.caching_allocator_delete(0)
        tensor.record_stream(self.streams[1])
        return tensor.data_ptr(), tensor.clone().numel()

    def finish(self):
        wrong = sum(self.read(slot) != "as written" for slot in self.slots if slot is not None)
        self.slots = [None] * SLOTS
        self.pools.clear()
        self.graphs.clear()
        while self.raw:
            self.delete_raw()
        gc.collect()
        return wrong, self.synchronize(), self.statistics()


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    if sys.argv[4] == "spillway":
        import spillway

        spillway.install()
    torch.set_num_threads(1)
    program = Program(seed, sys.argv[3] == "graphs")
    for number, line in enumerate(program.run(count)):
        print(number, line)
    print("counts", dict(sorted(program.counts.items())))


if __name__ == "__main__":
    main()
