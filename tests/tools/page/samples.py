"""Pages to open: of a snapshot, of one whose names are hostile, and of a trace."""
import json
import pathlib
import pickle
import re
import subprocess

HOSTILE = '</script><script>window.hit = 1</script>"><img src=x onerror="window.hit = 2">\u2028\ud800'


class Samples:
    def __init__(self, spillway, golden, folder):
        self.spillway, self.golden, self.folder = spillway, golden, pathlib.Path(folder)

    def page_of(self, file, name="run", capacity=True):
        path = self.folder / f"{name}.html"
        words = ["--capacity", "64MiB"] if capacity else []
        subprocess.run([self.spillway, "report", file, *words, "--html", path], check=True, stdout=subprocess.DEVNULL)
        return path

    def changed(self, name, change):
        """A page of the golden snapshot after `change`."""
        with open(self.golden, "rb") as file:
            snapshot = pickle.load(file)
        change(snapshot)
        path = self.folder / f"{name}.pickle"
        # A lone surrogate becomes bytes that are no UTF-8.
        path.write_bytes(pickle.dumps(snapshot, protocol=4).replace(b"\xed\xa0\x80", b"\xff\xfe\xfd"))
        return self.page_of(path, name)

    def hostile(self):
        def change(snapshot):
            for event in snapshot["device_traces"][0]:
                for frame in event.get("frames", []):
                    frame["name"], frame["filename"] = HOSTILE, HOSTILE + ".py"
            snapshot["allocator_settings"][HOSTILE] = HOSTILE
        return self.changed("hostile", change)

    def hostile_source(self):
        """The program's own lines are markup."""
        source = self.folder / "source.py"
        source.write_text("\n" * 4 + "x = 1  # " + HOSTILE.encode("utf-8", "replace").decode() + "\n")

        def change(snapshot):
            for event in snapshot["device_traces"][0]:
                for frame in event.get("frames", []):
                    frame["filename"], frame["line"] = str(source), 5
        return self.changed("hostile_source", change)

    def fragmented(self):
        """A segment of 40 MiB with a block of 2 MiB in its middle; a request of 30 MiB fails."""
        frames = [{"name": "keep", "filename": "train.py", "line": 3}]

        def block(start, size, state):
            return {"address": start << 20, "size": size << 20, "requested_size": size << 20, "state": state,
                    "frames": frames}

        def change(snapshot):
            segment = {**snapshot["segments"][0], "address": 64 << 20, "total_size": 40 << 20, "stream": 0,
                       "segment_pool_id": (0, 0), "is_expandable": False,
                       "blocks": [block(64, 18, "inactive"), block(82, 2, "active_allocated"),
                                  block(84, 20, "inactive")]}
            events = [{"action": action, key: address << 20, "size": size << 20, "stream": 0, "time_us": 1,
                       "frames": frames}
                      for action, key, address, size in (("segment_alloc", "addr", 64, 40), ("alloc", "addr", 82, 2),
                                                         ("oom", "device_free", 0, 30))]
            snapshot.update(segments=[segment], device_traces=[events])
        return self.changed("fragmented", change)

    def ranks(self):
        """Of a training whose second rank failed, and whose third left no report."""
        folder = self.folder / "training"
        for rank, (plan, peak) in enumerate((("recompute=1", 20 << 20), ("recompute=0", 12 << 20))):
            device = {"live_peak_bytes": peak, "reserved_peak_bytes": peak, "limit_bytes": 64 << 20}
            part = {"rank": rank, "size": 3, "start": "5tart", "waited_seconds": 1.5,
                    "incident": {"number": "7", "cause": "rank 1 was killed", "rank": 1}}
            report = {"spillway_run_report": 1, "verdict": "ended by rank 1", "all_moves": rank, "rank": part,
                      "plans": [{"plan": plan, "measured": [device]}], "points": [{"last_step": 5, "plan": 0}]}
            place = folder / f"rank-{rank}" if rank else folder
            place.mkdir(parents=True, exist_ok=True)
            (place / "report.json").write_text(json.dumps(report))
        return self.page_of(folder, "ranks", capacity=False)

    def without_history(self):
        return self.changed("late", lambda snapshot: snapshot.update(device_traces=[[]]))

    def trace(self, page, with_history=False):
        """The page of a snapshot with a trace's data in it, and with the snapshot's history as the trace's own."""
        terms = ["live", "rounding", "stranded", "cached", "pending", "pools", "context", "others", "free"]
        data = {"kind": "trace", "spillway": "0", "path": "run.trace", "report": trace_report(),
                "headline": "RESCUED: all 2 allocation failures; the program went on.",
                "terms": [{"key": term, "name": term, "meaning": ""} for term in terms]}
        whole = page.read_text()
        if with_history:
            snapshot = json.loads(re.search(r'id="data">(.*?)</script>', whole, re.DOTALL).group(1))
            data |= {"found": snapshot["report"], "history": snapshot["history"]}
        return self.with_data(whole, data, "trace")

    def rehearsal(self, page, fits):
        """The page of a snapshot as a rehearsal's, without a clock."""
        whole = page.read_text()
        data = json.loads(re.search(r'id="data">(.*?)</script>', whole, re.DOTALL).group(1))
        data["kind"] = "rehearsal"
        data["history"]["times"] = ""
        parts = [{"key": "in_use", "name": "in use", "meaning": "", "bytes": 20 << 20},
                 {"key": "free", "name": "free", "meaning": "", "bytes": 44 << 20}]
        answer = {"what": "cards with enough memory", "setting": "", "fits": True, "text": "t4-16gb", "sure": "not run"}
        card = {"name": "GPU 0", "processes": 2, "capacity_bytes": 64 << 20, "peak_bytes": 20 << 20,
                "peak_allocated_bytes": 20 << 20, "peak_reserved_bytes": 20 << 20, "outside_bytes": 0}
        verdict = {"head": "FITS" if fits else "DOES NOT FIT", "mood": "good" if fits else "bad",
                   "condition": "If it reads no value" if fits else "", "cause": "" if fits else "capacity",
                   "text": "At its peak it takes 20.00 MiB."}
        data["rehearsal"] = {"verdict": verdict, "facts": [["on", "a t4", "a simulated card"]], "cards": [card],
                             "equation": {"name": "card", "total": 64 << 20, "parts": parts} if fits else None,
                             "answers": [answer], "not_run": ["a smaller optimizer"]}
        if fits:
            data["report"].update(failure=None, verdict=None, counterfactuals=[])
            data["history"]["failures"] = []
        return self.with_data(whole, data, "rehearsal")

    def with_data(self, whole, data, name):
        text = json.dumps(data).replace("<", "\\u003c")
        path = self.folder / f"{name}.html"
        path.write_text(re.sub(r'(?<=id="data">).*?(?=</script>)', lambda _: text, whole, count=1, flags=re.DOTALL))
        return path


