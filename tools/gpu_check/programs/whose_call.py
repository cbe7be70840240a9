#!/usr/bin/env python3
"""whose_call.py: under `spillway run --mode rescue --limit BYTES`, PyTorch's own request fails, then a call of another
library, each while PyTorch's cache has what it needs; then a request of PyTorch's that nothing can serve. Prints as
JSON what became of each."""
import ctypes
import json

import torch

PIECES = 8


def fill_the_cache(bytes_):
    """In pieces of which none serves a larger request."""
    kept = [torch.empty(bytes_ // PIECES, dtype=torch.uint8, device="cuda") for _ in range(PIECES)]
    del kept


def own_request(bytes_):
    try:
        torch.empty(bytes_, dtype=torch.uint8, device="cuda")
        return "served"
    except torch.OutOfMemoryError:
        return "out of memory"


def other_request(bytes_):
    """By a library that is not PyTorch's, here Python's own for C, through the same CUDA runtime."""
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    address = ctypes.c_void_p()
    status = runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(bytes_))
    if status != 0:
        return f"error {status}"
    return "served" if runtime.cudaFree(address) == 0 else "not freed"


def main():
    torch.ones(1, device="cuda")
    free, _ = torch.cuda.mem_get_info()
    said = {}
    for name, request in (("PyTorch", own_request), ("another library", other_request)):
        torch.cuda.empty_cache()
        fill_the_cache(free * 9 // 10)
        said[name] = request(free // 2)
    said["PyTorch, too much"] = own_request(free * 2)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
