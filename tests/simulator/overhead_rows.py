"""Every row of simulator/cards/overheads.inc is asked for, and every row that somebody asks for is there."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]) / "simulator"
rows = set(re.findall(r'^SPILLWAY_OVERHEAD\("([^"]+)"', (root / "cards/overheads.inc").read_text(), re.MULTILINE))
sources = "\n".join(path.read_text() for folder in ("driver", "runtime", "libraries")
                    for pattern in ("*.cpp", "*.h") for path in (root / folder).rglob(pattern))
unasked = sorted(row for row in rows if f'"{row}"' not in sources)
missing = sorted(set(re.findall(r'"(\w+\.(?:library|handle|granule))"', sources)) - rows)
assert rows and not unasked, f"nobody asks for {unasked}"
assert not missing, f"the table lacks {missing}"
print(f"{len(rows)} rows, each asked for")
