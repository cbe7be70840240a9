"""A micro-batch cut into rows: the arguments of a call, and what the calls of the pieces return, as one."""
import copy
import io
import sys
import typing
from collections.abc import Iterator, MutableMapping

if typing.TYPE_CHECKING:
    import torch

Arguments = tuple[tuple, dict]  # args and kwargs
_Place = tuple[typing.Any, ...]  # in the arguments: positions and keys


def _parts(value: typing.Any) -> typing.Optional[dict[typing.Any, typing.Any]]:
    """What a tuple, list or mapping has in it, by position or key; None of anything else, and of what is not read."""
    import torch

    if isinstance(value, MutableMapping):
        try:
            return dict(value)
        except Exception:  # a class of the caller's own: OmegaConf raises for a value that is missing
            return None
    plain = type(value) is tuple or type(value).__bases__ == (tuple,)  # a named one, but no PackedSequence
    if isinstance(value, list) or (plain and not isinstance(value, torch.Size)):
        return dict(enumerate(value))
    return None


def _like(value: typing.Any, parts: typing.Iterable[typing.Any]) -> typing.Any:
    """A container as `value` is, with other parts. Raises ValueError for one whose copy may share its content."""
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, MutableMapping) and not isinstance(value, dict) and not hasattr(type(value), "__copy__"):
        raise ValueError(f"spillway.step: a {type(value).__name__} among the arguments cannot be cut into rows: it has "
                         "no __copy__, and a piece's rows would take the place of its own. Pass a dict")
    result = copy.copy(value)
    if isinstance(value, list):
        result[:] = parts
        return result
    attributes = getattr(result, "__dict__", {})
    for key, part in zip(list(value.keys()), parts):  # not by update(), which ModelOutput of transformers refuses
        if key in attributes and attributes[key] is value[key]:
            attributes[key] = part  # of a dictionary that has its values twice
        result[key] = part
    return result


def _is_tensor(value: typing.Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)


def leaves_of(arguments: Arguments) -> list[typing.Any]:
    """What is in the tuples, lists and mappings, at any depth. Each of these is looked at once: it may be a part of
    itself."""
    found: list[typing.Any] = []
    seen: dict[int, typing.Any] = {}  # kept alive: the values of some mappings are made as they are read
    waiting: list[typing.Any] = [arguments]
    while waiting:
        value = waiting.pop()
        parts = None if type(value) in (str, int, float) else _parts(value)
        if parts is None:
            found.append(value)
        elif id(value) not in seen:
            seen[id(value)] = value
            waiting.extend(reversed(parts.values()))
    return found


def tensors_of(leaves: typing.Iterable[typing.Any]) -> list["torch.Tensor"]:
    return [leaf for leaf in leaves if _is_tensor(leaf)]


def check_repeatable(name: str, leaves: list[typing.Any], restored: list[object]) -> None:
    """Raises TypeError for an iterator, from which a redo would take what comes next."""
    for leaf in leaves:
        if type(leaf) is str or not isinstance(leaf, Iterator):
            continue
        if not _is_written(leaf) and not any(leaf is one for one in restored):
            raise TypeError(f"spillway.step: {name} is given an iterator, a {type(leaf).__name__}: a call that is done "
                            "again would take other data from it. Take the data from it before the call, or name it in "
                            "`restore`, if it has state_dict and load_state_dict")


def _is_written(thing: typing.Any) -> bool:
    """A file that is not read: what is written to it twice changes no result."""
    return isinstance(thing, io.IOBase) and (thing.closed or not thing.readable())


def first_with_rows(leaves: list[typing.Any]) -> typing.Any:
    """The first tensor with a dimension; else the first NumPy array; None where there is neither."""
    first = next((tensor for tensor in tensors_of(leaves) if tensor.dim()), None)
    return next((leaf for leaf in leaves if _is_array(leaf) and leaf.ndim), None) if first is None else first


def rows_of(arguments: Arguments) -> int:
    """Its first dimension; 0 without such."""
    first = first_with_rows(leaves_of(arguments))
    return 0 if first is None else first.shape[0]


