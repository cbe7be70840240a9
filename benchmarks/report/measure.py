#!/usr/bin/env python3
"""Measures the page of `spillway report --html` in a headless Chromium: measure.py SPILLWAY [EVENTS].

Prints a table and the same as JSON: the time in which the page is made, its size, the time until it has drawn itself, and the
frames a second while a wheel zooms in and out over three seconds. The browser draws without a GPU.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests/tools/page"))
from browser import Browser  # noqa: E402

COUNT_FRAMES = """
window.frames_ = [];
const count = (now) => { window.frames_.push(now); requestAnimationFrame(count); };
requestAnimationFrame(count);
"""


def zoom(browser, seconds):
    left, top, width, height = browser.box(".plot")
    browser.value(COUNT_FRAMES)
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        # In for a while at the end of the history, then out again; each event is another picture.
        browser.mouse("mouseWheel", left + width * 0.8, top + height / 2, deltaX=0, deltaY=-40 if turn // 60 % 2 == 0 else 40)
        turn += 1
    frames = browser.value("window.frames_")
    gaps = sorted(b - a for a, b in zip(frames, frames[1:]))
    return {"frames_per_second": 1000 * len(gaps) / sum(gaps), "slowest_frame_ms": gaps[-1],
            "frames_within_33_ms": sum(gap <= 34 for gap in gaps) / len(gaps)}


def main(spillway, events):
    with tempfile.TemporaryDirectory() as folder:
        snapshot, page = f"{folder}/run.pickle", f"{folder}/run.html"
        subprocess.run([sys.executable, HERE / "make_snapshot.py", str(events), snapshot], check=True, stdout=subprocess.DEVNULL)
        begun = time.monotonic()
        subprocess.run([spillway, "report", snapshot, "--capacity", "80GiB", "--html", page], check=True,
                       stdout=subprocess.DEVNULL)
        result = {"events": events, "made_s": time.monotonic() - begun, "page_bytes": pathlib.Path(page).stat().st_size}
        with Browser() as browser:
            result["ready_ms"] = browser.open(page)
            result |= zoom(browser, 3)
            result["errors"] = browser.errors
    for name, value in result.items():
        print(f"{name:22}{value:>14.3f}" if isinstance(value, float) else f"{name:22}{value!s:>14}")
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
