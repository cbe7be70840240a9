"""The tools of torch.cuda that people look at memory with: statistics, summary, history, snapshots, limits, errors."""
import pathlib
import pickle
import re
import tempfile

import torch

MIB = 1 << 20
GIB = 1 << 30


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def fresh():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def statistics():
    fresh()
    before = torch.cuda.memory_allocated()
    held = [block(40), block(3)]
    del held[0]
    stats = torch.cuda.memory_stats()
    assert torch.cuda.memory_allocated() - before == 3 * MIB
    assert torch.cuda.max_memory_allocated() - before == 43 * MIB
    assert torch.cuda.memory_reserved() - stats["reserved_bytes.all.current"] == 0
    assert stats["allocation.all.allocated"] == 2 and stats["allocation.all.freed"] == 1
    assert stats["allocated_bytes.large_pool.allocated"] == 43 * MIB
    assert stats["num_device_alloc"] >= 1 and stats["num_alloc_retries"] == 0
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    reserved = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved - 40 * MIB
    summary = torch.cuda.memory_summary()
    assert "PyTorch CUDA memory summary, device ID 0" in summary and "GPU reserved memory" in summary, summary
    assert re.search(r"\| Allocated memory +\| +\d+ [KM]iB", summary), summary


def host_statistics():
    pinned = torch.empty(8 * MIB, dtype=torch.uint8, pin_memory=True)
    assert pinned.is_pinned()
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] >= 8 * MIB


def history():
    # Before PyTorch 2.11 a rehearsal leaves an entry.
    torch.cuda.memory._record_memory_history(max_entries=1000, clear_history=True)
    held = [block(3), block(5)]
    del held[0]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "snapshot.pickle"
        torch.cuda.memory._dump_snapshot(str(path))
        snapshot = pickle.loads(path.read_bytes())
    torch.cuda.memory._record_memory_history(enabled=None)
    events = snapshot["device_traces"][0]
    assert [event["action"] for event in events if event["size"] == 3 * MIB] == \
        ["alloc", "free_requested", "free_completed"]
    frames = next(event["frames"] for event in events if event["action"] == "alloc")
    assert any(frame["name"] == "history" and frame["filename"] == __file__ for frame in frames), frames
    for segment in snapshot["segments"]:
        assert sum(part["size"] for part in segment["blocks"]) == segment["total_size"]
    assert "<html" in torch.cuda._memory_viz.trace_plot(snapshot).lower()
    assert "5.0MiB" in torch.cuda._memory_viz.segsum(snapshot)


def device():
    fresh()
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    assert total == properties.total_memory and 0 < free <= total
    assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
    held = block(512)
    assert free - torch.cuda.mem_get_info()[0] == 512 * MIB
    del held
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == free


def out_of_memory_text():
    """The exception of a request that no card has room for; what it says is checked number by number."""
    fresh()
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    held, failures = block(1536), torch.cuda.memory_stats()["num_ooms"]
    request = torch.cuda.mem_get_info()[1] // GIB + 1
    try:
        block(request * 1024)
    except torch.cuda.OutOfMemoryError as error:
        assert isinstance(error, torch.OutOfMemoryError) and isinstance(error, RuntimeError)
        text = str(error)
    else:
        raise AssertionError("more than the card has was given")
    total = torch.cuda.mem_get_info()[1] / GIB
    assert f"CUDA out of memory. Tried to allocate {request}.00 GiB. GPU 0 has a total capacity of {total:.2f} GiB" in \
        text, text
    assert re.search(r"of which \d+\.\d+ [GM]iB is free\.", text), text
    assert re.search(r"Of the allocated memory 1\.50 GiB is allocated by PyTorch, and [\d.]+ \w+ is reserved by "
                     r"PyTorch but unallocated\.", text), text
    advice = ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "PYTORCH_ALLOC_CONF", "\nSpillway: ")
    assert any(words in text for words in advice), text
    assert torch.cuda.memory_stats()["num_ooms"] == failures + 1
    assert len(seen) == 1 and request * GIB in seen[0], seen
    del held


def limit():
    fresh()
    total = torch.cuda.mem_get_info()[1]
    reserved = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((reserved + 256 * MIB) / total)
    held = block(200)
    try:
        block(100)
    except torch.OutOfMemoryError as error:
        assert re.search(r"\d+\.\d+ [GM]iB allowed", str(error)), error
    else:
        raise AssertionError("the fraction did not hold")
    del held
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert block(300).numel() == 300 * MIB


def profiler():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        held = block(24)
    assert sum(event.self_device_memory_usage for event in profile.key_averages()) == 24 * MIB
    del held


for check in (statistics, host_statistics, history, device, out_of_memory_text, limit, profiler):
    check()
    print(f"{check.__name__}: as expected")
