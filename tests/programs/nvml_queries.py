"""What PyTorch and monitors ask of NVML, with the layouts of pynvml: NVML sees every card whatever CUDA_VISIBLE_DEVICES
hides, and agrees with CUDA on names, buses, UUIDs and free memory."""
import ctypes
import os
import re

import torch
from torch.cuda import _device_count_nvml, _parse_visible_devices, _raw_device_count_nvml, _raw_device_uuid_nvml


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]


class Pci(ctypes.Structure):
    _fields_ = ([("busIdLegacy", ctypes.c_char * 16)]
                + [(name, ctypes.c_uint) for name in ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId")]
                + [("busId", ctypes.c_char * 32)])


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong), ("gpuInstanceId", ctypes.c_uint),
                ("computeInstanceId", ctypes.c_uint)]


nvml = ctypes.CDLL("libnvidia-ml.so.1")


def ask(function, *arguments):
    result = getattr(nvml, function)(*arguments)
    assert result == 0, f"{function} gives {result}"


def text_of(function, handle):
    buffer = ctypes.create_string_buffer(96)
    ask(function, handle, buffer, 96)
    return buffer.value.decode()


def processes(handle):
    count, found = ctypes.c_uint(8), (Process * 8)()
    ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
    return [(process.pid, process.usedGpuMemory) for process in found[:count.value]]


def memory(handle):
    info, info2 = Memory(), Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
    ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(info))
    ask("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(info2))
    assert info.total == info2.total == info2.reserved + info2.free + info2.used
    assert info.free == info2.free and info.used == info2.used + info2.reserved
    return info2


visible = _parse_visible_devices()
raw = _raw_device_count_nvml()
uuids = _raw_device_uuid_nvml()
assert len(uuids) == raw and _device_count_nvml() == torch.cuda.device_count() == len(visible) < raw
ask("nvmlInit_v2")
for number, place in enumerate(visible):
    properties = torch.cuda.get_device_properties(number)
    handle, same = ctypes.c_void_p(), ctypes.c_void_p()
    ask("nvmlDeviceGetHandleByIndex_v2", place, ctypes.byref(handle))
    pci = Pci()
    ask("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
    assert (pci.domain, pci.bus) == (properties.pci_domain_id, properties.pci_bus_id)
    ask("nvmlDeviceGetHandleByPciBusId_v2", pci.busId, ctypes.byref(same))
    assert same.value == handle.value
    assert text_of("nvmlDeviceGetName", handle) == properties.name
    assert text_of("nvmlDeviceGetUUID", handle) == uuids[place] == f"GPU-{properties.uuid}"
    assert memory(handle).used == 0 and processes(handle) == []

    held = torch.empty(100 << 20, dtype=torch.uint8, device=f"cuda:{number}")
    free, total = torch.cuda.mem_get_info(number)
    now = memory(handle)
    assert now.free == free and now.total - now.reserved == total
    assert now.used > 100 << 20 and processes(handle) == [(os.getpid(), now.used)]
    print(f"{number}: {properties.name} {uuids[place]} {now.used >> 20} MiB used of {now.total >> 20} MiB")

# With NVML PyTorch's message says what the process holds beside its tensors.
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda:0")
except torch.OutOfMemoryError as error:
    message = str(error)
assert re.search(r"Including non-PyTorch memory, this process has \S+ [MG]iB memory in use", message), message
