"""The part of the rehearsal's probe that is Python. libspillway_rehearsal.so runs it inside the rehearsed program.

It counts optimizer steps, ends the program after as many as `spillway rehearse --steps` says, tells the probe which
exception ended the program, and gives GradScaler a scale where no value is computed.
"""
import atexit
import ctypes
import sys
import threading


def _is_out_of_memory(error, torch, depth=16):
    """Whether `error` is an OutOfMemoryError, or was raised because of one."""
    while error is not None and depth > 0:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        depth -= 1
    return False


def _watch_exceptions(probe, torch):
    """Before the program's own hooks: what they do stays as it is."""
    outer = sys.excepthook

    def hook(kind, error, trace):
        text = str(error).encode("utf-8", "replace")
        name = f"{kind.__module__}.{kind.__qualname__}".encode("utf-8", "replace")
        probe.spillway_rehearsal_uncaught(name, text, int(_is_out_of_memory(error, torch)))
        outer(kind, error, trace)

    sys.excepthook = hook


def _watch_steps(probe, limit):
    """Several optimizers make one step of the program; it ends when one of them steps that has stepped in it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = 0
    told = False

    def tell(text):
        nonlocal told
        if not told:
            print(f"spillway rehearsal: --steps can not end the program: {text}", file=sys.stderr, flush=True)
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


def start(library, steps, values):
    import torch

    probe = ctypes.PyDLL(library)
    probe.spillway_rehearsal_uncaught.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
    atexit.register(probe.spillway_rehearsal_finish)
    _watch_exceptions(probe, torch)
    _give_scaler_values(torch, values)
    _watch_steps(probe, steps)
