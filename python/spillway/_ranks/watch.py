"""Threads of each rank: one says in the store that the rank lives, and looks at the next one; one ends its calls."""
import json
import logging
import os
import threading
import time
import typing

from . import life

log = logging.getLogger("spillway")
_GRACE = 1.0  # seconds in which a rank may leave a collective by itself
_PATIENCE = 10  # bounds for which a rank that lives may be late
_EXIT_CODE = 18  # as spillway-train's where another rank has failed
INTERRUPTED = "!"  # what ranks that wait find instead of an answer


class Incident(typing.NamedTuple):
    number: str
    rank: typing.Optional[int]  # None: no rank, but what they meet at
    cause: str


class Watch:
    """Rank i watches rank i + 1 of the group, and the last one the first: whoever dies, another rank sees it.

    An incident ends the calls of all ranks. One that waits for the others is woken. One that is in a collective has its
    communicators aborted. Where that does not help within `bound` seconds the process ends: it would wait for ever.

    A store can be silent for ever, so the thread that ends calls asks it nothing. All times are counted in the threads'
    own rounds: a rank that was stopped accuses nobody when it goes on.
    """

    def __init__(self, store: typing.Any, ranks: list[int], index: int, number: str, bound: float,
                 abort: typing.Callable[[], None]) -> None:
        self.incident: typing.Optional[Incident] = None
        self._store, self._ranks, self._index, self._number, self._bound = store, ranks, index, number, bound
        self._abort = abort
        self._interval = min(2.0, bound / 10)
        self._process = life.this_process()
        self._beats, self._call, self._moves = 0, 0, 0
        self._in_call, self._collective = False, False
        self._meeting: typing.Optional[str] = None
        self._done: typing.Optional[typing.Callable[[], bool]] = None
        self._next = _Next()
        self._alarm = 0.0  # for how long an incident is known while the rank waits
        self.aborted, self._store_is_lost = False, False
        self._rounds, self._seen_rounds, self._stuck = 0, 0, 0.0  # odd while one is under way
        self._ended = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._run, name="spillway ranks", daemon=True)
        self._thread.start()
        threading.Thread(target=self._end_calls, name="spillway alarm", daemon=True).start()

    def begin(self, call: int) -> None:
        self._moves = 0
        self._call, self._in_call = call, True

    def end(self) -> None:
        self._in_call, self._collective, self._meeting = False, False, None

    def until(self, done: typing.Optional[typing.Callable[[], bool]]) -> None:
        """The call's collectives end when `done` says so, which may be after the call; None: they have ended."""
        self._done = done

    def ready(self) -> None:
        """Before a call: a rank that nobody watches any more makes none."""
        if self.incident is None and not self._thread.is_alive():
            self.lost("its thread has ended")

    def moved(self, count: int = 1) -> None:
        """The rank has come to one more collective or meeting of its call: how far ranks are is compared by these."""
        self._moves += count

    def collective(self, inside: bool) -> None:
        """Whether the rank may be waiting in a collective."""
        self._collective = inside

    def meet(self, key: typing.Optional[str]) -> None:
        """The key that the rank is about to wait for."""
        self._meeting = key
        if key is not None and self.incident is not None:
            self._store.compare_set(key, "", INTERRUPTED)

    def post(self, rank: typing.Optional[int], cause: str) -> Incident:
        """Tells all ranks, but for an incident that was told before; which one it is."""
        mine = json.dumps([rank, cause])
        try:
            told = self._store.compare_set("incident", "", mine).decode()
        except RuntimeError:  # the store is gone: each rank says what it saw
            told = mine
        self.incident = self.incident or Incident(self._number, *json.loads(told))
        return self.incident

    def lost(self, why: object) -> Incident:
        """The store is gone. It may have been in the process of the next rank; else no rank is to blame."""
        self._store_is_lost = True
        for _ in range(5):  # a process closes its connections a little before it is gone
            if self.incident is not None or self._next.is_gone():
                break
            time.sleep(self._interval / 4)
        if self.incident is None:
            self.incident = (Incident(self._number, self._next_rank(), self._next.died()) if self._next.is_gone() else
                             Incident(self._number, None, f"the store where ranks meet cannot be reached: {why}"))
        return self.incident

    def wait_for_incident(self, surely: bool = True) -> typing.Optional[Incident]:
        """For as long as it takes to see who failed, or where that is not sure, to see a process that is gone."""
        end = time.monotonic() + 2 * self._interval + (self._bound + self._interval if surely else 0)
        while self.incident is None and time.monotonic() < end and self._thread.is_alive():
            time.sleep(self._interval / 4)
        return self.incident

    def stop(self) -> None:
        """At the program's end."""
        self._ended.set()
        self._thread.join(2 * self._interval + 1)

    def _beat(self, ended: bool = False) -> None:
        self._beats += 1
        beat = {**self._process, "beat": self._beats, "call": self._call, "moves": self._moves, "ended": ended}
        self._store.set(f"beat/{self._index}", json.dumps(beat))

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self._rounds += 1
            try:
                self._round()
            except Exception as error:  # of the store
                self.lost(error)
            self._rounds += 1
        try:
            self._beat(ended=True)
        except RuntimeError:
            pass  # nobody is left to read it

    def _round(self) -> None:
        if self._store_is_lost:
            return
        self._beat()
        if self.incident is None and self._store.check(["incident"]):
            self.incident = Incident(self._number, *json.loads(self._store.get("incident")))
        if self.incident is None:
            self._look_at_next()
        meeting = self._meeting
        if self.incident is not None and meeting is not None:
            self._store.compare_set(meeting, "", INTERRUPTED)

    def _next_rank(self) -> int:
        return self._ranks[(self._index + 1) % len(self._ranks)]

    def _look_at_next(self) -> None:
        key = f"beat/{(self._index + 1) % len(self._ranks)}"
        text = self._store.get(key).decode() if self._store.check([key]) else ""
        if not self._in_call and self._done is None:
            self._next.see(text)
            return
        self._next.look(text, (self._call, self._moves), self._interval)
        why = self._next.trouble(self._bound)
        if why is not None and self._waits():
            self.post(self._next_rank(), why)

    def _waits(self) -> bool:
        """Whether the rank is in a call, or its program may be waiting for what a call has left on a card. Asked only
        where something is wrong: another thread may be capturing a graph, and asking a card would end that."""
        if self._done is not None and _is_done(self._done):
            self._done = None
        return self._in_call or self._done is not None

    def _end_calls(self) -> None:
        while not self._ended.wait(self._interval):
            self._look_at_round()
            if self.incident is None or not self._waits():
                self._alarm = 0.0
                continue
            if self._in_call and self._collective and not self.aborted and self._alarm > _GRACE:
                self.aborted = True
                threading.Thread(target=self._abort, name="spillway abort", daemon=True).start()
            if self._alarm > max(self._bound, 5 * _GRACE) and self._waits():
                log.critical("incident %s: %s. This rank cannot leave what it waits for, and its process ends",
                             self.incident.number, named(self.incident.rank, self.incident.cause))
                os._exit(_EXIT_CODE)
            self._alarm += self._interval

    def _look_at_round(self) -> None:
        """A store that does not answer holds this rank's other threads for as long as it likes."""
        rounds = self._rounds
        self._stuck = self._stuck + self._interval if rounds == self._seen_rounds and rounds % 2 else 0.0
        self._seen_rounds = rounds
        if self._stuck > self._bound and self._waits() and self.incident is None:
            self.incident = Incident(self._number, None,
                                     f"the store where ranks meet does not answer for {self._stuck:.0f} s")


