#!/usr/bin/env python3
"""Everything that gpu-check looks at, in the order of what decides most: what the driver does, whether values are
right, what things cost, and programs."""
from . import beyond, figures, hooks, manifest, overheads, probing, rehearsals, serving, simulated_machine, techniques
from . import updates
from .checks import allocator, hazards, rescues, seen
from .machine import BUILD, CORPUS, ROOT, torch_version
from .part import Group, Part

GROUPS = {group.name: group for group in (
    probing.GROUP,
    Group(simulated_machine.GROUP_NAME, ["", "| this machine for the simulator | result | |", "|---|---|---|"]),
    figures.GROUP,
    Group("trials", ["", "| trial of spillway doctor | state | found |", "|---|---|---|"]),
    Group("checks", ["", "| check | result | figure |", "|---|---|---|"]),
    hooks.GROUP, updates.GROUP, Group("overheads", []), techniques.GROUP, beyond.GROUP, rehearsals.GROUP)}
# What --only names: groups that belong together.
CHOICES = {
    "probe": ("probe", "machine", "figures"), "checks": ("trials", "checks"), "costs": ("hooks", "updates"),
    "overheads": ("overheads",), "techniques": ("techniques", "updates"), "beyond": ("beyond the card",),
    "rehearsals": ("rehearsals",)}
# Without a word about it, and with a time to keep to: the others take over an hour.
FEW_PROGRAMS = ["grad_scaler", "gpt2_fixed_length"]


def programs(options):
    if "all" in options.program or (not options.program and options.seconds is None):
        return []
    return options.program or FEW_PROGRAMS


def all_parts(options):
    return [
        *probing.parts(), simulated_machine.PART, *figures.PARTS_OF_FIGURES, rescues.TRIALS,
        *allocator.CHECKS, *rescues.CHECKS, *hazards.CHECKS, *seen.CHECKS,
        *allocator.TRAINER_CHECKS, hooks.PART,
        Part("overheads", "libraries and workspaces", 60, overheads.look), updates.PART,
        *techniques.parts(options.technique), *beyond.PARTS, *serving.PARTS, *rehearsals.parts(programs(options))]


def obstacles(options):
    """What this machine or this archive does not have, and the parts that need it."""
    packed, version = manifest.read(ROOT), torch_version()
    if version is None:
        yield "Python has no torch here", lambda part: not (
            part.group in ("probe", "machine", "figures", "trials", "hooks") or
            part.name in ("core on the driver", "another library's call"))
        return
    needs_trainer = (lambda part: part.group in ("techniques", "beyond the card") or part.name.startswith("trainer"))
    if not (BUILD / "bin/spillway-train").exists():
        yield "there is no trainer here", needs_trainer
    elif packed and version not in packed["trainers"]:
        yield f"the trainer is for torch {', '.join(packed['trainers'])}, not {version}", needs_trainer
    elif not CORPUS.exists():
        yield f"there is no {CORPUS}", needs_trainer
    if packed and version not in packed["trainers"]:
        yield (f"bench_updates_gpu is for torch {', '.join(packed['trainers'])}",
               lambda part: part.group == "updates")
    if packed and version not in packed["torch"]:
        yield (f"the allocator is for torch {', '.join(packed['torch'])}, not {version}",
               lambda part: part.name in ("allocator in PyTorch", "rescue in place", "training beyond its limit",
                                          "memory moved to the host", "operand on the host", rescues.MOVES) or
               part in (*hazards.CHECKS, *seen.CHECKS))


def chosen(options):
    """The parts to run, and a line for each reason to leave some out."""
    groups = {group for choice in options.only for group in CHOICES[choice]}
    parts = [part for part in all_parts(options) if part.group in groups]
    left_out = []
    for reason, concerns in obstacles(options):
        without = [part for part in parts if concerns(part)]
        if without:
            named = ", ".join(dict.fromkeys(part.group for part in without))
            left_out.append(f"{len(without)} parts ({named}): {reason}")
        parts = [part for part in parts if not concerns(part)]
    return parts, left_out
