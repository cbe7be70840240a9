#!/usr/bin/env python3
"""What the preloaded library adds to a call of the driver."""
import json

from .machine import BUILD, require
from .part import Group, Outcome, Part

GROUP = Group("hooks", ["", "| call under spillway run | result | ns added |", "|---|---|---|"])
MOST = {"cuLaunchKernel": 15, "cuDriverGetVersion": 50}


def look(setting):
    printed = setting.machine.run([BUILD / "bin/spillway", "run", "--quiet", "--", BUILD / "bin/bench_calls"])
    found = json.loads(printed)
    require(set(found) == set(MOST), f"it measured {', '.join(found)}")
    over = {name for name, ns in found.items() if ns > MOST[name] and not setting.machine.simulated}
    return Outcome([f"| {name} | {'FAIL' if name in over else 'pass'} | {ns:.1f}, bar {MOST[name]} |"
                    for name, ns in found.items()], failed=bool(over), data=found)


PART = Part(GROUP.name, "ns", 10, look)