class Cut:
    """Cuts arguments into pieces of their rows.

    A tensor or NumPy array whose first dimension is the number of rows is cut, and so is a list or tuple of as many
    parts, but for a tuple of numbers: (224, 224) is a size. In any other list or tuple, in named tuples and in
    mappings, every part is looked at by itself; what is something else stays whole. A list or tuple of as many parts,
    of which each would be cut too, may be either: the container of the first tensor, whose rows are counted, is not
    cut, and what was one of both in an earlier call still is. Else ValueError is raised.
    """

    def __init__(self) -> None:
        self._known: dict[_Place, bool] = {}  # whether the container there has a part for each row

    def __call__(self, arguments: Arguments, rows: int, first: int, end: int) -> Arguments:
        counted = first_with_rows(leaves_of(arguments))

        def cut(value: typing.Any, place: _Place) -> typing.Any:
            if _has_rows(value, rows):
                return value[first:end]
            parts = _parts(value)
            if parts is None:
                return value
            if self._is_of_rows(value, parts, rows, place, counted):
                return _like(value, list(value)[first:end])
            return _like(value, [cut(part, (*place, key)) for key, part in parts.items()])

        args, kwargs = arguments
        return (tuple(cut(one, (position,)) for position, one in enumerate(args)),
                {name: cut(one, (name,)) for name, one in kwargs.items()})

    def _is_of_rows(self, value: typing.Any, parts: dict[typing.Any, typing.Any], rows: int, place: _Place,
                    counted: typing.Any) -> bool:
        if not _may_be_of_rows(value):
            return False
        if len(parts) != rows:
            self._known.setdefault(place, False)
            return False
        if place not in self._known:
            if any(leaf is counted for leaf in leaves_of(((value,), {}))):
                return False
            if all(_may_be_cut(part, rows) for part in parts.values()):
                raise ValueError(f"spillway.step: argument {_said(place)} is a {type(value).__name__} of {rows} parts "
                                 f"that have {rows} rows each: it may have a part for each row, or parts that have all "
                                 "rows. Pass parts that have all rows in a dictionary, and a part for each row in a "
                                 "NumPy array of objects")
            self._known[place] = True
        return self._known[place]


def _is_array(value: typing.Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _has_rows(value: typing.Any, rows: int) -> bool:
    return (_is_tensor(value) or _is_array(value)) and value.ndim > 0 and value.shape[0] == rows


def _may_be_of_rows(container: typing.Any) -> bool:
    """Whether it may have a part for each row."""
    if isinstance(container, MutableMapping) or hasattr(container, "_fields"):
        return False
    return not isinstance(container, tuple) or any(type(part) not in (int, float, bool) for part in container)


def _may_be_cut(value: typing.Any, rows: int) -> bool:
    """Whether it, or something in it, has as many rows."""
    if _has_rows(value, rows):
        return True
    parts = _parts(value)
    if parts is None:
        return False
    return (_may_be_of_rows(value) and len(parts) == rows) or any(_may_be_cut(part, rows) for part in parts.values())


def _said(place: _Place) -> str:
    first, *others = place
    return f"{first + 1 if isinstance(first, int) else first}" + "".join(f"[{one!r}]" for one in others)


def check_joinable(result: typing.Any, place: _Place = ()) -> None:
    """Raises TypeError for what join() cannot join."""
    parts = result if isinstance(result, MutableMapping) else None
    if isinstance(result, tuple) or type(result) is list:
        parts = dict(enumerate(result))
    if parts is not None:
        for key, part in parts.items():
            check_joinable(part, (*place, key))
    elif result is not None and not _is_tensor(result) and type(result) not in (int, float):
        where = " in " + "".join(f"[{one!r}]" for one in place) if place else ""
        raise TypeError(f"spillway.step: a function that may be split returned a {type(result).__name__}{where}: "
                        "return None, numbers, tensors, or tuples, lists and dictionaries of them")


def join(results: list[typing.Any], weights: list[float]) -> typing.Any:
    """What the whole call would have returned: numbers and tensors without dimensions are summed with the weights,
    other tensors concatenated, containers joined part by part. Raises TypeError where pieces have other parts."""
    first = results[0]
    if first is None:
        return None
    if isinstance(first, MutableMapping):
        _check_same([list(result.keys()) for result in results])
        joined = copy.copy(first)
        for key in list(first.keys()):
            joined[key] = join([result[key] for result in results], weights)
        return joined
    if isinstance(first, (tuple, list)):
        _check_same([list(range(len(result))) for result in results])
        parts = [join(list(part), weights) for part in zip(*results)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if _is_tensor(first) and first.dim():
        import torch

        return torch.cat(results)
    return sum(result * weight for result, weight in zip(results, weights) if weight)


def _check_same(parts: list[typing.Any]) -> None:
    """`parts`: which the containers of the pieces have."""
    other = next((one for one in parts if one != parts[0]), None)
    if other is not None:
        raise TypeError(f"spillway.step: a container that the function returned has the parts {parts[0]} in one piece "
                        f"and {other} in another: return the same parts in each piece, and what belongs to rows as a "
                        "tensor")
