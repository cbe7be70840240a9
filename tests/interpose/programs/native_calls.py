"""native_calls.py WHAT: takes device memory by calls of the driver, without PyTorch, and finds that Spillway's account
of it is right: it grows by what the simulator charges and is 0 at the end. Prints what came out as JSON.
"""
import ctypes
import json
import os
import sys
import threading

from simulator_control import budget, counts

MIB = 1 << 20
driver = ctypes.CDLL(os.environ.get("SPILLWAY_DRIVER") or "libcuda.so.1")
NO_MEMORY = 2


class Properties(ctypes.Structure):
    """CUmemAllocationProp and, as far as both begin alike, CUmemPoolProps."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int),
                ("location", ctypes.c_int), ("unused", ctypes.c_uint8 * 128)]


class Array(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]


def call(name, *arguments):
    return getattr(driver, name)(*arguments)


def done(name, *arguments):
    result = call(name, *arguments)
    assert result == 0, f"{name} gave {result}"


def use_device():
    context = ctypes.c_void_p()
    done("cuInit", 0)
    done("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    done("cuCtxSetCurrent", context)


def allocate(size):
    pointer = ctypes.c_uint64()
    return call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size)), pointer


def taken():
    now = budget()
    assert now.taken_bytes[0] == now.native_bytes[0], "nobody but the driver's callers takes memory here"
    return now.native_bytes[0]


def page(location_type=1):
    handle = ctypes.c_uint64()
    properties = Properties(type=1, location_type=location_type)
    done("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(4 * MIB), ctypes.byref(properties), ctypes.c_uint64(0))
    return handle


def kinds():
    """Each way to take memory and to free it; what the account said meanwhile, in MiB."""
    seen, pointer, pitch = {}, ctypes.c_uint64(), ctypes.c_size_t()

    def note(name, end, *arguments):
        charged = counts().live_pages_bytes
        seen[name] = taken() // MIB
        assert taken() == charged, f"{name}: {taken()} bytes on the account, {charged} charged"
        done(end, *arguments)
        assert taken() == 0, f"{end} leaves {taken()} bytes of {name} on the account"

    done("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(3 * MIB))
    note("cuMemAlloc", "cuMemFree_v2", pointer)
    done("cuMemAllocPitch_v2", ctypes.byref(pointer), ctypes.byref(pitch), ctypes.c_size_t(4000),
         ctypes.c_size_t(2048), 4)
    note("cuMemAllocPitch", "cuMemFree_v2", pointer)
    stream = ctypes.c_void_p()
    done("cuStreamCreate", ctypes.byref(stream), 0)
    done("cuMemAllocAsync", ctypes.byref(pointer), ctypes.c_size_t(2 * MIB), stream)
    note("cuMemAllocAsync", "cuMemFreeAsync", pointer, stream)
    done("cuMemAllocAsync_ptsz", ctypes.byref(pointer), ctypes.c_size_t(2 * MIB), None)
    note("cuMemAllocAsync_ptsz", "cuMemFree_v2", pointer)
    pool = ctypes.c_void_p()
    done("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(Properties(type=1, location_type=1)))
    done("cuMemAllocFromPoolAsync", ctypes.byref(pointer), ctypes.c_size_t(2 * MIB), pool, stream)
    note("cuMemAllocFromPoolAsync", "cuMemFreeAsync", pointer, stream)
    done("cuMemPoolDestroy", pool)
    note("cuMemCreate", "cuMemRelease", page())
    pages(seen)
    host = page(location_type=3)
    assert taken() == 0, "host memory is on the account"
    done("cuMemRelease", host)
    assert call("cuArrayCreate_v2", ctypes.byref(pointer), ctypes.byref(Array(1024, 1024, 32, 1))) != 0
    assert call("cuMemAlloc_v2", None, ctypes.c_size_t(MIB)) != 0 and allocate(0)[0] != 0
    assert call("cuMemCreate", ctypes.byref(pointer), ctypes.c_size_t(2 * MIB), None, ctypes.c_uint64(0)) != 0
    assert call("cuMemFree_v2", ctypes.c_uint64(12345)) != 0
    assert taken() == 0, "what failed is on the account"
    return seen


def pages(seen):
    """A page counts until its last handle is released and it is mapped nowhere."""
    address, handle = ctypes.c_uint64(reserve(8 * MIB)), page()
    assert map_page(address.value, handle) == 0
    again = ctypes.c_uint64()
    done("cuMemRetainAllocationHandle", ctypes.byref(again), address)
    done("cuMemRelease", handle)
    done("cuMemRelease", again)
    seen["mapped"] = taken() // MIB
    assert taken() == counts().live_pages_bytes == 4 * MIB
    second = page()
    assert map_page(address.value + 4 * MIB, second) == 0
    done("cuMemUnmap", address, ctypes.c_size_t(8 * MIB))
    assert taken() == counts().live_pages_bytes == 4 * MIB, "the second page's handle is still held"
    done("cuMemRelease", second)
    assert taken() == counts().live_pages_bytes == 0


class AllocationNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int),
                ("location", ctypes.c_int), ("unused", ctypes.c_uint8 * 72), ("access", ctypes.c_void_p),
                ("access_count", ctypes.c_size_t), ("size", ctypes.c_size_t), ("address", ctypes.c_uint64)]


def launched(graph, stream):
    executable = ctypes.c_void_p()
    done("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    done("cuGraphLaunch", executable, stream)
    done("cuStreamSynchronize", stream)
    return executable


def captured(stream, size, outside):
    """A graph that allocates and frees; and a free of other memory, which a capture refuses."""
    graph, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    done("cuStreamBeginCapture_v2", stream, 0)
    done("cuMemAllocAsync", ctypes.byref(pointer), ctypes.c_size_t(size), stream)
    done("cuMemFreeAsync", pointer, stream)
    assert call("cuMemFreeAsync", outside, stream) == 1
    done("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph


def with_node(size):
    graph, node = ctypes.c_void_p(), ctypes.c_void_p()
    made = AllocationNode(type=1, location_type=1, size=size)
    done("cuGraphCreate", ctypes.byref(graph), 0)
    done("cuGraphAddMemAllocNode", ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(made))
    return graph, ctypes.c_uint64(made.address)


def graphs():
    """What the driver reserves for graphs' memory counts from the launch until it is trimmed."""
    stream, outside = ctypes.c_void_p(), ctypes.c_uint64()
    done("cuStreamCreate", ctypes.byref(stream), 0)
    done("cuMemAllocAsync", ctypes.byref(outside), ctypes.c_size_t(4 * MIB), stream)
    graph = captured(stream, 60 * MIB, outside)
    seen = {"captured": taken() // MIB}
    executable = launched(graph, stream)
    seen["launched"] = taken() // MIB
    done("cuGraphLaunch", executable, stream)
    done("cuStreamSynchronize", stream)
    seen["again"], seen["beside"] = taken() // MIB, allocate(60 * MIB)[0]
    done("cuDeviceGraphMemTrim", 0)
    seen["trimmed"] = taken() // MIB
    graph, memory = with_node(20 * MIB)
    launched(graph, stream)
    seen["node"] = taken() // MIB
    done("cuMemFree_v2", memory)
    seen["freed"] = taken() // MIB
    done("cuDeviceGraphMemTrim", 0)
    done("cuMemFreeAsync", outside, stream)
    seen["left"] = taken()
    return seen


def race():
    """Threads that take and free at the limit; the simulator saw the most that was ever charged."""
    refused = [0] * 4

    def work(number):
        use_device()
        held = []
        for step in range(400):
            result, pointer = allocate((2 + 2 * ((number + step) % 8)) * MIB)
            assert result in (0, NO_MEMORY), result
            refused[number] += result != 0
            held += [pointer] if result == 0 else []
            if result != 0 or step % 5 == 0:
                for one in held[::2]:
                    done("cuMemFree_v2", one)
                del held[::2]
        for one in held:
            done("cuMemFree_v2", one)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"refused": sum(refused), "peak": counts().peak_pages_bytes, "left": taken()}


