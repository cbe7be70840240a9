#!/usr/bin/env python3
"""What a folder gets from all calls so far: results.md for people, results.json for programs, raw/ as it came."""
import datetime
import json

from .session import FINISHED


def tables(parts, groups, state):
    """The report's lines, in the order of the parts, whichever call ran them."""
    lines, seen = [], {}
    for part in parts:
        entry = state.entry(part)
        if entry.get("state") in FINISHED:
            seen.setdefault(part.group, []).append(entry)
    for name, entries in seen.items():
        group = groups[name]
        lines += [*group.head, *(row for entry in entries for row in entry["rows"])]
        lines += group.foot([entry["data"] for entry in entries])
    return lines


def feet(parts, groups, state):
    """What stands below tables, for a report that was said as it came."""
    entries = [state.entry(part) for part in parts if part.group == "rehearsals" and state.finished(part)]
    return groups["rehearsals"].foot([entry["data"] for entry in entries]) if entries else []


def summary(parts, state):
    failed = [part.identity for part in parts if state.entry(part).get("state") == "FAIL"]
    remain = [part.identity for part in parts if not state.finished(part)]
    seconds = sum(state.entry(part).get("seconds", 0) for part in parts)
    done = len(parts) - len(remain)
    lines = ["", f"{done} of {len(parts)} parts are done, in {seconds:.0f} s; {len(failed)} failed"]
    lines += [f"- failed: {identity}" for identity in failed]
    lines += [f"- not done yet: {identity}" for identity in remain]
    return lines


def write(folder, title, parts, groups, state, left_out):
    lines = [f"# gpu-check: {title}", "", f"Written {datetime.date.today()}, commit {state.about.get('commit')}.",
             *tables(parts, groups, state), *summary(parts, state)]
    lines += [f"- left out: {text}" for text in left_out]
    (folder / "results.md").write_text("\n".join(lines) + "\n")
    entries = [{"part": part.identity, **state.entry(part)} for part in parts]
    (folder / "results.json").write_text(json.dumps({"about": state.about, "parts": entries,
                                                     "left_out": left_out}, indent=1) + "\n")
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    for part in parts:
        data = state.entry(part).get("data")
        if data is not None:
            name = part.identity.replace(": ", "-").replace(" ", "_").replace("/", "_").replace("'", "")
            (raw / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
