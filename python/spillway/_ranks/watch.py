"""A thread of each rank that says in the store that the rank lives, and looks whether the next one does."""
import json
import logging
import os
import threading
import time
import typing

from . import life

log = logging.getLogger("spillway")
_GRACE = 1.0  # seconds in which a rank may leave a collective by itself
_EXIT_CODE = 18  # as spillway-train's where another rank has failed
INTERRUPTED = "!"  # what ranks that wait find instead of an answer


class Incident(typing.NamedTuple):
    number: str
    rank: int
    cause: str


class Watch:
    """Rank i watches rank i + 1 of the group, and the last one the first: whoever dies, another rank sees it.

    An incident ends the calls of all ranks. One that waits for the others is woken. One that is in a collective has its
    communicators aborted. Where that does not help within `bound` seconds the process ends: it would wait for ever.
    """

    def __init__(self, store: typing.Any, ranks: list[int], index: int, number: str, bound: float,
                 abort: typing.Callable[[], None]) -> None:
        self.incident: typing.Optional[Incident] = None
        self._store, self._ranks, self._index, self._number, self._bound = store, ranks, index, number, bound
        self._abort = abort
        self._interval = min(2.0, bound / 10)
        self._process = life.this_process()
        self._beats, self._call, self._in_call, self._collective = 0, 0, False, False
        self._meeting: typing.Optional[str] = None
        self._seen: tuple[str, float] = ("", 0.0)  # the next rank's last beat, and for how long there was no other
        self._alarm: typing.Optional[float] = None  # since when an incident is known inside a call
        self._aborted, self._store_is_lost = False, False
        self._ended = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._run, name="spillway ranks", daemon=True)
        self._thread.start()

    def begin(self, call: int) -> None:
        self._call, self._in_call = call, True

    def end(self) -> None:
        self._in_call, self._collective, self._meeting, self._alarm = False, False, None, None

    def collective(self, inside: bool) -> None:
        """Whether the rank may be waiting in a collective."""
        self._collective = inside

    def meet(self, key: typing.Optional[str]) -> None:
        """The key that the rank is about to wait for."""
        self._meeting = key
        if key is not None and self.incident is not None:
            self._store.compare_set(key, "", INTERRUPTED)

    def post(self, rank: int, cause: str) -> Incident:
        """Tells all ranks, but for an incident that was told before; which one it is."""
        mine = json.dumps([rank, cause])
        try:
            told = self._store.compare_set("incident", "", mine).decode()
        except RuntimeError:  # the store is gone: each rank says what it saw
            told = mine
        self.incident = self.incident or Incident(self._number, *json.loads(told))
        return self.incident

    def wait_for_incident(self, surely: bool = True) -> typing.Optional[Incident]:
        """For as long as it takes to see who failed, or where that is not sure, to see a process that is gone."""
        end = time.monotonic() + 2 * self._interval + (self._bound + self._interval if surely else 0)
        while self.incident is None and time.monotonic() < end and self._thread.is_alive():
            time.sleep(self._interval / 4)
        return self.incident

    def behind(self, call: int) -> list[int]:
        """The ranks that have not begun that call."""
        beats = [json.loads(self._store.get(f"beat/{index}")) for index in range(len(self._ranks))]
        return [rank for rank, beat in zip(self._ranks, beats) if beat["call"] < call]

    def stop(self) -> None:
        """At the program's end."""
        self._ended.set()
        self._thread.join(2 * self._interval + 1)

    def _beat(self, ended: bool = False) -> None:
        self._beats += 1
        beat = {**self._process, "beat": self._beats, "call": self._call, "ended": ended}
        self._store.set(f"beat/{self._index}", json.dumps(beat))

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._round()
            except RuntimeError as error:  # of the store
                if not self._in_call:
                    return  # the program's end, or the next call says so
                if not self._store_is_lost:
                    self._store_is_lost = True
                    self.post(self._ranks[self._index], f"reaches the store no more where ranks meet: {error}")
            self._end_call()
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
        if self.incident is None and self._in_call:
            self._look_at_next()
        meeting = self._meeting
        if self.incident is not None and meeting is not None:
            self._store.compare_set(meeting, "", INTERRUPTED)

    def _look_at_next(self) -> None:
        index = (self._index + 1) % len(self._ranks)
        text = self._store.get(f"beat/{index}").decode() if self._store.check([f"beat/{index}"]) else ""
        last, silent = self._seen
        # Its silence is counted in this thread's own rounds: a rank that was stopped accuses nobody when it goes on.
        self._seen = (text, 0.0 if text != last else silent + self._interval)
        beat = json.loads(text) if text else None
        rank = self._ranks[index]
        if beat is not None and beat["ended"]:
            if beat["call"] < self._call:
                self.post(rank, f"ended its program after {beat['call']} calls, and others are in call {self._call}")
        elif beat is not None and life.is_gone(beat):
            self.post(rank, f"died: its process {beat['pid']} is gone")
        elif self._seen[1] > self._bound:
            self.post(rank, f"does not answer for {self._seen[1]:.0f} s")

    def _end_call(self) -> None:
        if self.incident is None or not self._in_call:
            return
        now = time.monotonic()
        self._alarm = self._alarm or now
        if self._collective and not self._aborted and now > self._alarm + _GRACE:
            self._aborted = True
            threading.Thread(target=self._abort, name="spillway abort", daemon=True).start()
        if now > self._alarm + max(self._bound, 5 * _GRACE) and self._in_call:
            log.critical("incident %s: rank %d %s. This rank cannot leave its call, and its process ends",
                         *self.incident)
            os._exit(_EXIT_CODE)
