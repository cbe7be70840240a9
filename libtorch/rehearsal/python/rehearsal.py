"""The part of the rehearsal's probe that is Python. The probe, libspillway_rehearsal_*.so, runs it in the program.

It counts optimizer steps, ends the program after as many as `spillway rehearse --steps` says, tells the probe which
exception ended the program, ends one whose PyTorch has no kernels for the card, and where no value is computed gives
GradScaler a scale.
"""
import atexit
import ctypes
import os
import re
import sys
import threading

_REFUSALS = ("out of memory", "alloc_failed", "allocation_failed", "status_not_initialized", "ncclunhandledcudaerror")


def _is_out_of_memory(error, torch):
    """Whether `error` is an OutOfMemoryError, or was raised because of one."""
    return any(isinstance(one, torch.OutOfMemoryError) for one in _causes(error))


def _names_memory(error):
    """Whether the text is one that a request refused outside PyTorch's allocator leads to."""
    return any(name in str(one).lower() for one in _causes(error) for name in _REFUSALS)


def _causes(error, depth=16):
    while error is not None and depth > 0:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        depth -= 1


def _has_process_group():
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def _watch_end(probe, torch, ended_by_steps):
    """Tells the probe what ended the program. The program's own hooks stay as they are, and may replace these."""
    outer_hook, outer_exit, seen = sys.excepthook, sys.exit, []

    def tell(error):
        seen.append(True)
        text = str(error).encode("utf-8", "replace")
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}".encode("utf-8", "replace")
        probe.spillway_rehearsal_uncaught(
            name, text, int(_is_out_of_memory(error, torch)), int(_names_memory(error))
        )

    def hook(kind, error, trace):
        tell(error)
        outer_hook(kind, error, trace)

    def leave(status=None):
        handled = sys.exc_info()[1]  # a handler that gives up
        if status not in (None, 0) and handled is not None:
            tell(handled)
        outer_exit(status)

    def finish():
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and not seen:  # the interpreter keeps it, whoever has replaced the hook
            tell(error)
        probe.spillway_rehearsal_finish()
        if error is None and ended_by_steps() and _has_process_group():
            # The program would have ended it. While C++ takes its objects down PyTorch's watchdog goes on looking at
            # collectives, and ends the process with an error that a whole run does not have.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    sys.excepthook, sys.exit = hook, leave
    atexit.register(finish)


def _watch_steps(probe, limit):
    """Several optimizers make one step of the program; it ends when one of them steps that has stepped in it.

    Returns a function that says whether it was ended so.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = 0
    told = False

    def tell(text):
        nonlocal told
        if not told:
            print(f"spillway rehearsal: --steps cannot end the program: {text}", file=sys.stderr, flush=True)
        told = True

    def stepped(optimizer, arguments, keywords):
        nonlocal steps
        del arguments, keywords
        if getattr(optimizer, "_spillway_last_step", 0) < steps:
            optimizer._spillway_last_step = steps
            return
        steps += 1
        optimizer._spillway_last_step = steps
        probe.spillway_rehearsal_step()
        if not limit or steps < limit:
            return
        if threading.current_thread() is not threading.main_thread():
            tell("its optimizers step in a thread of its own")
            return
        if steps > limit:
            probe.spillway_rehearsal_end_by_steps(0)
            tell("it caught the SystemExit that was raised in the step")
            return
        probe.spillway_rehearsal_end_by_steps(1)
        raise SystemExit(0)

    register_optimizer_step_post_hook(stepped)
    return lambda: limit > 0 and steps == limit and not told


def _give_scaler_values(torch, values):
    """Without true values a scale would read as nothing, and "an infinity was found" as chance."""
    if values == "compute":
        return
    scaler = torch.amp.GradScaler
    read_scale = scaler.get_scale

    def get_scale(self):
        read_scale(self)
        return self._init_scale if self._enabled else 1.0

    def maybe_step(self, optimizer, state, *arguments, **keywords):
        del self, state
        return optimizer.step(*arguments, **keywords)

    scaler.get_scale = get_scale
    if values == "random":
        scaler._maybe_opt_step = maybe_step


def _runs_on(architecture, major, minor):
    """Machine code ("sm_80") runs on its major capability from its minor one on, PTX ("compute_80") on later ones."""
    known = re.fullmatch(r"(sm|compute)_(\d+)([af]?)", architecture)
    if known is None:
        return True
    kind, built, suffix, card = known[1], int(known[2]), known[3], major * 10 + minor
    if suffix == "a":
        return built == card
    return built <= card and (built // 10 == major or (kind == "compute" and not suffix))


def _capability():
    found = []
    for attribute in (75, 76):  # cudaDevAttrComputeCapabilityMajor, -Minor
        value = ctypes.c_int()
        ctypes.CDLL(None).cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        found.append(value.value)
    return found


def _require_kernels(probe, torch):
    """What this PyTorch has no kernels for cannot run, and is not to find that out after an hour of loading."""
    architectures = (torch._C._cuda_getArchFlags() or "").split()
    probe.spillway_rehearsal_architectures(" ".join(architectures).encode())
    major, minor = _capability()
    if not architectures or any(_runs_on(one, major, minor) for one in architectures):
        return
    text = f"no kernel image is available for compute capability {major}.{minor}: this build has "
    text += " ".join(architectures)
    probe.spillway_rehearsal_uncaught(f"PyTorch {torch.__version__}".encode(), text.encode(), 0, 0)
    probe.spillway_rehearsal_finish()
    sys.stdout.flush()
    os._exit(1)


def start(library, steps, values):
    import torch

    probe = ctypes.PyDLL(library)
    probe.spillway_rehearsal_has_python()
    probe.spillway_rehearsal_uncaught.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    probe.spillway_rehearsal_architectures.argtypes = [ctypes.c_char_p]
    _require_kernels(probe, torch)
    _give_scaler_values(torch, values)
    _watch_end(probe, torch, _watch_steps(probe, steps))
