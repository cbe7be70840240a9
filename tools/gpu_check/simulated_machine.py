#!/usr/bin/env python3
"""The machine that was looked at, as a configuration of the simulator: `spillway simulate --config machine.toml`.

Every key that the probe's answers decide is written, also where the simulator has that value by itself: its own may
change. The file's head names those that the probe did not answer.
"""
import re

from . import card as cards
from .machine import BUILD, MIB, Machine
from .part import Outcome, Part
from .probing import PROBE, Answers

GROUP_NAME = "machine"


class Entry:
    """`section` "" is the file's top. `value` None: the probe did not answer. `alone`: the value where the simulator
    does not know the entry of that name."""

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
    if identity:
        yield Entry("", "card", identity, "by its name")
    yield Entry("", "capability", f"{facts.value('capability major')}.{facts.value('capability minor')}", "the driver")
    yield Entry("", "multiprocessors", facts.value("multiprocessors"), "the driver")
    yield Entry("", "capacity", memory, "bytes, the driver")
    yield Entry("", "devices", facts.value("devices"), "the driver")
    yield Entry("", "context_bytes", max(memory - free, 0) if memory and free else None, "gone with the first context")
    peers = facts.all("peer access")
    yield Entry("", "peer_access", all(line["value"] == 1 for line in peers) if peers else None, "of every pair")


def version_of(number):
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def nodes_of(mapped):
    """Those of the NUMA nodes asked for on which pages were made and mapped; `id` is -1 where none was named."""
    taken = {line["id"] for line in mapped if "node" in line["location"] and line["location"] != "the thread's node" and
             line["value"] == "CUDA_SUCCESS"}
    return sorted(node for node in taken if node >= 0) if mapped else None


def host_entries(found):
    """Where pages of the host can be made, and whether the CPU may touch them: at the first place where they can."""
    places = found["host locations"]
    mapped = places.all("mapped for the device")
    host = places.value("mapped for the device", location="host")
    touched = places.all("the processor touches it", after_access_was_given=True)
    yield Entry("driver", "host_numa_id", found["facts"].value("host NUMA id"), "the attribute")
    yield Entry("driver", "host_nodes", nodes_of(mapped), "of the device's node, 0 and 1")
    yield Entry("driver", "host_location", None if host is None else host == "CUDA_SUCCESS", "a trial")
    yield Entry("driver", "host_access", touched[0]["value"] == "yes" if touched else None, "a trial")


def driver_entries(found):
    facts, beside, destroyed = found["facts"], found["beside a kernel"], found["destroyed handles"]
    yield Entry("driver", "version", version_of(facts.value("CUDA version of the driver")), "the driver")
    yield from host_entries(found)
    peers = facts.all("peer access")
    yield Entry("driver", "native_atomics", all(line.get("native_atomics") == 1 for line in peers) if peers else None,
                "P2P attribute of every pair")
    legacy = found["sharing"].value("legacy handle of cuMemAlloc's memory")
    yield Entry("driver", "legacy_ipc",
                None if legacy is None else "allocations" if legacy == "CUDA_SUCCESS" else "none", "cuIpcGetMemHandle")
    ends = [str(line["value"]) for line in destroyed.lines if "destroyed" in line["question"]]
    yield Entry("driver", "crashes_on_destroyed",
                any(end.startswith("the process ended by signal") for end in ends) if ends else None, "trials")
    waits = [line["waited_for_the_kernel"] for line in beside.lines if line["question"] in ("allow", "unmap")]
    yield Entry("driver", "mapping_waits", any(waits) if waits else None, "access or unmapping beside a kernel")


def bandwidth_entries(found):
    copies, making = found["copies"], found["host making"]
    most = 512 * MIB
    for key, question in (("d2h", "card to host"), ("h2d", "host to card")):
        mapped = copies.value(question, host="pages of 2 MiB", bytes=most)
        yield Entry("bandwidth", key, mapped or copies.value(question, host="pinned", bytes=most), "GB/s, 512 MiB")
    yield Entry("bandwidth", "d2d", copies.value("on the card"), "GB/s, 512 MiB")
    others = [line["value"] for line in copies.all("to another card") if line["unit"] == "GB/s"]
    yield Entry("bandwidth", "peer", min(filter(None, others), default=None), "GB/s, 512 MiB, over the slowest link")
    speeds = making.all("cuMemCreate on the host", threads=1, chunk=32 * MIB)
    yield Entry("bandwidth", "pin", speeds[0]["value"] if speeds else None, "GB/s, one thread, chunks of 32 MiB")


LATENCIES = {"cuMemCreate": "create", "cuMemMap": "map", "cuMemRelease": "release"}


