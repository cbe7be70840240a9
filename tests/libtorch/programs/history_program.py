"""A small program under PyTorch's memory history. It checks what must hold of any snapshot, and prints what every
allocator must record the same: its output with Spillway is compared with the native allocator's."""
import copy
import inspect
import pickle
import sys
import tempfile
import threading

import torch
from torch.cuda import _memory_viz

MIB = 1 << 20
# Since PyTorch 2.9.
FILTERED = {"filter_freed": True} if "filter_freed" in inspect.signature(_memory_viz.trace_plot).parameters else {}


def new(bytes_):
    return torch.empty(bytes_, dtype=torch.uint8, device="cuda")


def newer_than_2_10():
    return tuple(map(int, torch.__version__.split(".")[:2])) > (2, 10)


def record(enabled="all", **settings):
    torch.cuda.memory._record_memory_history(enabled, **settings)


def snapshot():
    return torch.cuda.memory._snapshot()


def functions(entry):
    return [frame["name"] for frame in entry.get("frames", []) if frame["filename"] == __file__]


class Replay:
    """What a trace from an empty start says is live, waiting to be freed, and mapped."""

    def __init__(self, entries):
        self.live, self.waiting, self.mapped = {}, {}, []
        for entry in entries:
            getattr(self, entry["action"])(entry)

    def alloc(self, entry):
        assert entry["addr"] not in self.live and entry["addr"] not in self.waiting, "allocated twice"
        assert any(begin <= entry["addr"] and entry["addr"] + entry["size"] <= end for begin, end in self.mapped), (
            "a block outside the segments")
        self.live[entry["addr"]] = entry["size"]

    def free_requested(self, entry):
        self.waiting[entry["addr"]] = self.live.pop(entry["addr"])
        assert entry["size"] == self.waiting[entry["addr"]]

    def free_completed(self, entry):
        assert self.waiting.pop(entry["addr"]) == entry["size"]

    def segment_map(self, entry):
        begin, end = entry["addr"], entry["addr"] + entry["size"]
        assert not any(begin < other and at < end for at, other in self.mapped), "mapped twice"
        pieces = sorted(self.mapped + [(begin, end)])
        self.mapped = pieces[:1]
        for at, other in pieces[1:]:
            if at == self.mapped[-1][1]:
                self.mapped[-1] = (self.mapped[-1][0], other)
            else:
                self.mapped.append((at, other))

    def segment_unmap(self, entry):
        begin, end = entry["addr"], entry["addr"] + entry["size"]
        around = [(at, other) for at, other in self.mapped if at <= begin and end <= other]
        assert len(around) == 1, "unmapped what was not mapped"
        self.mapped.remove(around[0])
        self.mapped += [piece for piece in ((around[0][0], begin), (end, around[0][1])) if piece[0] < piece[1]]

    segment_alloc, segment_free = segment_map, segment_unmap

    def snapshot(self, entry):
        assert entry["size"] >= sum(self.live.values()) + sum(self.waiting.values())

    def oom(self, entry):
        assert entry["device_free"] < entry["size"]


