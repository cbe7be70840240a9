#!/usr/bin/env python3
"""Puts the page of `spillway report --html` together: assemble.py WEB OUT.

The scripts of WEB and those of d3 become one script element, in the order below. The page's policy names the hashes of
that element and of the style: nothing else can run in it.
"""
import base64
import hashlib
import pathlib
import re
import sys

D3 = ["dispatch", "selection", "drag", "color", "interpolate", "timer", "ease", "transition", "zoom", "hierarchy",
      "array"]
SCRIPTS = ["data", "units", "dom", "colours", "views/summary", "views/fitted", "bands", "axis", "pick", "overlay",
           "gestures", "views/timeline", "views/timeview", "views/maplayout", "views/map", "views/flame",
           "views/holders", "views/ranks", "views/lines", "views/ladder", "views/events", "views/notes", "main"]


def library(name):
    return pathlib.Path(f"/usr/share/nodejs/d3-{name}/dist/d3-{name}.min.js").read_text()


def licence():
    """The conditions, and who holds the rights in the libraries that they cover."""
    text = pathlib.Path("/usr/share/doc/node-d3-zoom/copyright").read_text()
    conditions = text[text.index("License: BSD-3-clause\n"):].split("\n", 1)[1]
    lines = [re.sub(r"^ \.?", "", line) for line in conditions.splitlines()]
    names = ", ".join(f"d3-{name}" for name in D3)
    return f"{names}\nCopyright 2010-2020 Mike Bostock\n\n" + "\n".join(lines).strip() + "\n"


def hash_of(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main(web, out):
    ours = "".join((web / f"{name}.js").read_text() for name in SCRIPTS)
    script = "".join(map(library, D3)) + f"(() => {{\n'use strict';\n{ours}}})();\n"
    assert "</script" not in script, "a script would end its element"
    style = (web / "style.css").read_text()
    parts = {"SCRIPT": script, "STYLE": style, "SCRIPT_HASH": hash_of(script), "STYLE_HASH": hash_of(style),
             "LICENCE": licence().replace("&", "&amp;").replace("<", "&lt;")}
    page = re.sub(r"@([A-Z_]+)@", lambda found: parts.get(found.group(1), found.group(0)),
                  (web / "index.html").read_text())
    out.write_text(page)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
