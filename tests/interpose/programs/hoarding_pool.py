"""A library beside PyTorch hoards in the device's stream-ordered pool: it has set the pool's release threshold to
"never", as CuPy, RMM and others can, used GIB of it and freed them. Then PyTorch needs the rest of the card and 4 GiB
of those. Natively it dies with OutOfMemoryError.

usage: hoarding_pool.py GIB default|own [COMMAND ...]     own: in a pool that it made itself
"""
import ctypes
import subprocess
import sys

import torch

GIB = 1 << 30
runtime = ctypes.CDLL("libcudart.so.13")
RELEASE_THRESHOLD, RESERVED_NOW = 4, 5


def done(name, *arguments):
    result = getattr(runtime, name)(*arguments)
    assert result == 0, f"{name} gave {result}"


class Properties(ctypes.Structure):
    """cudaMemPoolProps: pinned memory on device 0."""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location_type", ctypes.c_int),
                ("location", ctypes.c_int), ("unused", ctypes.c_uint8 * 128)]


def reserved():
    value = ctypes.c_uint64()
    done("cudaMemPoolGetAttribute", pool, RESERVED_NOW, ctypes.byref(value))
    return value.value


torch.ones(1 << 20, device="cuda")
pool, stream = ctypes.c_void_p(), ctypes.c_void_p()
if sys.argv[2] == "own":
    done("cudaMemPoolCreate", ctypes.byref(pool), ctypes.byref(Properties(type=1, location_type=1)))
else:
    done("cudaDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
done("cudaMemPoolSetAttribute", pool, RELEASE_THRESHOLD, ctypes.byref(ctypes.c_uint64(2**64 - 1)))
done("cudaStreamCreate", ctypes.byref(stream))
blocks = [ctypes.c_void_p() for _ in range(int(sys.argv[1]))]
for block in blocks:
    done("cudaMallocFromPoolAsync", ctypes.byref(block), ctypes.c_size_t(GIB), pool, stream)
for block in blocks[1:]:
    done("cudaFreeAsync", block, stream)
done("cudaStreamSynchronize", stream)
print(f"the pool keeps {reserved() // GIB} GiB", flush=True)
need = torch.cuda.mem_get_info()[0] // GIB + 4
kept = torch.empty(need * GIB, dtype=torch.uint8, device="cuda")
print(f"PyTorch has {need} GiB, the pool {reserved() // GIB}", flush=True)
if sys.argv[3:]:
    from shown import wait_until_held
    wait_until_held(need * GIB)
    subprocess.run(sys.argv[3:], check=True)
