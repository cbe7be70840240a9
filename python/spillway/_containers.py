"""The containers among the arguments of a call, which the function may change (`inputs.pop("labels")`), put back."""
import typing
from collections import deque
from collections.abc import MutableMapping, MutableSet

from ._gradients import CannotUndo

_Content = typing.Union[dict, list]
_NONE_INSIDE = (str, int, float, bool, bytes, type(None))  # there may be many, as in a list of texts
_READ_ALIKE = (dict, list, set, deque, bytearray)


def _read(value: typing.Any) -> typing.Optional[_Content]:
    """What a container has in it; None of what is none, or cannot be read."""
    try:
        if isinstance(value, (list, deque, bytearray)):
            return list(value)
        if isinstance(value, MutableMapping):
            return dict(value)
        return list(value) if isinstance(value, MutableSet) else None
    except Exception:  # a class of the caller's own: OmegaConf raises for a value that is missing
        return None


def _same(one: _Content, other: _Content) -> bool:
    """Whether they are the same objects in the same order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and _same(list(one.values()), list(other.values()))
    return [*map(id, one)] == [*map(id, other)]


class ContainersBefore:
    """What they hold before a run, at any depth. Of a deque that is its own entries alone: a replay buffer has
    millions, each with others in it."""

    def __init__(self, arguments: tuple[tuple, dict]) -> None:
        self._before: list[tuple[typing.Any, _Content]] = []
        self._made: list[tuple[MutableMapping, list]] = []  # whose values are made as they are read: the keys
        self._seen: set[int] = set()  # a container may be a part of itself
        self._waiting: list[typing.Any] = [*arguments[0], *arguments[1].values()]
        while self._waiting:
            value = self._waiting.pop()
            if type(value) not in _NONE_INSIDE and id(value) not in self._seen:
                self._note(value)

    def _note(self, value: typing.Any) -> None:
        if isinstance(value, tuple):
            self._seen.add(id(value))
            self._waiting.extend(value)
        elif (content := _read(value)) is not None:
            self._seen.add(id(value))
            if type(value) in _READ_ALIKE or ((again := _read(value)) is not None and _same(content, again)):
                self._note_content(value, content)
            elif isinstance(content, dict):
                self._made.append((value, list(content)))

    def _note_content(self, value: typing.Any, content: _Content) -> None:
        self._before.append((value, content))
        if isinstance(content, dict):
            self._waiting.extend(content.values())
        elif isinstance(value, list):
            self._waiting.extend(content)
        if isinstance(value, dict) and hasattr(value, "__dict__"):  # ModelOutput of transformers has its values twice
            self._before.append((vars(value), dict(vars(value))))

    def restore(self) -> None:
        """Raises CannotUndo, after all that can be put back has been."""
        obstacle: typing.Optional[CannotUndo] = None
        for container, content in self._before:
            try:
                _restore(container, content)
            except Exception as error:  # of a class of the caller's own
                obstacle = obstacle or CannotUndo(f"a {type(container).__name__} among its arguments cannot be put "
                                                  f"back ({type(error).__name__}: {error})")
        for mapping, keys in self._made:
            content = _read(mapping)
            if content is None or list(content) != keys:
                obstacle = obstacle or CannotUndo(f"the function changed a {type(mapping).__name__} among its "
                                                  "arguments, whose values are made as they are read")
        if obstacle is not None:
            raise obstacle


def _restore(container: typing.Any, content: _Content) -> None:
    now = _read(container)
    if now is not None and _same(now, content):
        return
    if isinstance(container, (list, bytearray)):
        container[:] = content
    elif isinstance(container, deque):
        container.clear()
        container.extend(content)
    elif isinstance(container, MutableSet):
        container.clear()
        for one in content:
            container.add(one)
    else:
        _refill(container, typing.cast(dict, content))


def _refill(mapping: MutableMapping, content: dict) -> None:
    """Not by update() and not by `del`, which ModelOutput of transformers refuses."""
    if list(mapping) != list(content):
        mapping.clear()
    for key, value in content.items():
        mapping[key] = value
