"""Carries a training between spillway-train and programs that save by torch.distributed.checkpoint.

    python -m spillway.checkpoint to-dcp RUN FOLDER [--weights-only]
    python -m spillway.checkpoint from-dcp FOLDER RUN --like RUN [--weights-only]

RUN is the folder of a run, which has its checkpoint.safetensors, or a file that is named *.safetensors.

`to-dcp` writes a new folder that torch.distributed.checkpoint.load reads, on any number of ranks and in any sharding:
the weights under `model`, what the optimizer keeps under `optim`, with Hugging Face's names. `from-dcp` reads such a
folder, whoever wrote it and however it was sharded, and writes a file that `spillway-train --resume` goes on from. What
a folder does not have, such as the data's cursor and the plan, comes from `--like`: a run of the same model and
settings, as a rule the one that the program began with. The step counts on by the updates that the program has made;
SGD counts none in PyTorch, so that its step stays. A checkpoint that RUN has already is replaced.

Neither direction needs a GPU, a process group or the model's code. It needs PyTorch. Read only folders that you trust:
PyTorch's index of a folder is a pickle. Programs whose state dicts have other keys are served by --model and
--optimizer; "" means the top.
"""
import argparse
import pathlib
import sys
import typing

import torch

from ._checkpoint.dcp_folder import Folder, save
from ._checkpoint.names import Names, names_of, needed
from ._checkpoint.trainer_file import BadCheckpoint, TrainerFile, rows_of, write

__all__ = ["BadCheckpoint", "from_dcp", "to_dcp"]

_AT_ONCE = 1 << 30  # bytes that are read together


def _file_of(run: pathlib.Path) -> pathlib.Path:
    return run if run.suffix == ".safetensors" else run / "checkpoint.safetensors"


def to_dcp(run: pathlib.Path, folder: pathlib.Path, model: str = "model", optimizer: str = "optim",
           weights_only: bool = False) -> str:
    """Writes `folder`, which must not exist; a line that says what it has. It appears whole or not at all.

    Errors: BadCheckpoint, OSError."""
    file = TrainerFile(_file_of(run))
    names = names_of(file, model, optimizer, weights_only)
    state = {key: file[name] for key, name in (names.weights | names.states | names.aliases).items()}
    if names.steps:
        updates = float(file.number("updates"))
        state |= {key: torch.tensor(updates) for key in names.steps}
    step = file.number("step")
    save(state, folder)
    return f"{folder}: {len(names.weights)} weights and {len(names.states)} states of the optimizer, after step {step}"


def _updates(folder: Folder, names: Names, file: TrainerFile) -> int:
    if not names.steps:
        return file.number("updates")
    for key in names.steps:
        folder.check(key, torch.tensor(0.0))
    counts = {float(count) for count in folder.tensors(names.steps)}
    count = counts.pop()
    if counts or not count.is_integer() or count < 0:
        raise BadCheckpoint(f"{folder.path}: its parameters have not been updated equally often")
    return int(count)


def _progress(file: TrainerFile, updates: int) -> dict[str, str]:
    """The step and the cursor after so many updates in all."""
    more = updates - file.number("updates")
    settings = dict(line.split(" = ", 1) for line in file.metadata.get("settings", "").splitlines() if " = " in line)
    rows = rows_of(settings.get("train.batch", ""))
    if more != 0 and rows is None:
        raise BadCheckpoint(f"{file.path}: does not say how many rows a step has")
    step, cursor = file.number("step") + more, file.number("cursor") + more * (rows or 0)
    if step < 0 or cursor < 0:
        raise BadCheckpoint(f"{file.path}: has made {file.number('updates')} updates in {file.number('step')} steps, "
                            f"and the folder {updates}: they are not of one training")
    return {"updates": str(updates), "step": str(step), "cursor": str(cursor)}


