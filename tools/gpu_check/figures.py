#!/usr/bin/env python3
"""What the simulator says, and next to it what the card said: figures that the project assumes, and every answer of the
probe that the simulated driver gives otherwise."""
import re

from .card import known_id
from .machine import BUILD, MIB, ROOT, Machine
from .part import Group, Outcome, Part
from .probing import PARTS, ask
from .simulated_machine import found_by

GROUP = Group("figures", ["", "| figure | simulated | this machine |", "|---|---|---|"])

# Parts whose answers are times, which take long where bytes are copied by a processor.
TIMES = ("page costs", "host making", "copies", "exchange", "queue")
# What takes time, and what differs between two machines by nature.
NOT_COMPARED = ("us", "GB/s", "s")
OF_THE_MACHINE = ("bus id", "numa_node", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
                  "largest region on the bus", "NUMA node", "locked memory", "open files", "processors",
                  "system memory", "memory limit of the group", "hypervisor", "free with the first context",
                  "kernels", "made at once", "pages until the driver refuses", "which took")
LATENCIES = {"cuMemCreate": "create", "cuMemMap": "map", "cuMemSetAccess": "allow", "cuMemUnmap": "unmap",
             "cuMemRelease": "release"}
ASSUMED = {"kCreateUs": "create", "kMapUs": "map", "kSetAccessUs": "allow", "kUnmapUs": "unmap",
           "kReleaseUs": "release"}


def published():
    """ns by function, of the profile of published figures, or of the file that the benchmarks use."""
    for path in (ROOT / "simulator/profiles/typical.toml", ROOT / "benchmarks/capacity/driver_latencies.toml"):
        if path.exists():
            return path.name, {name: int(value) for name, value in
                               re.findall(r"^(cu\w+) = (\d+)", path.read_text(), re.MULTILINE)}
    return "none", {}


def assumed():
    """Microseconds and bytes a microsecond that offers of strategies are compared by."""
    text = (ROOT / "allocator/costs.h").read_text()
    return {name: int(value.replace("'", "")) for name, value in re.findall(r"\b(k\w+) = ([\d']+)\b", text)}


def times(setting):
    found = found_by(setting, ("page costs", "copies", "host making", "free memory"))
    costs, copies = found["page costs"], found["copies"]
    name, latencies = published()
    constants = assumed()

    def measured(step):
        value = costs.value(step, bytes=2 * MIB, count=64, flags="plain", one_by_one=step in ("allow", "unmap"))
        return "not measured" if value is None else f"{value:.2f} us"

    rows = [f"| {step} of 2 MiB, {name} | {latencies[function] / 1000:.2f} us | {measured(step)} |"
            for function, step in LATENCIES.items() if function in latencies]
    rows += [f"| {step} of 2 MiB, as offers assume | {constants[key]} us | {measured(step)} |"
             for key, step in ASSUMED.items() if key in constants]
    out = copies.value("card to host", host="pages of 2 MiB", bytes=512 * MIB)
    rows.append(f"| link to the host, as offers assume | {constants.get('kHostBytesPerUs', 0) / 1000:.1f} GB/s | "
                f"{'not measured' if out is None else f'{out:.1f} GB/s'} |")
    made = found["host making"].value("cuMemCreate on the host", threads=1, chunk=32 * MIB)
    rows.append(f"| pinned memory made, as published | 3 GB/s | "
                f"{'not measured' if made is None else f'{made:.2f} GB/s'} |")
    return Outcome(rows)


def key_of(line):
    return tuple((key, str(value)) for key, value in sorted(line.items()) if key in (
        "part", "question", "location", "pages", "by", "when", "flags", "recommended", "after_access_was_given",
        "page"))


def comparable(lines):
    return {key_of(line): line for line in lines if line["question"] not in ("end", *OF_THE_MACHINE) and
            line["unit"] not in NOT_COMPARED and "least" not in line}


def behaviour(setting):
    """Every answer that is no time, asked of the simulated driver with this card's name."""
    facts = found_by(setting, ("facts",))["facts"]
    identity = known_id(BUILD / "bin/spillway", facts.value("card")) if facts.lines else None
    machine = Machine(*(("--gpu", identity) if identity else ("--capacity", "40GiB")), "--values", "compute")
    machine.deadline = setting.machine.deadline
    rows, same = [], 0
    for name, _, _ in PARTS:
        real = comparable((setting.data(f"probe: {name}") or {}).get("answers", []))
        if not real or name in TIMES:
            continue
        simulated = comparable(ask(machine, name)[0])
        for key, line in real.items():
            other = simulated.get(key)
            if other and other["value"] == line["value"]:
                same += 1
                continue
            where = ", ".join(f"{value}" for name, value in key if name not in ("part", "question"))
            rows.append(f"| {line['part']}: {line['question']}{f' ({where})' if where else ''} | "
                        f"{other['value'] if other else 'not asked'} | {line['value']} |")
    rows.append(f"| answers of the driver | {same} the same | {len(rows)} other |")
    return Outcome(rows, data={"same": same, "other": len(rows) - 1})


PARTS_OF_FIGURES = [Part(GROUP.name, "times", 1, times), Part(GROUP.name, "behaviour", 15, behaviour)]
