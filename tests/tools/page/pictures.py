#!/usr/bin/env python3
"""Draws the pictures of pages that docs/images has: pictures.py SPILLWAY SNAPSHOT TRACE RANKS OUT.

SNAPSHOT is a memory snapshot of PyTorch's, TRACE a trace of Spillway's, RANKS the folder of a training of several
ranks; docs/snapshots.md says how those of the pictures were made. Ends with 1 where a page complains on its console.
"""
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from browser import Browser  # noqa: E402

WIDE, PHONE, PAPER = (1100, 800), (390, 844), (700, 990)


class Pictures:
    def __init__(self, spillway, folder, out):
        self.spillway, self.folder, self.out = spillway, pathlib.Path(folder), pathlib.Path(out)
        self.wrong = []

    def page(self, name, *words):
        path = self.folder / f"{name}.html"
        subprocess.run([self.spillway, "report", *words, "--html", path], check=True, stdout=subprocess.DEVNULL)
        return path

    def take(self, page, name, size=WIDE, dark=False, scale=1, view=None, media=""):
        with Browser(*size, scale) as browser:
            browser.resize(*size, scale, size == PHONE)
            browser.call("Emulation.setEmulatedMedia", media=media, features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
            browser.open(page)
            if media == "print":  # as its event makes the charts do
                browser.value("dispatchEvent(new Event('beforeprint'))")
                browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            if view:  # in a window that shows all of it nothing is scrolled, and no bar lies over it
                browser.resize(size[0], browser.value("document.documentElement.scrollHeight") + 400, scale)
            browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            browser.picture(self.out / name, view, whole=view is None)
            self.wrong += [f"{name}: {error}" for error in browser.errors]


def main(spillway, snapshot, trace, ranks, out):
    with tempfile.TemporaryDirectory() as folder:
        pictures = Pictures(spillway, folder, out)
        page = pictures.page("run", snapshot, "--capacity", "12GiB")
        pictures.take(page, "report-whole-light.webp", scale=0.6)
        pictures.take(page, "report-whole-dark.webp", dark=True, scale=0.6)
        pictures.take(page, "report-phone.webp", size=PHONE)
        pictures.take(page, "report-print.webp", size=PAPER, scale=0.8, media="print")
        pictures.take(page, "report-holders.png", view="#holders")
        pictures.take(page, "report-fitted.png", view="#fitted")
        page = pictures.page("trace", trace)
        pictures.take(page, "report-ladder.png", view="#ladder")
        pictures.take(pictures.page("ranks", ranks), "report-ranks.png", dark=True)
        for line in pictures.wrong:
            print(line, file=sys.stderr)
        return 1 if pictures.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
