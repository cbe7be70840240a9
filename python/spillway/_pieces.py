"""A micro-batch cut into rows: the arguments of a call, and what the calls of the pieces return, as one."""
import copy
import io
import typing
from collections.abc import Iterator, MutableMapping

if typing.TYPE_CHECKING:
    import torch

Arguments = tuple[tuple, dict]  # args and kwargs
_Leaf = typing.Callable[[typing.Any], typing.Any]
_CONTAINERS = (tuple, list, MutableMapping)


def rebuilt(value: typing.Any, of_leaf: _Leaf, of_list: typing.Optional[_Leaf] = None) -> typing.Any:
    """New tuples, lists and mappings around what `of_leaf` makes of the rest; a list without containers and tensors is
    what `of_list` makes of it."""
    if type(value) is tuple or type(value).__bases__ == (tuple,):  # a named one, but no PackedSequence
        parts = [rebuilt(part, of_leaf, of_list) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if type(value) is list:
        if of_list is not None and not any(isinstance(part, _CONTAINERS) or _is_tensor(part) for part in value):
            return of_list(value)
        return [rebuilt(part, of_leaf, of_list) for part in value]
    if isinstance(value, MutableMapping):
        result = copy.copy(value)
        for key, part in value.items():
            result[key] = rebuilt(part, of_leaf, of_list)
        return result
    return of_leaf(value)


def _is_tensor(value: typing.Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)


def leaves_of(arguments: Arguments) -> list[typing.Any]:
    """What is in the tuples, lists and mappings, at any depth."""
    found: list[typing.Any] = []
    rebuilt(arguments, found.append)
    return found


def tensors_of(leaves: typing.Iterable[typing.Any]) -> list["torch.Tensor"]:
    return [leaf for leaf in leaves if _is_tensor(leaf)]


def check_repeatable(name: str, leaves: list[typing.Any], restored: list[object]) -> None:
    """Raises TypeError for an iterator, from which a redo would take what comes next."""
    for leaf in leaves:
        if isinstance(leaf, Iterator) and not any(leaf is one for one in restored) and not _is_written(leaf):
            raise TypeError(f"spillway.step: {name} is given an iterator, a {type(leaf).__name__}: a call that is done "
                            "again would take other data from it. Take the data from it before the call, or name it in "
                            "`restore`, if it has state_dict and load_state_dict")


def _is_written(thing: typing.Any) -> bool:
    """A file that is not read: what is written to it twice changes no result."""
    return isinstance(thing, io.IOBase) and (thing.closed or not thing.readable())


def rows_of(arguments: Arguments) -> int:
    """The first dimension of the first tensor that has one; 0 without such."""
    return next((tensor.shape[0] for tensor in tensors_of(leaves_of(arguments)) if tensor.dim()), 0)


def cut(arguments: Arguments, rows: int, first: int, end: int) -> Arguments:
    """Rows `first` to `end` of every tensor, and of every list of plain values, that has `rows`; the rest whole."""
    def of_leaf(leaf: typing.Any) -> typing.Any:
        return leaf[first:end] if _is_tensor(leaf) and leaf.dim() and leaf.shape[0] == rows else leaf

    return rebuilt(arguments, of_leaf, lambda values: values[first:end] if len(values) == rows else values)


def check_joinable(result: typing.Any) -> None:
    """Raises TypeError for what join() cannot join."""
    if isinstance(result, MutableMapping):
        result = list(result.values())
    if isinstance(result, tuple) or type(result) is list:
        for part in result:
            check_joinable(part)
    elif result is not None and not _is_tensor(result) and type(result) not in (int, float):
        raise TypeError(f"spillway.step: a function that may be split returned a {type(result).__name__}: return None, "
                        "numbers, tensors, or tuples, lists and dictionaries of them")


def join(results: list[typing.Any], weights: list[float]) -> typing.Any:
    """What the whole call would have returned: numbers and tensors without dimensions are summed with the weights,
    other tensors concatenated, containers joined part by part."""
    first = results[0]
    if first is None:
        return None
    if isinstance(first, MutableMapping):
        joined = copy.copy(first)
        for key in first:
            joined[key] = join([result[key] for result in results], weights)
        return joined
    if isinstance(first, (tuple, list)):
        parts = [join(list(part), weights) for part in zip(*results)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if _is_tensor(first) and first.dim():
        import torch

        return torch.cat(results)
    return sum(result * weight for result, weight in zip(results, weights) if weight)