def _read(folder: Folder, names: Names, file: TrainerFile) -> typing.Iterator[tuple[str, torch.Tensor]]:
    """All tensors of the file in its order, from the folder where that has them."""
    key_of = {name: key for key, name in (names.weights | names.states).items()}

    def read(some: list[str]) -> typing.Iterator[tuple[str, torch.Tensor]]:
        source = {name: key_of.get(names.rounded.get(name, name)) for name in some}
        keys = list(dict.fromkeys(key for key in source.values() if key is not None))
        stored = dict(zip(keys, folder.tensors(keys))) if keys else {}
        for name, key in source.items():
            yield name, file[name] if key is None else stored[key].to(file[name].dtype)

    some, size = [], 0
    for name in file:
        some.append(name)
        size += file[name].nbytes
        if size >= _AT_ONCE:
            yield from read(some)
            some, size = [], 0
    yield from read(some)


def _check_others(folder: Folder, names: Names, file: TrainerFile, prefix: str) -> None:
    """That the folder's model has no weight that would be left out."""
    for key in folder.weights(prefix) if prefix else []:
        if key not in names.weights and key not in names.aliases:
            raise BadCheckpoint(f"{folder.path}: has '{key}', and the model of {file.path} has not")
    first = {name: key for key, name in names.weights.items()}
    for alias, name in names.aliases.items():
        if alias not in folder:
            continue
        folder.check(alias, file[name])
        one, other = folder.tensors([alias, first[name]])
        if not torch.equal(one, other):
            raise BadCheckpoint(f"{folder.path}: '{alias}' and '{first[name]}' differ, and are one in {file.path}")


def from_dcp(folder: pathlib.Path, run: pathlib.Path, like: pathlib.Path, model: str = "model",
             optimizer: str = "optim", weights_only: bool = False) -> str:
    """Writes the checkpoint of `run`; a line that says what it has. With `weights_only` the optimizer's states are
    those of `like`, and so is the step. Nothing is changed by an error.

    Errors: BadCheckpoint, OSError."""
    file, stored, checkpoint = TrainerFile(_file_of(like)), Folder(folder), _file_of(run)
    names = names_of(file, model, optimizer, weights_only)
    missing = [key for key in needed(names) if key not in stored]
    if missing:
        others = f", nor {len(missing) - 1} others" if missing[1:] else ""
        raise BadCheckpoint(f"{folder}: has no '{missing[0]}'{others}")
    for key, name in (names.weights | names.states).items():
        stored.check(key, file[name])
    _check_others(stored, names, file, f"{model}." if model else "")
    progress = {} if weights_only else _progress(file, _updates(stored, names, file))
    step = progress.get("step") or file.number("step")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    write(checkpoint, file, progress, _read(stored, names, file))
    return f"{checkpoint}: after step {step}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spillway.checkpoint", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    to = ways.add_parser("to-dcp", help="a folder of a run's checkpoint")
    back = ways.add_parser("from-dcp", help="a run's checkpoint of a folder")
    to.add_argument("run", type=pathlib.Path, metavar="RUN")
    to.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    back.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    back.add_argument("run", type=pathlib.Path, metavar="RUN")
    back.add_argument("--like", required=True, type=pathlib.Path, metavar="RUN",
                      help="of the same model: what the folder does not have")
    for way in (to, back):
        way.add_argument("--weights-only", action="store_true", help="without the optimizer's states")
        way.add_argument("--model", default="model", metavar="KEY", help="of the model's state dict (model)")
        way.add_argument("--optimizer", default="optim", metavar="KEY", help="of the optimizer's state dict (optim)")
    return parser.parse_args()


def main() -> int:
    """0: it is there. 1: an error, and what was there is as it was before. 2: the command line."""
    options = _arguments()
    how = (options.model, options.optimizer, options.weights_only)
    try:
        if options.way == "to-dcp":
            print(to_dcp(options.run, options.folder, *how))
        else:
            print(from_dcp(options.folder, options.run, options.like, *how))
    except (BadCheckpoint, OSError) as error:
        print(f"spillway.checkpoint: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
