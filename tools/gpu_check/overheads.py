#!/usr/bin/env python3
"""What CUDA and its libraries take of a card for themselves, and cuDNN's workspaces: what the simulator models.

Run as a program (by gpu-check, on the card or on the simulator) it measures and prints JSON. The rows are those of
simulator/cards/overheads.inc: "X.library" is what the first handle takes beyond the second, "X.handle" the second.
"""
import ctypes
import json
import pathlib
import re
import sys

MIB = 1 << 20
HEADER = ["| overhead | measured MiB | modelled MiB |", "|---|---|---|"]
TABLE = pathlib.Path(__file__).resolve().parent.parent.parent / "simulator/cards/overheads.inc"


def create(library, name):
    function = getattr(library, name, None)  # a stand-in may lack what PyTorch does not call
    return function(ctypes.byref(ctypes.c_void_p())) if function else -1


def new_plan(library):
    plan = getattr(library, "cufftPlan1d", None)
    return plan(ctypes.byref(ctypes.c_int()), 4096, 0x29, 1) if plan else -1


def new_communicator(library):
    device = ctypes.c_int(0)
    return library.ncclCommInitAll(ctypes.byref(ctypes.c_void_p()), 1, ctypes.byref(device))


# Row, library, what makes one handle, and what a handle is called.
HANDLES = [("cublas", "libcublas.so.13", lambda library: create(library, "cublasCreate_v2"), "handle"),
           ("cublaslt", "libcublasLt.so.13", lambda library: create(library, "cublasLtCreate"), "handle"),
           ("cudnn", "libcudnn.so.9", lambda library: create(library, "cudnnCreate"), "handle"),
           ("cusolver", "libcusolver.so.12", lambda library: create(library, "cusolverDnCreate"), "handle"),
           ("cusparse", "libcusparse.so.12", lambda library: create(library, "cusparseCreate"), "handle"),
           ("cufft", "libcufft.so.12", new_plan, "plan"),
           ("nccl", "libnccl.so.2", new_communicator, "communicator")]

# Batch, channels, image, filters, kernel, stride: ResNet's layers, a first layer, a patch embedding.
CONVOLUTIONS = [(64, 3, 224, 64, 7, 2), (64, 64, 56, 64, 3, 1), (64, 256, 56, 64, 1, 1), (64, 128, 28, 128, 3, 1),
                (64, 512, 7, 512, 3, 1), (64, 3, 224, 768, 16, 16)]


def free(torch):
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def handles(torch):
    """Bytes by row; a library that is not there, or that refuses, has no row."""
    rows = {}
    for name, soname, make, unit in HANDLES:
        try:
            library = ctypes.CDLL(soname)
        except OSError:
            continue
        taken = []
        for _ in range(2):
            before = free(torch)
            if make(library) != 0:
                break
            taken.append(before - free(torch))
        if len(taken) == 2:
            rows[f"{name}.library"], rows[f"{name}.{unit}"] = taken[0] - taken[1], taken[1]
    return rows


def workspace(torch, operation):
    """Bytes that an operation allocates beyond its results."""
    operation()  # handles and plans are made by the first call
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = [result for result in operation() if result is not None]
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - sum(-(-result.nbytes // 512) * 512 for result in results)


def convolutions(torch):
    for batch, channels, image, filters, kernel, stride in CONVOLUTIONS:
        for dtype in (torch.float32, torch.bfloat16):
            for layout in (torch.contiguous_format, torch.channels_last):
                x = torch.randn(batch, channels, image, image, device="cuda", dtype=dtype).to(memory_format=layout)
                w = torch.randn(filters, channels, kernel, kernel, device="cuda", dtype=dtype).to(memory_format=layout)
                padding = 0 if stride == kernel else kernel // 2
                y = torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)

                def backward(*mask):
                    return torch.ops.aten.convolution_backward(y, x, w, None, [stride] * 2, [padding] * 2, [1, 1],
                                                               False, [0, 0], 1, [*mask, False])

                yield {"shape": [batch, channels, image, filters, kernel, stride], "type": str(dtype).split(".")[1],
                       "layout": "NCHW" if layout == torch.contiguous_format else "NHWC",
                       "forward": workspace(torch, lambda: [torch.nn.functional.conv2d(x, w, stride=stride,
                                                                                      padding=padding)]),
                       "backward_data": workspace(torch, lambda: backward(True, False)),
                       "backward_filter": workspace(torch, lambda: backward(False, True))}


def measure():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "programs"))
    import measure as nvml  # it imports torch, which touches no card yet

    before = nvml.free_bytes_by_nvml()
    torch = nvml.torch
    after, total = torch.cuda.mem_get_info()
    rows = {"context": (total if before is None else before) - after, **handles(torch)}
    return {"card": torch.cuda.get_device_name(), "major": torch.cuda.get_device_capability()[0],
            "overheads": rows, "cudnn_convolutions": list(convolutions(torch))}


def lines_for_the_table(result):
    """What simulator/cards/overheads.inc takes, for the rows that it has and NVIDIA does not document."""
    table = dict(re.findall(r'^SPILLWAY_OVERHEAD\("([^"]+)".*?(k\w+)\)', TABLE.read_text(), re.MULTILINE))
    return [f'SPILLWAY_OVERHEAD("{row}", {result["major"]}, {-(-taken // MIB)}, 0, kMeasured)'
            for row, taken in result["overheads"].items() if table.get(row, "kDocumented") != "kDocumented"]


def compare(measured, modelled):
    """Lines of a table: each overhead beside the model's, and how far the workspaces are from it."""
    lines = ["", *HEADER]
    for row, taken in measured["overheads"].items():
        model = modelled["overheads"].get(row)
        lines.append(f"| {row} | {taken / MIB:.0f} | {'' if model is None else f'{model / MIB:.0f}'} |")
    equal = total = 0
    for ours, theirs in zip(measured["cudnn_convolutions"], modelled["cudnn_convolutions"]):
        for operation in ("forward", "backward_data", "backward_filter"):
            total += 1
            equal += ours[operation] == theirs[operation]
            if ours[operation] != theirs[operation]:
                shape = "x".join(map(str, ours["shape"]))
                lines.append(f"| workspace {operation} {shape} {ours['type']} {ours['layout']} "
                             f"| {ours[operation] / MIB:.1f} | {theirs[operation] / MIB:.1f} |")
    lines += ["", f"{equal} of {total} workspaces of cuDNN's convolutions are as modelled"]
    return lines


def look(setting):
    from gpu_check import card as cards
    from gpu_check.machine import BUILD, PYTHON, Machine
    from gpu_check.part import Outcome

    real = setting.options.real_card
    config = setting.folder / "card.toml"
    made_from = cards.write_config(config, BUILD / "bin/spillway", cards.described(setting, real))
    rehearsed = Machine("--config", config)
    rehearsed.deadline = setting.machine.deadline
    script = pathlib.Path(__file__).resolve()
    measured, modelled = (json.loads(machine.run([PYTHON, script])) for machine in (real, rehearsed))
    measured["for_the_table"] = lines_for_the_table(measured)
    return Outcome([f"modelled as {made_from}", *compare(measured, modelled)], data=measured)


if __name__ == "__main__":
    print(json.dumps(measure()))
