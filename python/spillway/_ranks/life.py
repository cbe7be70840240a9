"""Which process a rank is, as far as another one on the same machine can see."""
import os
import socket
import typing


def _started(pid: int) -> str:
    """When the process began, so that another one with its number is not taken for it; "" where that is not known."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]  # a dead process stays until its parent asks


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def this_process() -> dict[str, typing.Any]:
    return {"host": socket.gethostname(), "namespace": _namespace(), "pid": os.getpid(),
            "started": _started(os.getpid())}


def is_gone(process: dict[str, typing.Any]) -> bool:
    """Whether it ran on this machine and does not any more."""
    here = process["host"] == socket.gethostname() and process["namespace"] == _namespace() != ""
    return here and process["started"] != "" and _started(process["pid"]) != process["started"]
