#!/usr/bin/env python3
"""The probe's parts (tools/gpu_probe) as parts of gpu-check: every answer is kept, and one line tells what decides."""
import json

from .machine import BUILD, MIB
from .part import Group, Outcome, Part

PROBE = BUILD / "bin/gpu_probe"
GROUP = Group("probe", ["", "| asked of the driver | result | found |", "|---|---|---|"])


class Answers:
    """The probe's lines, to look things up in."""

    def __init__(self, lines):
        self.lines = [line for line in lines if line["question"] != "end"]

    def all(self, question, **conditions):
        return [line for line in self.lines if line["question"] == question and
                all(line.get(key) == value for key, value in conditions.items())]

    def line(self, question, **conditions):
        return next(iter(self.all(question, **conditions)), {})

    def value(self, question, **conditions):
        return self.line(question, **conditions).get("value")


def text_of(value, form="{:.3g}"):
    return "?" if value is None else form.format(value) if isinstance(value, (int, float)) else str(value)


def facts(it):
    return (f"{it.value('card')}, CUDA {it.value('CUDA version of the driver')}, "
            f"{(it.value('memory') or 0) / MIB:.0f} MiB, host NUMA id {it.value('host NUMA id')}, "
            f"{it.value('devices')} devices, bus region {(it.value('largest region on the bus') or 0) / MIB:.0f} MiB, "
            f"{(it.value('memory') or 0) // MIB - (it.value('free with the first context') or 0) // MIB} MiB gone with "
            f"a context")


def host_locations(it):
    mapped = ", ".join(f"{line['location']}: {line['value']}" for line in it.all("mapped for the device"))
    touched = ", ".join(f"{line['location']}: {line['value']}"
                        for line in it.all("the processor touches it", after_access_was_given=True))
    return f"{mapped}; by the processor once it may: {touched or 'not tried'}"


STEPS = ("create", "map", "allow", "unmap", "release")


def page_costs(it):
    def steps(size, count):
        whole = dict(bytes=size * MIB, count=count, flags="plain", one_by_one=False)
        return "/".join(text_of(it.line(step, **whole).get("total")) for step in STEPS)
    sizes = "; ".join(f"{count} of {size} MiB {steps(size, count)}"
                      for size, count in ((2, 1), (2, 64), (32, 8), (128, 8)))
    return f"{'/'.join(STEPS)} in us: {sizes}"


def beside_a_kernel(it):
    if it.line("kernels"):
        return it.value("kernels")
    waited = [line["question"] for line in it.lines if line.get("waited_for_the_kernel")]
    return f"wait for an unrelated kernel: {', '.join(waited) or 'none'}"


def host_making(it):
    speeds = ", ".join(f"{line['threads']} threads {text_of(line['value'])}"
                       for line in it.all("cuMemCreate on the host", chunk=32 * MIB))
    return f"GB/s of cuMemCreate in chunks of 32 MiB: {speeds or 'none'}"


def copies(it):
    most = 512 * MIB
    return "; ".join(f"{kind}: out {text_of(it.value('card to host', host=kind, bytes=most))}, back "
                     f"{text_of(it.value('host to card', host=kind, bytes=most))} GB/s"
                     for kind in ("pinned", "pages of 2 MiB", "pages of 32 MiB"))


def exchange(it):
    if it.line("host pages"):
        return it.value("host pages")
    return "; ".join(f"{size} MiB in {page} MiB: " + ", ".join(
        f"{way} {text_of(it.value(way, bytes=size * MIB, page=page * MIB, round=again))}"
        for again in (1, 2) for way in ("to the host", "back to the card")) for size in (64, 512) for page in (2, 32)
    ) + " GB/s"


def judged(it):
    wrong = [f"{line['question']} ({line['pages']}): {line['value']}" for line in it.lines
             if line["value"] in ("wrong values", "refused", "updates were lost")]
    none = it.value("host pages") or it.value("kernels")
    return none or ("; ".join(wrong) if wrong else "all values right")


