#!/usr/bin/env python3
"""spilled_memory.py: under `spillway run --mode replace --limit BYTES`, has a tensor's memory moved to the host, and
prints as JSON how fast that was and what the driver, PyTorch and NCCL say of such memory.

Two tensors of three fifths of the limit each: the second is served by moving the end of the first, but for its last
page, which others may share. A third in the second's place, of four fifths, has more of the first moved: by then the
driver has made host memory and Spillway has seen that it is needed. When that is freed, the first comes back. Every
check reads or writes 4 MiB of what was moved.
"""
import ctypes
import json
import tempfile
import time

import torch
from spillway_memory import query

MEMORY_TYPE, DEVICE_ORDINAL, IS_MANAGED = 2, 9, 8  # of CUpointer_attribute
LOOKS = 400  # until what was moved has to be back
PART, BEFORE_END = 1 << 20, 1 << 22  # elements: what is looked at, and its end's distance from the tensor's


def attribute(address, which):
    value = ctypes.c_int(-1)
    status = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(ctypes.byref(value), which, ctypes.c_uint64(address))
    return value.value if status == 0 else f"error {status}"


def plain_copy_us(tensor, bytes_, back=False):
    """The fastest of five copies of so many bytes to pinned host memory, or back from there, which changes no value."""
    target = torch.empty(bytes_, dtype=torch.uint8, pin_memory=True)
    view = tensor.view(torch.uint8)[:bytes_]
    if back:
        target.copy_(view)
        target, view = view, target
    best = float("inf")
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(view, non_blocking=True)
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1e3)
    return best


def spill(before, after, source):
    """What moved between two moments, in how long, and what a plain copy of as much takes."""
    moved = after.spilled - before.spilled
    return {"bytes": moved, "us": after.rescue_us - before.rescue_us, "plain_us": plain_copy_us(source, moved)}


def way_back(moved_tensor, part, expected):
    """What came back at once when there was room for a while, in how long, what a plain copy of as much takes, and what
    the part of the tensor then holds.

    Spillway looks at every 1,024th use, here of a view. The other looks tell what the loop itself takes."""
    used, alone = torch.zeros(1 << 20, device="cuda"), []
    for _ in range(LOOKS):
        before, begin = query().spilled, time.perf_counter()
        for _ in range(1024):
            used.view(-1)
            torch.empty(1, device="cuda")
        us, moved = (time.perf_counter() - begin) * 1e6, before - query().spilled
        if moved > 0:
            said = "right" if torch.equal(part.cpu(), expected) else "wrong values"
            return {"bytes": moved, "us": us - min(alone, default=0), "part": said, "left": query().spilled,
                    "plain_us": plain_copy_us(moved_tensor, moved, back=True)}
        alone.append(us)
    return {"bytes": 0, "us": 0, "plain_us": 0, "part": "right", "left": query().spilled}


def copies(part, expected):
    """What each way of using the memory gives: "right", or what was wrong."""
    def host():
        return part.cpu()

    def device():
        return part.clone().cpu()

    def written():
        part.copy_(expected.flip(0))
        part.copy_(part.flip(0))
        return part.cpu()

    def zeroed():
        kept = part.clone()
        part.zero_()
        if part.any().item():
            raise RuntimeError("memset left values")
        part.copy_(kept)
        return part.cpu()

    said = {}
    for way in (host, device, written, zeroed):
        try:
            said[way.__name__] = "right" if torch.equal(way(), expected) else "wrong values"
        except RuntimeError as error:
            said[way.__name__] = str(error).splitlines()[0]
    return said


def nccl(part, expected):
    """A reduction of one rank, in place: NCCL registers and reads the memory, and has nobody to add."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
            torch.distributed.all_reduce(part)
            torch.cuda.synchronize()
            said = "right" if torch.equal(part.cpu(), expected) else "wrong values"
            torch.distributed.destroy_process_group()
        except RuntimeError as error:
            said = str(error).splitlines()[0]
    return said


def sharing(tensor):
    try:
        tensor.untyped_storage()._share_cuda_()
        return "shared"
    except RuntimeError as error:
        return str(error).splitlines()[0]


def main():
    torch.ones(1, device="cuda")
    limit = query().limit
    count = limit * 3 // 5 // 4
    cold = torch.arange(count, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    before = query()
    hot = torch.empty(count, dtype=torch.int32, device="cuda")
    after = query()
    if after.spilled == 0:
        raise SystemExit("nothing was moved: is this under spillway run --mode replace --limit?")
    spills = [spill(before, after, hot)]
    del hot
    before = query()
    hot = torch.empty(count * 4 // 3, dtype=torch.int32, device="cuda")
    after = query()
    if after.spilled <= before.spilled:
        raise SystemExit("nothing was moved the second time")
    spills.append(spill(before, after, hot))
    first, last = count - BEFORE_END - PART, count - BEFORE_END
    part, expected = cold[first:last], torch.arange(first, last, dtype=torch.int32)
    address = part.data_ptr()
    result = {
        "limit": limit, "spills": spills,
        "attributes": {"type": attribute(address, MEMORY_TYPE), "device": attribute(address, DEVICE_ORDINAL),
                       "managed": attribute(address, IS_MANAGED)},
        "uses": copies(part, expected), "nccl": nccl(part, expected),
    }
    hot.fill_(7)
    result["uses"]["beside a full device"] = "right" if torch.equal(part.cpu(), expected) else "wrong values"
    del hot
    result["back"] = way_back(cold, part, expected)
    result["uses"]["back on the device"] = result["back"]["part"]
    hot = torch.empty(count * 4 // 3, dtype=torch.int32, device="cuda")
    result["sharing"] = sharing(cold)  # last: what others may use does not move again
    hot.fill_(8)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
