"""Ranks as children of one process that has imported PyTorch: they meet over Gloo at a store that the parent keeps, or
one of them."""
import atexit
import os
import pickle
import select
import signal
import socket
import sys
import time
import traceback

import torch
import torch.distributed as dist

DEADLINE = 60.0


class Ended:
    """What a rank came to: its value, the exception that it raised, or the signal or code that ended it."""

    def __init__(self, value=None, error=None, code=0):
        self.value, self.error, self.code = value, error, code


def _store(listening, serves):
    port = listening.getsockname()[1]
    if serves:
        return dist.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False,
                             master_listen_fd=listening.detach())
    listening.close()
    return dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)


def _child(rank, size, listening, server, function, pipe):
    try:
        torch.set_num_threads(1)
        store = _store(listening, rank == server)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        outcome = Ended(value=function(rank, size))
    except BaseException as error:
        error.lines = traceback.format_exc()
        outcome = Ended(error=error)
    try:
        written = pickle.dumps(outcome)
    except Exception as error:
        written = pickle.dumps(Ended(error=RuntimeError(f"{outcome.error!r}: {error}")))
    os.write(pipe, written)
    atexit._run_exitfuncs()  # a process of its own would
    os._exit(0)


def run(size, function, deadline=DEADLINE, server=None, stopped=None):
    """Each rank calls `function(rank, size)`; what became of each. A rank that is late is killed, and an error.

    server   the rank that keeps the store
    stopped  a rank that stops itself: it goes on when the others have ended
    """
    pids, pipes = [], []
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    for rank in range(size):
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(rank, size, listening, server, function, writing)
        os.close(writing)
        pids.append(pid)
        pipes.append(reading)
    # Only now: its server is a thread, which may hold a lock while a child is made.
    store = _store(listening, True) if server is None else listening.close()
    outcomes = [None] * size
    try:
        for rank in sorted(range(size), key=lambda one: one == stopped):
            if rank == stopped:
                os.kill(pids[rank], signal.SIGCONT)
            outcomes[rank] = _outcome(pids[rank], pipes[rank], time.monotonic() + deadline)
        return outcomes
    finally:
        del store
        for pid, pipe in zip(pids, pipes):
            os.close(pipe)
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def _outcome(pid, pipe, end):
    data = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise AssertionError(f"a rank hangs: process {pid}")
        part = os.read(pipe, 1 << 20)
        if not part:
            break
        data += part
    _, status = os.waitpid(pid, 0)
    outcome = pickle.loads(data) if data else Ended()
    if not data:
        outcome.code = os.waitstatus_to_exitcode(status)
    return outcome
