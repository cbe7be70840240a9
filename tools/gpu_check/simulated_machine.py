#!/usr/bin/env python3
"""The machine that was looked at, as a configuration of the simulator: `spillway simulate --config machine.toml`."""
import re

from . import card as cards
from .machine import BUILD, MIB, Machine
from .part import Outcome, Part
from .probing import PROBE, Answers

GROUP_NAME = "machine"


class Entry:
    """`section` "" is the file's top. `alone`: the value where the simulator does not know the entry of that name."""

    def __init__(self, section, key, value, source, alone=None):
        self.section, self.key, self.value, self.source, self.alone = section, key, value, source, alone or {}

    @property
    def name(self):
        return f"{self.section}.{self.key}" if self.section else self.key

    def line(self):
        value = str(self.value).lower() if isinstance(self.value, bool) else (
            f'"{self.value}"' if isinstance(self.value, str) else f"{self.value:.6g}" if isinstance(self.value, float)
            else str(self.value))
        return f"{self.key} = {value}  # {self.source}"


def nanoseconds(microseconds):
    return None if microseconds is None else max(1, round(microseconds * 1000))


def card_entries(found, identity):
    facts = found["facts"]
    memory, free = facts.value("memory"), facts.value("free with the first context")
    yield Entry("", "card", identity, "by its name")
    yield Entry("", "capability", f"{facts.value('capability major')}.{facts.value('capability minor')}", "the driver")
    yield Entry("", "multiprocessors", facts.value("multiprocessors"), "the driver")
    yield Entry("", "capacity", memory, "bytes, the driver")
    yield Entry("", "context_bytes", max(memory - free, 0) if memory and free else None, "gone with the first context")


def driver_entries(found):
    facts, beside = found["facts"], found["beside a kernel"]
    yield Entry("driver", "host_numa_id", -1 if facts.value("host NUMA id") in (-1, None) else 0, "the attribute")
    peers = facts.all("peer access")
    if peers:
        yield Entry("driver", "native_atomics", all(line.get("native_atomics") == 1 for line in peers), "P2P attribute")
    waits = [line["waited_for_the_kernel"] for line in beside.lines if line["question"] in ("allow", "unmap")]
    yield Entry("driver", "mapping_waits", any(waits) if waits else None, "access or unmapping beside a kernel")


def bandwidth_entries(found):
    copies, making = found["copies"], found["host making"]
    most = 512 * MIB
    for key, question in (("d2h", "card to host"), ("h2d", "host to card")):
        mapped = copies.value(question, host="pages of 2 MiB", bytes=most)
        yield Entry("bandwidth", key, mapped or copies.value(question, host="pinned", bytes=most), "GB/s, 512 MiB")
    yield Entry("bandwidth", "d2d", copies.value("on the card"), "GB/s, 512 MiB")
    speeds = making.all("cuMemCreate on the host", threads=1, chunk=32 * MIB)
    yield Entry("bandwidth", "pin", speeds[0]["value"] if speeds else None, "GB/s, one thread, chunks of 32 MiB")


LATENCIES = {"cuMemCreate": "create", "cuMemMap": "map", "cuMemRelease": "release"}


def latency_entries(found):
    costs, free = found["page costs"], found["free memory"]
    many = dict(bytes=2 * MIB, count=64, flags="plain")
    for function, step in LATENCIES.items():
        yield Entry("latency_ns", function, nanoseconds(costs.value(step, one_by_one=False, **many)), "64 of 2 MiB")
    for function, step in (("cuMemSetAccess", "allow"), ("cuMemUnmap", "unmap")):
        one = costs.line(step, bytes=2 * MIB, count=1, flags="plain").get("total")
        whole = costs.line(step, one_by_one=False, **many).get("total")
        if one is None or whole is None:
            continue
        per_page = max(whole - one, 0) / 63
        yield Entry("latency_ns", function, nanoseconds(max(one - per_page, 0)), "a range of one page",
                    alone={f"latency_per_mapping_ns.{function}": nanoseconds(one)})
        yield Entry("latency_per_mapping_ns", function, nanoseconds(per_page), "ranges of 64 pages and of 1")
    yield Entry("latency_ns", "cuMemGetInfo_v2", nanoseconds(free.value("cuMemGetInfo", when="nothing is mapped")),
                "the median")
    for function, step in (("cuMemAlloc_v2", "cuMemAlloc"), ("cuMemFree_v2", "cuMemFree"),
                           ("cuMemAddressReserve", "reserve"), ("cuMemHostAlloc", "cuMemHostAlloc of 4 KiB")):
        yield Entry("latency_ns", function, nanoseconds(costs.value(step)), "the median")


def entries(found, identity):
    made = [*card_entries(found, identity), *driver_entries(found), *bandwidth_entries(found), *latency_entries(found)]
    return [entry for entry in made if entry.value is not None]


def text_of(kept, left_out):
    lines = ["# The machine that gpu-check looked at. Latencies are medians by the host's clock."]
    if left_out:
        lines.append(f"# Left out, because this simulator does not know them: {', '.join(left_out)}")
    sections = dict.fromkeys(entry.section for entry in kept)
    for section in sections:
        lines += ["", f"[{section}]"] if section else []
        lines += [entry.line() for entry in kept if entry.section == section]
    return "\n".join(lines) + "\n"


def refused_by(path):
    """None if the simulator takes the file, else what it says."""
    machine = Machine("--config", path)
    done = machine.start([PROBE, "--child", "facts"], {})
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()


def write(path, made):
    """Writes what the simulator takes. Returns the names that it does not know."""
    kept, left_out = list(made), []
    while True:
        path.write_text(text_of(kept, left_out))
        said = refused_by(path)
        if said is None:
            return left_out
        named = re.search(r"'([\w.]+)'", said)
        gone = [entry for entry in kept if named and (entry.name == named.group(1) or entry.section == named.group(1))]
        if not gone:
            raise ValueError(f"the simulator refuses machine.toml: {said[-300:]}")
        left_out += [entry.name for entry in gone]
        kept = [entry for entry in kept if entry not in gone]
        for entry in kept:
            entry.value = next((entry.alone[name] for name in left_out if name in entry.alone), entry.value)


def found_by(setting, names):
    return {name: Answers((setting.data(f"probe: {name}") or {}).get("answers", [])) for name in names}


PROBED = ("facts", "page costs", "beside a kernel", "host making", "copies", "free memory")


def look(setting):
    found = found_by(setting, PROBED)
    if not found["facts"].lines:
        raise ValueError("the probe has found no facts")
    identity = cards.known_id(BUILD / "bin/spillway", found["facts"].value("card"))
    path = setting.options.folder / "machine.toml"
    left_out = write(path, entries(found, identity))
    said = f"{path.name}: simulate --config takes it" + (f"; without {', '.join(left_out)}" if left_out else "")
    return Outcome([f"| {path.name} | pass | {said} |"], data={"left_out": left_out, "text": path.read_text()})


PART = Part(GROUP_NAME, "machine.toml", 5, look)
