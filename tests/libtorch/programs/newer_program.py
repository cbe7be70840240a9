"""What newer versions of PyTorch added to the interface of its allocators, as a program sees it: printed, and the same
on either allocator. What this PyTorch does not have is passed over, by name."""
import gc
import os

import torch

MIB = 1 << 20


def refused_requests():
    """2.12: the setting that refuses what the card has no room for."""
    if "throw_on_cudamalloc_oom" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        return
    held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("refused")
    stats = torch.cuda.memory_stats()
    print("num_oom_rejections", stats["num_oom_rejections"], "num_ooms", stats["num_ooms"])
    torch.cuda.reset_accumulated_memory_stats()
    print("num_oom_rejections", torch.cuda.memory_stats()["num_oom_rejections"])
    del held


def private_pools():
    """2.13: what each pool holds, by its id."""
    def of_pools():
        return {key: value for key, value in torch.cuda.memory_stats().items()
                if key.startswith("reserved_bytes_by_private_pools") and key.endswith("all.current")}

    if not any(key.startswith("reserved_bytes_by") for key in torch._C._cuda_memoryStats(0)):
        return print("no statistics of private pools")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    print("pools", len(of_pools()), all(bytes >= 30 * MIB for bytes in of_pools().values()))
    del held, pool
    gc.collect()
    torch.cuda.empty_cache()
    print("pools", sum(of_pools().values()))


def annotations():
    """2.14: annotations of live blocks among the entries of the history; metadata, and whether it is recorded."""
    if not hasattr(torch._C, "_cuda_annotateMemory"):
        return print("no annotations")
    memory = torch.cuda.memory
    print("metadata is recorded", torch._C._cuda_memoryMetadataSupported())
    memory._record_memory_history("all", context=None, stacks="python")
    memory._set_memory_metadata("load")  # 2.15 also takes a dict, which it makes a string of
    weights = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    memory._set_memory_metadata("")
    torch._C._cuda_annotateMemory(weights.data_ptr(), "weights")
    print(memory._get_memory_metadata() == "")
    pinned = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    snapshot = memory._snapshot()
    for entry in snapshot["device_traces"][0]:
        if entry["action"] in ("alloc", "annotate"):
            print(entry["action"], entry["size"], entry["addr"] == weights.data_ptr(), entry.get("user_metadata"))
    print("host segments", "host_segments" in snapshot)
    memory._record_memory_history(None)
    del pinned


torch.cuda.init()
refused_requests()
private_pools()
annotations()