def _is_done(done: typing.Callable[[], bool]) -> bool:
    try:
        return done()
    except RuntimeError:  # of the card, and its program sees that too
        return True


def named(rank: typing.Optional[int], cause: str) -> str:
    return cause if rank is None else f"rank {rank} {cause}"


class _Next:
    """What the rank knows of the one that it watches."""

    def __init__(self) -> None:
        self._text = ""
        self._beat: dict[str, typing.Any] = {}
        self._silent = 0.0  # for how long there was no other beat
        self._late = 0.0  # for how long it is at one place that is behind this rank's
        self._mine = (0, 0)

    def see(self, text: str) -> None:
        """Without waiting for it."""
        self._silent = self._late = 0.0
        self._text, self._beat = text, json.loads(text) if text else {}

    def look(self, text: str, mine: tuple[int, int], interval: float) -> None:
        """`text` is its last beat, "" before the first; `mine` the place of this rank: call and moves in it."""
        before = self._place()
        self._silent = 0.0 if text != self._text else self._silent + interval
        self._text, self._mine = text, mine
        self._beat = json.loads(text) if text else {}
        self._late = self._late + interval if before == self._place() < mine else 0.0

    def trouble(self, bound: float) -> typing.Optional[str]:
        """Why no rank may wait for it any longer; None where it may."""
        call, last = self._mine[0], self._place()[0]
        if self._beat.get("ended"):
            return f"ended its program after {last} calls, and others are in call {call}" if last < call else None
        if self.is_gone():
            return self.died()
        if self._beat and self._silent > bound:
            return f"does not answer for {self._silent:.0f} s"
        if self._late > _PATIENCE * bound:
            where = "come to" if last < call else "gone on in"
            return f"has not {where} call {call} for {self._late:.0f} s"
        return None

    def is_gone(self) -> bool:
        return bool(self._beat) and life.is_gone(self._beat)

    def died(self) -> str:
        return f"died: its process {self._beat['pid']} is gone"

    def _place(self) -> tuple[int, int]:
        return self._beat.get("call", 0), self._beat.get("moves", 0)
