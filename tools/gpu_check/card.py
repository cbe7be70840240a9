#!/usr/bin/env python3
"""The real card as a simulated one: what decides PyTorch's choices, read from the driver."""
import json
import subprocess

QUERY = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps({"name": p.name, "capability": f"{p.major}.{p.minor}", "multiprocessors": p.multi_processor_count,
                  "capacity": p.total_memory}))
"""


def describe(machine):
    """The first card of `machine`, as a dictionary."""
    return json.loads(machine.run([machine.python, "-c", QUERY]))


def described(setting, machine):
    """The same from what the probe has found, or asked now."""
    facts = setting.data("probe: facts")
    if not facts or "answers" not in facts:
        return describe(machine)
    said = {line["question"]: line["value"] for line in facts["answers"]}
    return {"name": said["card"], "capability": f"{said['capability major']}.{said['capability minor']}",
            "multiprocessors": said["multiprocessors"], "capacity": said["memory"]}


def known_id(spillway, name):
    """The id in the simulator's table of cards, or None: `--list-gpus` prints the id, then the name."""
    table = subprocess.run([str(spillway), "simulate", "--list-gpus"], capture_output=True, text=True, check=True)
    for line in table.stdout.splitlines()[1:]:
        identity, rest = line.split(None, 1)
        if rest.startswith(name + "  "):
            return identity
    return None


def write_config(path, spillway, card):
    """The TOML file of a machine with that card. Returns what it was made from, for people."""
    identity = known_id(spillway, card["name"])
    lines = [f'card = "{identity}"'] if identity else []
    lines += [f'capability = "{card["capability"]}"', f'multiprocessors = {card["multiprocessors"]}',
              f'capacity = {card["capacity"]}']
    path.write_text("\n".join(lines) + "\n")
    return identity or "no card of the table: its properties as the driver gives them"
