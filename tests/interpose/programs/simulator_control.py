"""What a test's program asks of the simulated driver beyond CUDA, and of Spillway: include/spillway/driver's
simulator_control.h and strategies/core/core.h, as far as it is needed here.
"""
import ctypes
import os
import pathlib

OUT_OF_MEMORY = 2
LIBRARY = pathlib.Path(os.environ["SPILLWAY_BUILD_DIR"]) / "lib" / "libspillway.so"


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("driver_calls", "injected_failures", "violations", "live_pages_bytes", "peak_pages_bytes", "launches",
                 "copies", "copied_bytes", "virtual_ns", "driver_stall_ns")]


TEXT = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)


class Control(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32), ("mode", ctypes.c_void_p),
                ("alias_offset", ctypes.c_void_p), ("submit", ctypes.c_void_p),
                ("fail_call", ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)),
                ("fail_seeded", ctypes.c_void_p), ("set_latency", ctypes.c_void_p), ("set_capacity", ctypes.c_void_p),
                ("counts", ctypes.CFUNCTYPE(None, ctypes.POINTER(Counts))), ("violations", TEXT), ("leaks", TEXT)]


def simulator():
    function = ctypes.CDLL("libcuda.so.1").spillway_simulator_control
    function.restype = ctypes.POINTER(Control)
    return function().contents


CONTROL = simulator()


def counts():
    out = Counts()
    CONTROL.counts(ctypes.byref(out))
    return out


def text(report):
    size = report(None, 0) + 1
    out = ctypes.create_string_buffer(size)
    report(out, size)
    return out.value.decode()


class Budget(ctypes.Structure):
    _fields_ = [("limit_bytes", ctypes.c_uint64), ("reserve_bytes", ctypes.c_uint64),
                ("taken_bytes", ctypes.c_uint64 * 64), ("native_bytes", ctypes.c_uint64 * 64)]


class Core(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32), ("others", ctypes.c_void_p * 12),
                ("check_invariants", ctypes.CFUNCTYPE(ctypes.c_int)), ("more", ctypes.c_void_p * 16),
                ("budget", ctypes.CFUNCTYPE(ctypes.POINTER(Budget)))]


def core():
    library = ctypes.CDLL(LIBRARY)
    library.spillway_core.restype = ctypes.POINTER(Core)
    table = library.spillway_core().contents
    if table.version != 14:
        raise RuntimeError(f"the core's table has version {table.version}, and this program knows 14")
    return table


def budget():
    """What this process takes of each device, and may take."""
    return core().budget().contents


def broken_invariant():
    """The first that does not hold, or None."""
    library = ctypes.CDLL(LIBRARY)
    library.spillway_last_error.restype = ctypes.c_char_p
    return None if core().check_invariants() == 1 else library.spillway_last_error().decode()