def trace_report():
    """As `spillway report --json` gives it, of two incidents."""
    equation = {"limit_bytes": 1 << 30, "live_bytes": 900 << 20, "rounding_bytes": 0, "stranded_bytes": 0,
                "cached_bytes": 100 << 20, "pending_bytes": 0, "pools_bytes": 0, "context_bytes": 0, "others_bytes": 0,
                "free_bytes": 24 << 20}
    tried = {"strategy": "spill_to_host", "guarantee": "bit exact", "offered_bytes": 5 << 20, "gained_bytes": 8 << 20,
             "microseconds": 1500}
    pool = {"pool": "pool 3", "stream": 0, "held_bytes": 40 << 20, "in_use_bytes": 0,
            "places": [{"where": "<b>capture</b>", "caller": None, "bytes": 40 << 20, "blocks": 1}]}
    incident = {"incident": 1, "cause": "capacity", "verdict": "too much", "requested_bytes": 64 << 20,
                "rounded_bytes": 64 << 20, "short_bytes": 5 << 20, "device": 0, "stream": 0, "pool": 0, "library": None,
                "phase": None, "step": None, "optimizer_steps": 12, "clock_ns": 1, "equation": equation,
                "ladder": [tried],
                "pending_frees": [{"stream": 171, "bytes": 16 << 20, "blocks": 2}], "other_pools": [pool],
                "refused": [{"strategy": "stitch", "why": "a <capture>"}], "outcome": "granted",
                "gained_bytes": 8 << 20, "microseconds": 1600}
    run = {"process": 7, "started_ns": 1, "ended": True, "failures": 2, "rescued": 2, "unwound": 0, "gave_up": 0,
           "undecided": 0, "last_step_begun": None, "last_step_ended": None, "steps_ended": 0, "optimizer_steps": 12,
           "tokens": 0, "memory": [], "failed_driver_calls": {}, "slowdowns": {}, "plan_changes": [], "strategies": {}}
    freed = {"what": "freed", "count": 48, "bytes": 1 << 30, "smallest_bytes": 512, "largest_bytes": 64 << 20,
             "freed_again": 0, "where": None, "caller": None, "from_us": 12_000, "until_us": 3_000,
             "text": "freed 48 blocks, 1.00 GiB"}
    last = {"before_the_failure": True, "groups": [freed], "earlier": 7, "later": 1}
    whole = {"whole": True, "incomplete": None, "overwritten": 0, "overwritten_rare": 0, "dropped": 0, "torn": 0}
    return {"trace": "run.trace", "shown_incident": 2, "incidents": [incident, {**incident, "incident": 2}], "run": run,
            "last_events": last, "completeness": whole, "settings": {}, "less_sure": [], "no_counterfactuals": None,
            "counterfactuals": [{"what": "a card of 2 GiB", "setting": "", "fits": True, "bytes": None, "text": "",
                                 "sure": "sure"}]}