def kernels_on_host_pages(it):
    if it.line("kernels"):
        return it.value("kernels")
    speeds = "; ".join(f"{line['pages']}: read {text_of(line['value'])} GB/s" for line in it.all("read"))
    return f"{judged(it)}; {speeds}"


def answers_of(*questions):
    def tell(it):
        return "; ".join(f"{line['question']}: {text_of(line['value'])}" for question in questions
                         for line in it.all(question))
    return tell


def sharing(it):
    export = it.line("export", pages="card")
    legacy = answers_of("legacy handle of mapped memory", "legacy handle of a pool's memory")(it)
    return f"export {text_of(export.get('value'))} us, {it.value('descriptors', pages='card')} descriptors; {legacy}"


def free_memory(it):
    return "; ".join(f"{line['when']}: {text_of(line['value'])} us, at most {text_of(line['most'])}"
                     for line in it.all("cuMemGetInfo"))


def capture(it):
    refused = sorted({line["question"] for line in it.lines if line["value"] != "CUDA_SUCCESS"})
    broken = sorted({line["question"] for line in it.lines if line.get("capture") not in (None, "CUDA_SUCCESS")})
    return f"refused: {', '.join(refused) or 'none'}; end the capture: {', '.join(broken) or 'none'}"


def destroyed(it):
    return "; ".join(f"{line['question']}: {line['value']}" for line in it.lines)


def full_card(it):
    when = "2 MiB are refused"
    failing = [f"{line['question']}: {line['value']}" for line in it.all("cuStreamCreate", when=when) + it.all(
        "cuMemHostAlloc", when=when) + it.all("cuModuleLoadData", when=when) + it.all(
        "the first run of a kernel with 2 KiB of local memory a thread", when=when) if line["value"] != "CUDA_SUCCESS"]
    return (f"{(it.value('free when 2 MiB are refused') or 0) / MIB:.1f} MiB free when 2 MiB are refused; there fail: "
            f"{'; '.join(failing) or 'none'}")


# Name, seconds on a card, and what tells its answers in a line.
PARTS = [
    ("facts", 3, facts), ("host locations", 15, host_locations), ("page costs", 40, page_costs),
    ("beside a kernel", 25, beside_a_kernel), ("host making", 15, host_making), ("copies", 10, copies),
    ("exchange", 8, exchange), ("straddling", 5, judged), ("kernels on host pages", 10, kernels_on_host_pages),
    ("mapping rules", 3, answers_of("less than the handle mapped", "from an offset of the handle",
                                    "mapped at two places", "a part of one handle unmapped", "used after the release")),
    ("sharing", 4, sharing),
    ("addresses", 3, answers_of("the same address", "another address than the symbol's", "a symbol alone",
                                "an address alone")),
    ("free memory", 4, free_memory), ("capture", 5, capture), ("destroyed handles", 10, destroyed),
    ("queue", 10, answers_of("the first launch that waits", "queueing", "until all had run")),
    ("full card", 20, full_card),
]


SPEEDS = ("page costs", "host making", "copies")


def ask(machine, name):
    """The probe's lines, and how it ended."""
    done = machine.start([PROBE, name], {})
    lines = []
    for text in done.stdout.splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            pass  # cut by the end of the process
    ends = [line["value"] for line in lines if line["question"] == "end"]
    return lines, ends[0] if ends else f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"


def look_at(name, tell):
    def run(setting):
        # A simulated card copies quickly where it computes no values.
        lines, end = ask(setting.options.real_card if name in SPEEDS else setting.machine, name)
        answers = Answers(lines)
        found = tell(answers) if answers.lines else "no answer"
        said = "pass" if end == "done" else f"FAIL: {end}"
        return Outcome([f"| {name} | {said} | {found.replace('|', '/')} |"], failed=end != "done",
                       data={"answers": lines})
    return run


def parts():
    return [Part(GROUP.name, name, seconds, look_at(name, tell)) for name, seconds, tell in PARTS]