def latency_entries(found):
    costs, free, sharing = found["page costs"], found["free memory"], found["sharing"]
    many = dict(bytes=2 * MIB, count=64, flags="plain")
    for function, step in LATENCIES.items():
        small = costs.value(step, one_by_one=False, **many)
        large = costs.value(step, one_by_one=False, bytes=128 * MIB, count=8, flags="plain")
        per_mib = None if small is None or large is None else max(large - small, 0) / 126
        flat = small if per_mib is None else max(small - 2 * per_mib, 0)
        yield Entry("latency_ns", function, nanoseconds(flat), "a handle of 2 MiB without its bytes",
                    alone={f"latency_per_gib_ns.{function}": nanoseconds(small)})
        yield Entry("latency_per_gib_ns", function, None if per_mib is None else round(per_mib * 1024 * 1000),
                    "handles of 128 MiB and of 2")
    for function, step in (("cuMemSetAccess", "allow"), ("cuMemUnmap", "unmap")):
        one = costs.line(step, bytes=2 * MIB, count=1, flags="plain").get("total")
        whole = costs.line(step, one_by_one=False, **many).get("total")
        answered = one is not None and whole is not None
        per_page = max(whole - one, 0) / 63 if answered else None
        yield Entry("latency_ns", function, nanoseconds(max(one - per_page, 0)) if answered else None,
                    "a range of one page", alone={f"latency_per_mapping_ns.{function}": nanoseconds(one)})
        yield Entry("latency_per_mapping_ns", function, nanoseconds(per_page), "ranges of 64 pages and of 1")
    yield Entry("latency_ns", "cuMemGetInfo_v2", nanoseconds(free.value("cuMemGetInfo", when="nothing is mapped")),
                "the median")
    for function, step in (("cuMemAlloc_v2", "cuMemAlloc"), ("cuMemFree_v2", "cuMemFree"),
                           ("cuMemAddressReserve", "reserve"), ("cuMemAddressFree", "free addresses"),
                           ("cuMemHostAlloc", "cuMemHostAlloc of 4 KiB"), ("cuMemFreeHost", "cuMemFreeHost of 4 KiB")):
        yield Entry("latency_ns", function, nanoseconds(costs.value(step)), "the median")
    for function, step in (("cuMemExportToShareableHandle", "export"), ("cuMemImportFromShareableHandle", "import")):
        yield Entry("latency_ns", function, nanoseconds(sharing.value(step, pages="card")), "the median")


def entries(found, identity):
    """Those that the probe answered, and the names of the others."""
    made = [*card_entries(found, identity), *driver_entries(found), *bandwidth_entries(found), *latency_entries(found)]
    return [entry for entry in made if entry.value is not None], [entry.name for entry in made if entry.value is None]


def text_of(kept, unanswered, left_out):
    lines = ["# The machine that gpu-check looked at. Latencies are medians by the host's clock."]
    if unanswered:
        lines.append(f"# Left out, because the probe did not answer: {', '.join(unanswered)}")
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


def refused_name(said):
    """Of the entry that the simulator does not take, or None. It has libraries of a few drivers' versions."""
    named = re.search(r"'([\w.]+)'", said)
    return "driver.version" if "is of a driver of CUDA" in said else named and named.group(1)


def write(path, kept, unanswered):
    """Writes what the simulator takes. Returns the names that it does not know."""
    left_out = []
    while True:
        path.write_text(text_of(kept, unanswered, left_out))
        said = refused_by(path)
        if said is None:
            return left_out
        name = refused_name(said)
        gone = [entry for entry in kept if name in (entry.name, entry.section)]
        if not gone:
            raise ValueError(f"the simulator refuses machine.toml: {said[-300:]}")
        left_out += [entry.name for entry in gone]
        kept = [entry for entry in kept if entry not in gone]
        for entry in kept:
            entry.value = next((entry.alone[name] for name in left_out if name in entry.alone), entry.value)


def found_by(setting, names):
    return {name: Answers((setting.data(f"probe: {name}") or {}).get("answers", [])) for name in names}


PROBED = ("facts", "host locations", "page costs", "beside a kernel", "host making", "copies", "sharing", "free memory",
          "destroyed handles")


def look(setting):
    found = found_by(setting, PROBED)
    if not found["facts"].lines:
        raise ValueError("the probe has found no facts")
    identity = cards.known_id(BUILD / "bin/spillway", found["facts"].value("card"))
    path = setting.options.folder / "machine.toml"
    kept, unanswered = entries(found, identity)
    left_out = write(path, kept, unanswered)
    said = f"{path.name}: simulate --config takes it" + (f"; without {', '.join(left_out)}" if left_out else "")
    return Outcome([f"| {path.name} | pass | {said} |"],
                   data={"unanswered": unanswered, "left_out": left_out, "text": path.read_text()})


PART = Part(GROUP_NAME, "machine.toml", 5, look)
