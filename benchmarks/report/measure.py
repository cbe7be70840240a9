#!/usr/bin/env python3
"""Measures the page of `spillway report --html` in a headless Chromium: measure.py SPILLWAY [EVENTS].

Prints a table and the same as JSON: the time in which the page is made, its size, the time until it has drawn itself,
and the frames a second while a wheel zooms in and out, while the pointer moves over the blocks, and while the moment of
the map is moved. The browser draws without a GPU.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests/tools/page"))
from browser import Browser  # noqa: E402

COUNT_FRAMES = """
window.counted = [];
(() => {
  const frames = window.counted;
  const count = (now) => { frames.push(now); if (frames === window.counted) requestAnimationFrame(count); };
  requestAnimationFrame(count);
})();
"""


def frames_of(browser, act, times):
    """What the browser shows while `act` runs that often."""
    browser.value(COUNT_FRAMES)
    for turn in range(times):
        act(turn)
    frames = browser.value("window.counted")
    gaps = [after - before for before, after in zip(frames, frames[1:])]
    return {"frames_per_second": round(1000 * len(gaps) / sum(gaps), 1), "slowest_frame_ms": round(max(gaps), 1)}


def zoom(browser):
    """In for a while near the history's end, then out again: each event is another picture."""
    left, top, width, height = browser.box(".plot")
    browser.value("document.querySelector('.plot').focus()")
    return frames_of(browser, lambda turn: browser.mouse("mouseWheel", left + width * 0.8, top + height / 2, deltaX=0,
                                                         deltaY=-40 if turn // 60 % 2 == 0 else 40), 180)


def hover(browser):
    left, top, width, height = browser.box(".plot")
    return frames_of(browser, lambda turn: browser.mouse("mouseMoved", left + width * turn / 181, top + height * 0.6),
                     180)


def slide(browser):
    """The moment moves: the chart, the map and the legend are drawn for each."""
    browser.box("#map input")
    return frames_of(browser, lambda turn: browser.value(
        "(() => { const s = document.querySelector('#map input'); s.value = " + str(turn) + " / 180 * s.max;"
        "s.dispatchEvent(new Event('input')); return new Promise(requestAnimationFrame); })()"), 180)


def main(spillway, events):
    with tempfile.TemporaryDirectory() as folder:
        snapshot, page = f"{folder}/run.pickle", f"{folder}/run.html"
        subprocess.run([sys.executable, HERE / "make_snapshot.py", str(events), snapshot], check=True,
                       stdout=subprocess.DEVNULL)
        begun = time.monotonic()
        subprocess.run([spillway, "report", snapshot, "--capacity", "80GiB", "--html", page], check=True,
                       stdout=subprocess.DEVNULL)
        result = {"events": events, "made_s": time.monotonic() - begun, "page_bytes": pathlib.Path(page).stat().st_size}
        with Browser() as browser:
            result["ready_ms"] = browser.open(page)
            for name, act in (("zoom", zoom), ("hover", hover), ("slide", slide)):
                result |= {f"{name}_{key}": value for key, value in act(browser).items()}
            result["errors"] = browser.errors
    for name, value in result.items():
        print(f"{name:26}{value:>12.2f}" if isinstance(value, float) else f"{name:26}{value!s:>12}")
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
