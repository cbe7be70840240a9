"""What a process shows of itself to the others on its card: programs wait for it here, however slow the machine is."""
import json
import os
import pathlib
import subprocess
import sys
import time

BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", pathlib.Path(__file__).resolve().parents[3] / "build"))
SPILLWAY = BUILD / "bin" / "spillway"
MOST_SECONDS = 60


def shows():
    """Whether this process is to be seen at all."""
    return os.environ.get("SPILLWAY_MODE") in ("rescue", "replace") and os.environ.get("SPILLWAY_LEDGER") != "off"


def shares(process):
    """What `spillway top` shows of a process, a card each."""
    top = subprocess.run([SPILLWAY, "top", "--once", "--json"], capture_output=True, text=True, check=True)
    return [share for device in json.loads(top.stdout)["devices"] for share in device["processes"]
            if share["pid"] == process]


def wait_until(condition, what, process=None):
    """Until what a process (this one) shows of a card fulfils the condition. Ends the program if it never does."""
    process = os.getpid() if process is None else process
    end = time.monotonic() + MOST_SECONDS
    while shows():
        seen = shares(process)
        if any(condition(share) for share in seen):
            return
        if time.monotonic() > end:
            sys.exit(f"after {MOST_SECONDS} s process {process} does not show {what}: {seen}")
        time.sleep(0.05)


def wait_until_cached(least_bytes):
    wait_until(lambda share: (share["cached_bytes"] or 0) >= least_bytes, f"{least_bytes} cached bytes")


def wait_until_held(least_bytes):
    wait_until(lambda share: (share["held_bytes"] or 0) >= least_bytes, f"{least_bytes} held bytes")
