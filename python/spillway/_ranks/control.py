"""How the ranks of a process group agree: over the store in which the group was made, never over its collectives."""
import atexit
import hashlib
import json
import logging
import secrets
import sys
import time
import typing
import weakref

from .._out_of_memory import is_out_of_memory, summary
from .errors import RanksStopped
from .watch import INTERRUPTED, Incident, Watch

if typing.TYPE_CHECKING:
    import torch

log = logging.getLogger("spillway")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0001, 0.05  # seconds


class Control:
    """The ranks of one process group. Each has one, makes the same calls in the same order, and watches another one."""

    def __init__(self, ranks: list[int], generation: int, bound: float) -> None:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_default_store

        self.ranks, self.bound = ranks, bound
        self.index = ranks.index(dist.get_rank())
        name = hashlib.sha256(repr((ranks, generation)).encode()).hexdigest()[:12]
        store = _get_default_store()
        # Two connections: one waits, and the watch's must not wait for it.
        self._store = dist.PrefixStore(f"spillway/{name}", store.clone())
        other = dist.PrefixStore(f"spillway/{name}", store.clone())
        number = self._store.compare_set("number", "", secrets.token_hex(6)).decode()
        self.watch = Watch(other, ranks, self.index, number, bound, _abort_all)
        self.calls, self._last = 0, ""
        atexit.register(self.watch.stop)

    @property
    def rank(self) -> int:
        return self.ranks[self.index]

    def meet(self, key: str, said: typing.Any = None) -> list[typing.Any]:
        """Waits for all ranks; what those said that said something, in the order of their coming. All get the same.

        Raises RanksStopped when an incident comes first: then it does so on all ranks.
        """
        if said is not None:
            self._store.append(f"{key}/said", json.dumps(said) + "\n")
        answer = f"{key}/answer"
        if self._store.add(f"{key}/came", 1) == len(self.ranks):
            told = self._store.get(f"{key}/said").decode() if self._store.check([f"{key}/said"]) else "\n"
            self._store.compare_set(answer, "", told)
            # Whoever comes here has read the answer before this one.
            for part in ("said", "came", "answer") if self._last else ():
                self._store.delete_key(f"{self._last}/{part}")
        self.watch.meet(answer)
        text = self._wait(answer)
        self.watch.meet(None)
        self._last = key
        if text == INTERRUPTED:
            assert self.watch.incident is not None
            raise stopped(self.watch.incident)
        return [json.loads(line) for line in text.splitlines() if line]

    def _wait(self, key: str) -> str:
        """Asks again and again, ever less often: not every store wakes who waits for a key that is set by comparison,
        and a store that is silent holds who waits in it."""
        asked = time.monotonic()
        try:
            while not self._store.check([key]):
                time.sleep(min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, (time.monotonic() - asked) / 16)))
            text = str(self._store.get(key).decode())
        except RuntimeError as error:
            raise stopped(self.watch.incident or self.watch.lost(error))
        if text == INTERRUPTED and self.watch.incident is None:
            self.watch.wait_for_incident()
        return text

    def show(self, key: str, text: str) -> None:
        self._store.set(key, text)

    def shown(self, key: str) -> typing.Optional[str]:
        return self._store.get(key).decode() if self._store.check([key]) else None

    def add(self, key: str, count: int) -> int:
        return int(self._store.add(key, count))

    def check(self) -> None:
        """Raises RanksStopped where an incident is known."""
        if self.watch.incident is not None:
            raise stopped(self.watch.incident)

    def forget(self, key: str) -> None:
        self._store.delete_key(key)


class Turn:
    """One call that all ranks make. What leaves it as an exception ends the call of the others too."""

    def __init__(self, control: Control, name: str) -> None:
        self.control, self._name = control, name
        self.agreed = False  # that the exception which leaves is known to all
        self._meetings = 0
        self._outer = sys.exc_info()[1]

    def __enter__(self) -> "Turn":
        self.control.watch.ready()
        self.control.check()
        self.control.calls += 1
        self.control.watch.begin(self.control.calls)
        return self

    @property
    def rank(self) -> int:
        return self.control.rank

    @property
    def key(self) -> str:
        return f"{self.control.calls}/{self._meetings}"

    def meet(self, said: typing.Any = None) -> list[typing.Any]:
        self._meetings += 1
        self.collective(False)
        self.control.watch.moved()
        return self.control.meet(self.key, said)

    def collective(self, begins: bool = True) -> None:
        self.control.watch.collective(begins)

    def check(self) -> None:
        """After collectives, which have reduced nothing where they were aborted."""
        if self.control.watch.aborted:
            self.control.check()

    def done(self, devices: typing.Iterable["torch.device"]) -> None:
        """The function has returned. Its collectives may still be queued on a card."""
        import torch

        events = [torch.cuda.current_stream(one).record_event() for one in devices]
        self.control.watch.until((lambda: all(one.query() for one in events)) if events else None)

    def __exit__(self, kind: typing.Any, error: typing.Optional[BaseException], trace: typing.Any) -> None:
        try:
            if error is not None and not self.agreed and not isinstance(error, RanksStopped):
                self._explain(error)
        finally:
            self.control.watch.end()

    def _explain(self, error: BaseException) -> None:
        watch = self.control.watch
        incident = watch.incident
        if incident is None and isinstance(error, RuntimeError) and not self._is_shortage(error):
            # A collective that fails, or a kernel behind it, tells of another rank's end before the watch has seen it.
            incident = watch.wait_for_incident(_is_of_the_network(error))
        if incident is not None:
            raise stopped(incident) from error
        what = "ran out of memory" if self._is_shortage(error) else f"ended by {type(error).__name__}"
        incident = watch.post(self.control.rank, f"{what} in {self._name}: {summary(error)}")
        note(error, f"spillway.step: incident {incident.number} ends this call on all ranks")

    def _is_shortage(self, error: BaseException) -> bool:
        return is_out_of_memory(error, self._outer)


def note(error: BaseException, text: str) -> None:
    if hasattr(error, "add_note"):  # of Python 3.11
        error.add_note(text)


def stopped(incident: Incident) -> RanksStopped:
    return RanksStopped(*incident)


def new_number() -> str:
    return secrets.token_hex(6)


def _is_of_the_network(error: BaseException) -> bool:
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "NCCL", "Connection"))


def _abort_all() -> None:
    from torch.distributed import distributed_c10d

    try:
        distributed_c10d._abort_process_group()
    except Exception as error:  # a backend that cannot: the process ends later
        log.warning("communicators could not be aborted: %s", summary(error))


_controls: list[tuple[typing.Any, tuple[int, ...], Control]] = []  # of each default group that lives
_made: dict[tuple[int, ...], int] = {}


def control_of(ranks: tuple[int, ...], bound: float) -> Control:
    """That of these ranks, made at the first call with its bound: all of them make it then."""
    from torch.distributed.distributed_c10d import _get_default_group

    world = _get_default_group()
    for known, of, control in _controls:
        if known() is world and of == ranks:
            return control
    _made[ranks] = _made.get(ranks, 0) + 1
    control = Control(list(ranks), _made[ranks], bound)
    _controls.append((weakref.ref(world), ranks, control))
    return control
