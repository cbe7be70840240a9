"""Which process a rank is, as far as another one on the same machine can see."""
import os
import typing


def _started(pid: int) -> typing.Optional[str]:
    """When the process began, so that another one with its number is not taken for it; "" where there is none, None
    where that is not known."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError:  # such as of a process with no more files to open
        return None
    return "" if fields[0] in "ZX" else fields[19]  # a dead process stays until its parent asks


def _machine() -> str:
    """Another one on each machine, and after each start of one; "" where that is not known. The namespaces of the first
    processes have the same number everywhere, and machines may have the same name."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def this_process() -> dict[str, typing.Any]:
    return {"machine": _machine(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_gone(process: dict[str, typing.Any]) -> bool:
    """Whether it ran on this machine and does not any more."""
    if not process["machine"] or not process["started"] or process["machine"] != _machine():
        return False
    now = _started(process["pid"])
    return now is not None and now != process["started"]
