"""What each tensor of a trainer's checkpoint is called where torch.distributed.checkpoint saves a model and its
optimizer: `model.NAME` and `optim.state.NAME.STATE`, as get_model_state_dict and get_optimizer_state_dict name them."""
import dataclasses
import typing

from .trainer_file import BadCheckpoint, TrainerFile

_MODEL, _OPTIMIZER = "model.", "optimizer."
_MASTER = "master"  # the exact weights of a model whose own are rounded
_STATES = {"adamw": {"first": "exp_avg", "second": "exp_avg_sq"}, "adam": {"first": "exp_avg", "second": "exp_avg_sq"},
           "sgd": {"momentum": "momentum_buffer"}}
_COUNTED = ("adamw", "adam")  # whose states in PyTorch count the updates
_TIED = ("transformer.wte.weight", "model.embed_tokens.weight", "shared.weight")


@dataclasses.dataclass
class Names:
    """Of a checkpoint: which tensor is stored under which key of the folder."""
    weights: dict[str, str]  # key -> tensor
    states: dict[str, str]
    steps: list[str]  # keys of the number of updates of each parameter
    aliases: dict[str, str]  # key -> tensor that has a key already: PyTorch names it twice
    rounded: dict[str, str]  # tensor -> the tensor that it is rounded from


def _split(name: str) -> tuple[str, str]:
    """"optimizer.first.a.weight" -> "first", "a.weight"."""
    state, _, parameter = name[len(_OPTIMIZER):].partition(".")
    return state, parameter


def _aliases(parameters: set[str]) -> dict[str, str]:
    tied = next((name for name in _TIED if name in parameters), None)
    found = {}
    if tied and "lm_head.weight" not in parameters:
        found["lm_head.weight"] = tied
    if "shared.weight" in parameters:
        found |= {f"{side}.embed_tokens.weight": "shared.weight" for side in ("encoder", "decoder")}
    return found


def names_of(file: TrainerFile, model: str, optimizer: str, weights_only: bool) -> Names:
    """`model`, `optimizer`: the keys under which a program saves its two state dicts; "": at the top.

    Errors: BadCheckpoint where PyTorch has no form of what the file has."""
    precision, _, kind = file.metadata.get("numerics", "").partition(" by ")
    if precision == "int8":
        raise BadCheckpoint(f"{file.path}: weights of 8 bits have no form that PyTorch's optimizers read")
    if kind not in _STATES and not weights_only:
        raise BadCheckpoint(f"{file.path}: the states of {kind or 'its optimizer'} have no form that PyTorch reads: "
                            "--weights-only leaves them out")
    masters = {_split(name)[1]: name for name in file if name.startswith(f"{_OPTIMIZER}{_MASTER}.")}
    own = {name[len(_MODEL):]: name for name in file if name.startswith(_MODEL)}
    model_key = f"{model}." if model else ""
    state_key = f"{optimizer}.state." if optimizer else "state."
    names = Names(weights={model_key + parameter: masters.get(parameter, name) for parameter, name in own.items()},
                  states={}, steps=[], aliases={}, rounded={own[one]: masters[one] for one in own if one in masters})
    names.aliases = {model_key + alias: names.weights[model_key + name] for alias, name in _aliases(set(own)).items()}
    if weights_only:
        return names
    for name in file:
        state, parameter = _split(name) if name.startswith(_OPTIMIZER) else ("", "")
        if state in _STATES[kind]:
            names.states[f"{state_key}{parameter}.{_STATES[kind][state]}"] = name
    if kind in _COUNTED:
        names.steps = [f"{state_key}{parameter}.step" for parameter in own]
    return names


def needed(names: Names) -> list[str]:
    """The keys that a folder must have."""
    return [*names.weights, *names.states, *names.steps]