def reserve(size):
    address = ctypes.c_uint64()
    done("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0),
         ctypes.c_uint64(0))
    return address.value


def map_page(address, handle):
    return call("cuMemMap", ctypes.c_uint64(address), ctypes.c_size_t(4 * MIB), ctypes.c_size_t(0), handle,
                ctypes.c_uint64(0))


def handed_over():
    """A thread maps where another unmaps at the same moment: in the end each place has one page."""
    def follow(place):
        use_device()
        handle = page()
        while map_page(place, handle) != 0:
            pass  # the other page is there
        done("cuMemRelease", handle)

    places = [reserve(4 * MIB) for _ in range(20)]
    for place in places:
        first, follower = page(), threading.Thread(target=follow, args=(place,))
        assert map_page(place, first) == 0
        done("cuMemRelease", first)
        follower.start()
        done("cuMemUnmap", ctypes.c_uint64(place), ctypes.c_size_t(4 * MIB))
        follower.join()
    seen = {"account": taken() // MIB, "charged": counts().live_pages_bytes // MIB}
    for place in places:
        done("cuMemUnmap", ctypes.c_uint64(place), ctypes.c_size_t(4 * MIB))
    return {**seen, "left": taken()}


def tell():
    free, total, whole = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
    done("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    done("cuDeviceTotalMem_v2", ctypes.byref(whole), 0)
    return free.value // MIB, total.value // MIB, whole.value // MIB


def room():
    """What the driver tells, before and with 40 MiB taken; and what cannot be had."""
    before, kept = tell(), allocate(40 * MIB)
    assert kept[0] == 0
    return {"before": before, "after": tell(), "too_much": allocate(100 * MIB)[0], "fits": allocate(20 * MIB)[0]}


def contexts():
    """What was allocated in a context goes with it."""
    context = ctypes.c_void_p()
    done("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    assert allocate(4 * MIB)[0] == 0 and taken() == 4 * MIB
    done("cuCtxDestroy_v2", context)
    return {"left": taken()}


def child():
    """A forked child's account begins at 0, and the parent's stays; CUDA itself does not survive a fork."""
    assert allocate(4 * MIB)[0] == 0
    inner, outer = os.pipe()
    if os.fork() == 0:
        os.write(outer, str(taken()).encode())
        os._exit(0)
    os.wait()
    return {"child": int(os.read(inner, 100)), "parent": taken()}


if __name__ == "__main__":
    use_device()
    print(json.dumps(globals()[sys.argv[1]]()))
