#!/usr/bin/env python3
"""Writes a log of RMM's: make_log.py LINES OUT.

A stream of allocations of up to 4 MiB, of which 300 are live, and a request at the end that cannot be served. The same
LINES give the same file.
"""
import random
import sys

MIB, GIB = 1 << 20, 1 << 30
LIVE = 300


def stamps():
    now = 0
    while True:
        now += random.randrange(1, 30)
        seconds, microseconds = divmod(now, 1_000_000)
        yield f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}:{microseconds:06}"


def lines(count):
    live, free, end, clock = [], {}, 0x7F0000000000, stamps()
    written = 0
    while written < count:
        size = random.randrange(1, 4 * MIB) // 256 * 256 + 256
        room = (size + MIB - 1) // MIB * MIB
        if not free.get(room):
            free[room] = [end]
            end += room
        block = free[room].pop(), size, room
        live.append(block)
        yield f"1980043,{next(clock)},allocate,{block[0]:#x},{size},0x0\n"
        written += 1
        if len(live) > LIVE:
            address, size, room = live.pop(random.randrange(len(live)))
            free[room].append(address)
            yield f"1980043,{next(clock)},free,{address:#x},{size},0x0\n"
            written += 1
    yield f"1980043,{next(clock)},allocate failure,0x0,{60 * GIB},0x0\n"


def main(count, out):
    random.seed(3)
    with open(out, "w", encoding="ascii") as file:
        file.write("Thread,Time,Action,Pointer,Size,Stream\n")
        file.writelines(lines(count))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
