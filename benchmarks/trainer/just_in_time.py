"""just_in_time.py BUILD --corpus TEXT: what a step takes where layers are updated right before their next forward.

Trains on a simulated card whose driver calls, copies and operators take time (profiles `typical` and
`timed-kernels`), without values. What a step takes is the difference of runs with many and with few steps. A line
for each place of what the layers have and each size of a micro-batch: the virtual milliseconds of a step with the
update at the step's end and with `plan.update = "just_in_time"`, and the bytes that each copies.
"""
from overlap import PLACES, arguments, simulated

FEW, MANY, MICRO_BATCHES = 3, 7, 2
STATES = 'plan.optimizer="host"'
ROWS = {"weights": PLACES["weights"], "gradients": PLACES["gradients"], "both": PLACES["both"],
        "states": [STATES], "all": [*PLACES["both"], STATES]}


def step(build, corpus, rows, settings):
    """Virtual milliseconds and copied MiB."""
    def run(steps):
        batch = [f"plan.micro_batch={rows}", f"train.batch={rows * MICRO_BATCHES}", f"train.steps={steps}"]
        return simulated(build, corpus, batch + settings)
    few, many = run(FEW), run(MANY)
    return tuple((many[key] - few[key]) / (MANY - FEW) / unit
                 for key, unit in [("virtual_ns", 1e6), ("copied_bytes", 2**20)])


def main():
    build, corpus, all_rows = arguments(__doc__)
    for rows in all_rows:
        for name, settings in ROWS.items():
            (end, copied), (in_time, fewer) = (step(build, corpus, rows, [*settings, *more])
                                               for more in ([], ['plan.update="just_in_time"']))
            print(f"{rows:4} sequences, {name:9} on the host: at the step's end {end:7.3f} ms, "
                  f"{copied:6.0f} MiB copied; "
                  f"just in time {in_time:7.3f} ms, {fewer:6.0f} MiB: {100 * (1 - in_time / end):5.1f} % less time",
                  flush=True)


if __name__ == "__main__":
    main()
