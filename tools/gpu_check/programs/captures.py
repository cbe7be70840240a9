#!/usr/bin/env python3
"""captures.py: under `spillway run --mode replace --limit BYTES`, requests fail while a stream is captured in the
global mode, in which other threads' calls may end the capture. Prints as JSON what became of each request and graph.

The limit is full but for ROOM. While one thread captures, another asks for what fits only in new pages, and then for
more than the limit. Then a capture itself asks for that. After each, the program computes and captures as usual.
"""
import json
import threading

import torch
from spillway_memory import query

ROOM, GROWTH = 256 << 20, 64 << 20
SECONDS = 60  # that one thread waits for the other


def empty(count):
    return torch.empty(count, dtype=torch.uint8, device="cuda")


def outcome(request):
    """What a program sees: "done", or PyTorch's error."""
    try:
        request()
        return "done"
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


class Graph:
    """y = 2 x + 1, captured; `within` runs between the two operations."""

    def __init__(self, within):
        self.graph, self.x, self.y = torch.cuda.CUDAGraph(), torch.ones(1 << 16, device="cuda"), None
        self.captured = outcome(lambda: self.capture(within))

    def capture(self, within):
        with torch.cuda.graph(self.graph, capture_error_mode="global"):
            doubled = self.x * 2
            within()
            self.y = doubled + 1

    def judged(self):
        """Whether a replay reads what x holds then."""
        if self.captured != "done":
            return self.captured
        self.x.fill_(3)
        self.graph.replay()
        return "right" if bool((self.y == 7).all()) else "wrong values"


class Neighbour(threading.Thread):
    """Asks for memory while another thread captures."""

    def __init__(self, requests):
        super().__init__(daemon=True)
        self.requests, self.said, self.kept, self.go = requests, {}, [], threading.Event()

    def run(self):
        self.go.wait(SECONDS)
        for name, count in self.requests.items():
            self.said[name] = outcome(lambda size=count: self.kept.append(empty(size)))

    def let_run(self):
        self.go.set()
        self.join(SECONDS)
        if self.is_alive():
            raise SystemExit("a request during a capture does not end")


def beside_another_thread(limit):
    neighbour = Neighbour({"growth": GROWTH, "miss": limit // 2})
    neighbour.start()
    graph = Graph(neighbour.let_run)
    return {**neighbour.said, "graph": graph.judged()}


def within(limit):
    """The program catches the error, and ends the capture as usual."""
    said = []
    graph = Graph(lambda: said.append(outcome(lambda: empty(limit // 2))))
    return {"miss": said[0], "graph": graph.judged()}


def uncaught(limit):
    """The error leaves the capture, as in a program that does not expect it."""
    return {"capture": Graph(lambda: empty(limit // 2)).captured}


def goes_on():
    torch.cuda.synchronize()
    block = torch.full((1 << 20,), 3, device="cuda")
    return {"sum": block.sum().item() == 3 << 20, "graph": Graph(lambda: None).judged()}


def main():
    torch.ones(1, device="cuda")
    limit = query().limit - query().context
    held = empty(limit - ROOM)
    held.fill_(5)
    before, result = query().failures, {}
    for name, look in {"beside": beside_another_thread, "within": within, "uncaught": uncaught}.items():
        result[name] = {**look(limit), "then": goes_on()}
    result["failures"] = query().failures - before
    result["held"] = bool((held == 5).all())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
