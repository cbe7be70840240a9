"""Records the allocator's requests of a stock PyTorch program, step by step, for the benchmarks.

    spillway simulate --capacity 80GiB -- python record.py [--step-after FUNCTION] OUT.stream SCRIPT [ARGUMENT...]

The program runs unchanged under the native allocator with its history on; a step ends where an optimizer steps, or
where the function that --step-after names returns: "common.Progress.step" of a module beside the script. OUT is
text, a line a request: "a ID BYTES STREAM" allocates, "f ID" frees, "step" ends a step; streams are numbered from 0 in
the order of their first use. Also converts what others recorded:

    python record.py --snapshot SNAPSHOT.pickle OUT.stream [--device N]     torch.cuda.memory._dump_snapshot's file
"""
import argparse
import functools
import importlib
import os
import pickle
import runpy
import sys

MARKER_BYTES = 7919 * 3  # a request of this size says that a step ended: no program asks for it
RELEASED = "free_completed"
KEPT_EVENTS = 50_000_000


def convert(events):
    """Lines of a stream from a device's trace: [{'action', 'addr', 'size', 'stream'}, ...], oldest first."""
    live, streams = {}, {}
    number = 0
    for event in events:
        action, address = event["action"], event["addr"]
        if action == "alloc":
            if event["size"] == MARKER_BYTES:
                live[address] = None
                yield "step"
                continue
            stream = streams.setdefault(event["stream"], len(streams))
            live[address] = number
            yield f"a {number} {event['size']} {stream}"
            number += 1
        elif action == RELEASED and address in live:  # what was allocated before the recording is not in it
            freed = live.pop(address)
            if freed is not None:
                yield f"f {freed}"


def write(path, events):
    lines = list(convert(events))
    with open(path, "w") as out:
        out.writelines(line + "\n" for line in lines)
    print(f"{path}: {sum(line[0] == 'a' for line in lines)} requests, {lines.count('step')} steps")


def end_step(*_):
    import torch

    torch.empty(MARKER_BYTES, dtype=torch.uint8, device="cuda")


def end_steps_after(name):
    """Makes the function `name`, "module.function" or "module.Class.function", end a step when it returns."""
    module, *path = name.split(".")
    owner = functools.reduce(getattr, path[:-1], importlib.import_module(module))
    function = getattr(owner, path[-1])

    @functools.wraps(function)
    def marked(*arguments, **keywords):
        result = function(*arguments, **keywords)
        end_step()
        return result

    setattr(owner, path[-1], marked)


def record(path, script, arguments, step_after):
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    torch.cuda.memory._record_memory_history(max_entries=KEPT_EVENTS, context=None)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))  # as Python does for a script
    if step_after is None:
        register_optimizer_step_post_hook(end_step)
    else:
        end_steps_after(step_after)
    runpy.run_path(script, run_name="__main__")
    write(path, torch.cuda.memory._snapshot()["device_traces"][0])


def main():
    if sys.argv[1:2] == ["--snapshot"]:
        parser = argparse.ArgumentParser(prog="record.py --snapshot")
        parser.add_argument("snapshot")
        parser.add_argument("out")
        parser.add_argument("--device", type=int, default=0)
        options = parser.parse_args(sys.argv[2:])
        with open(options.snapshot, "rb") as file:
            write(options.out, pickle.load(file)["device_traces"][options.device])
    elif sys.argv[1:2] == ["--step-after"] and len(sys.argv) >= 5:
        record(sys.argv[3], sys.argv[4], sys.argv[5:], sys.argv[2])
    elif len(sys.argv) >= 3:
        record(sys.argv[1], sys.argv[2], sys.argv[3:], None)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