def check(data):
    """What must hold between trace, blocks and statistics."""
    replay = Replay(data["device_traces"][0])
    blocks = [block for segment in data["segments"] for block in segment["blocks"]]
    live = {block["address"]: block["requested_size"] for block in blocks if block["state"] == "active_allocated"}
    waiting = {block["address"]: block["requested_size"] for block in blocks
               if block["state"] in ("active_awaiting_free", "active_pending_free")}
    assert live == replay.live, (live, replay.live)
    assert waiting == replay.waiting, (waiting, replay.waiting)
    in_segments = sum(segment["total_size"] for segment in data["segments"])
    assert in_segments == sum(end - begin for begin, end in replay.mapped)
    for segment in data["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        assert any(begin <= segment["address"] and at <= end for begin, end in replay.mapped)
    stats = torch.cuda.memory_stats()
    assert sum(segment["allocated_size"] for segment in data["segments"]) == stats["allocated_bytes.all.current"]
    assert sum(segment["active_size"] for segment in data["segments"]) == stats["active_bytes.all.current"]
    assert sum(live.values()) + sum(waiting.values()) == stats["requested_bytes.all.current"]
    assert in_segments == stats["reserved_bytes.all.current"]
    assert len(live) == stats["allocation.all.current"]
    times = [entry["time_us"] for entry in data["device_traces"][0]]
    assert times == sorted(times)


def stream_of(data):
    """What is the same with every allocator: requests and frees, without addresses; when a block is seen to be free
    that other streams used is not, nor what is active until then."""
    lines = [(entry["action"], 0 if entry["action"] == "snapshot" else entry["size"], functions(entry),
              entry["compile_context"], entry.get("user_metadata"))
             for entry in data["device_traces"][0] if not entry["action"].startswith("segment")]
    ordered = [line for line in lines if line[0] != "free_completed"]
    return ordered + sorted(line[:2] for line in lines if line[0] == "free_completed")


def hold():
    return [new(n) for n in (512, 1000, 3 * MIB, 40 * MIB)]


def history():
    record(max_entries=100000, stacks="python", compile_context=False)
    held = hold()
    check(snapshot())
    del held[1], held[2]
    side = torch.cuda.Stream()
    held[0].record_stream(side)
    with torch.cuda.stream(side):
        for _ in range(100):
            held[0].add_(1)
    del held[0]
    set_metadata = getattr(torch._C, "_cuda_setMemoryMetadata", lambda text: None)  # since 2.10
    set_metadata("phase two")
    held.append(new(7 * MIB))
    set_metadata("")
    check(snapshot())
    torch.cuda.synchronize()
    held.append(new(1000))
    try:
        new(1 << 40)
    except torch.OutOfMemoryError:
        pass
    with torch.autograd.profiler.record_function("unrecorded"):
        held += hold()
    del held[:2]
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    data = snapshot()
    check(data)
    tools(data)
    for line in stream_of(data):
        print(*line)
    print(*sorted((block["requested_size"], functions(block)) for segment in data["segments"]
                  for block in segment["blocks"] if block["state"] == "active_allocated"))
    settings = data["allocator_settings"]
    print(sorted(settings.items(), key=str))


def tools(data):
    """PyTorch's own readers of a snapshot."""
    text = _memory_viz.trace(data)
    assert "raise OutOfMemoryError" in text and " # 1000.0B" in text, text
    assert "total_allocated: " in _memory_viz.segsum(data)
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        page = plot(data)
        assert page.count("<script") == 1 and len(page) > 1000
    _memory_viz.trace_plot(copy.deepcopy(data), plot_segments=True, **FILTERED)  # it changes what it is given
    lines = lambda text: text  # instead of flamegraph.pl, which needs the network
    assert "active_allocated" in _memory_viz.memory(data, lines)
    assert "hold" in _memory_viz.memory(data, lines) and "seg_" in _memory_viz.segments(data, lines)
    assert _memory_viz.compare(data["segments"], data["segments"], lines) == ""
    with tempfile.NamedTemporaryFile() as file:
        torch.cuda.memory._dump_snapshot(file.name)
        with open(file.name, "rb") as written:
            dumped = pickle.load(written)
    assert len(dumped["segments"]) == len(data["segments"])
    # The dump's own entry comes with the next snapshot.
    assert len(dumped["device_traces"][0]) == len(data["device_traces"][0]) + 1, len(dumped["device_traces"][0])
    assert dumped["device_traces"][0][-1]["action"] == "snapshot"


def frames_of_blocks():
    return sorted((block["requested_size"], bool(functions(block))) for segment in snapshot()["segments"]
                  for block in segment["blocks"] if block["state"] == "active_allocated")


def entries():
    return [(entry["action"], entry["size"], bool(functions(entry))) for entry in snapshot()["device_traces"][0]
            if not entry["action"].startswith("segment")]


def settings():
    """Modes, levels of context, and how many entries are kept."""
    for context in (None, "state", "alloc", "all"):
        record(context=context, stacks="python", clear_history=True)
        held = [new(4 * MIB)]
        held.append(new(2 * MIB))
        del held[0]
        print("context", context, entries(), frames_of_blocks())
        del held
    record("state", clear_history=True, stacks="python")
    held = [new(MIB) for _ in range(3)]
    print("state", entries(), frames_of_blocks())
    record(max_entries=3, clear_history=True, stacks="python")
    held += [new(MIB) for _ in range(5)]
    trace = snapshot()["device_traces"][0]
    print("three", len(trace), trace[-1]["action"], trace[-1]["size"])
    record(max_entries=3, stacks="python")
    print("kept", len(snapshot()["device_traces"][0]))
    skipped = {"skip_actions": ["free_requested", "snapshot"]} if newer_than_2_10() else {}
    record(clear_history=True, stacks="python", **skipped)
    del held[:2]
    new(3 * MIB)
    print("skipped", entries())
    print("enabled", torch._C._cuda_isHistoryEnabled())
    record(None)
    print("enabled", torch._C._cuda_isHistoryEnabled())
    held += [new(5 * MIB)]
    print("off", entries(), frames_of_blocks())
    del held[:2]
    held += [new(MIB)]
    print("after", frames_of_blocks())
    del held
    print("end", frames_of_blocks())
    try:
        record("everything")
    except RuntimeError as error:
        print(str(error).splitlines()[0])


def stacks():
    """C++ frames too, and annotations."""
    record(stacks="all", global_record_annotations=True, compile_context=False, clear_history=True)
    with torch.autograd.profiler.record_function("a part"):
        held = hold()
    data = snapshot()
    alloc = next(entry for entry in data["device_traces"][0] if entry["action"] == "alloc")
    print(functions(alloc)[0], any(frame["name"].startswith("at::") for frame in alloc["frames"]))
    print([(note["name"], note["stage"]) for note in data["external_annotations"] if note["name"] == "a part"])
    record(None)
    print(len(held), snapshot()["external_annotations"])


def contexts(title):
    print(title, [(entry["action"], entry["size"], entry["compile_context"])
                  for entry in snapshot()["device_traces"][0] if entry["action"] in ("alloc", "free_requested", "oom")])


def compiled():
    """Each entry names the region of torch.compile in which its thread was, the innermost of several."""
    @torch.compile(backend="eager")
    def inner(bytes_):
        return new(bytes_) + 1

    @torch.compiler.disable
    def between(bytes_):
        held = new(bytes_)
        return held, inner(2 * bytes_), new(3 * bytes_)

    @torch.compile(backend="eager")
    def outer(bytes_):
        first = new(bytes_) + 1
        return first, between(4 * bytes_), new(20 * bytes_) + 1

    @torch.compile(backend="eager")
    def fails(bytes_):
        return new(bytes_), new(1 << 40)

    def everything():
        before = new(MIB)
        held = outer(MIB)
        after = new(7 * MIB)
        try:
            fails(5 * MIB)
        except torch.OutOfMemoryError:
            pass
        return before, held, after, new(9 * MIB)

    everything()  # compiles
    record(stacks="python", compile_context=False, clear_history=True)
    inner(MIB)
    contexts("not asked for")
    record(stacks="python", compile_context=True, clear_history=True)
    everything()
    contexts("one thread")
    record(stacks="python", compile_context=True, clear_history=True)
    inside, outside = threading.Event(), threading.Event()

    @torch.compiler.disable
    def wait():
        inside.set()
        assert outside.wait(60)

    @torch.compile(backend="eager")
    def waits(bytes_):
        held = new(bytes_)
        wait()
        return held, new(2 * bytes_) + 1

    thread = threading.Thread(target=waits, args=(11 * MIB,))
    thread.start()
    assert inside.wait(60)
    held = new(13 * MIB)
    outside.set()
    thread.join()
    contexts("another thread is in a region")
    record(None)
    inner(MIB)
    record(stacks="python", compile_context=True, clear_history=True)
    held = new(15 * MIB)
    contexts("a region that nobody recorded is over")
    del held


def switched():
    """The history begins and ends inside regions, whose begin or end the native allocator forgets."""
    @torch.compiler.disable
    def switch(to):
        record(to, stacks="python", compile_context=True) if to else record(None)

    @torch.compile(backend="eager")
    def region(to, bytes_):
        held = new(bytes_)
        switch(to)
        return held, new(bytes_)

    record(stacks="python", compile_context=True)  # from now on regions are told
    record(None)
    for _ in range(3):
        region("all", MIB)
        outside = new(3 * MIB)
        contexts("history")
        region(None, MIB)
        del outside


if __name__ == "__main__":
    globals()[sys.argv[1]]()
