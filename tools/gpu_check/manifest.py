#!/usr/bin/env python3
"""The archive's MANIFEST.json: the commit, what the programs need, and every file with its checksum."""
import hashlib
import json

NAME = "MANIFEST.json"


def checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(root):
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name != NAME)


def write(root, about):
    """`about`: what stands beside the list of files."""
    files = {str(path.relative_to(root)): {"bytes": path.stat().st_size, "sha256": checksum(path)}
             for path in files_of(root)}
    (root / NAME).write_text(json.dumps({**about, "files": files}, indent=1, sort_keys=True) + "\n")


def read(root):
    """The manifest, or None in a source tree."""
    path = root / NAME
    return json.loads(path.read_text()) if path.exists() else None


def faults(root):
    """A line for each file that is missing or is not the one that was packed."""
    for name, packed in read(root)["files"].items():
        path = root / name
        if not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size != packed["bytes"] or checksum(path) != packed["sha256"]:
            yield f"{name} is not the file that was packed"
