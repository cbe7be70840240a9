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

UTF8 = "utf-8"  # whatever the builder's locale: the hashes below are of the page's bytes

D3 = ["dispatch", "selection", "drag", "color", "interpolate", "timer", "ease", "transition", "zoom", "hierarchy",
      "array"]
SCRIPTS = ["data", "units", "dom", "colours", "views/summary", "views/fitted", "bands", "axis", "pick", "overlay",
           "gestures", "views/timeline", "views/timeview", "views/maplayout", "views/map", "views/flame",
           "views/holders", "views/ranks", "views/lines", "views/ladder", "views/events", "views/notes", "main"]


def library(name):
    return pathlib.Path(f"/usr/share/nodejs/d3-{name}/dist/d3-{name}.min.js").read_text(UTF8)


def conditions(package, licence):
    """What `licence` says, by Debian's file of the package's rights: an indented paragraph below its name."""
    text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(UTF8)
    found = re.search(rf"^License: {licence}\n((?: .*\n?)+)", text, re.IGNORECASE | re.MULTILINE)
    if found is None:
        raise SystemExit(f"assemble.py: {package}'s copyright file has no conditions of {licence}")
    return "\n".join(re.sub(r"^ \.?", "", line) for line in found.group(1).splitlines()).strip()


def licences():
    """The conditions, and who holds the rights in the libraries that they cover."""
    bsd = ", ".join(f"d3-{name}" for name in D3 if name != "array")
    return (f"{bsd}\nCopyright 2010-2022 Mike Bostock\n\n{conditions('node-d3-zoom', 'BSD-3-clause')}\n\n"
            f"d3-array, and internmap in it\nCopyright 2010-2022 Mike Bostock\n\n"
            f"{conditions('node-d3-array', 'ISC')}\n")


def hash_of(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main(web, out):
    ours = "".join((web / f"{name}.js").read_text(UTF8) for name in SCRIPTS)
    script = "".join(map(library, D3)) + f"(() => {{\n'use strict';\n{ours}}})();\n"
    assert "</script" not in script, "a script would end its element"
    style = (web / "style.css").read_text(UTF8)
    parts = {"SCRIPT": script, "STYLE": style, "SCRIPT_HASH": hash_of(script), "STYLE_HASH": hash_of(style),
             "LICENCE": licences().replace("&", "&amp;").replace("<", "&lt;")}
    page = re.sub(r"@([A-Z_]+)@", lambda found: parts.get(found.group(1), found.group(0)),
                  (web / "index.html").read_text(UTF8))
    out.write_text(page, UTF8)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
