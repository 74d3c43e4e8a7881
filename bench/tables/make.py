#!/usr/bin/env python3
"""make.py FILE ROWS: visits as CSV, the same for the same number; about eleven for each user and each location."""

import multiprocessing
import os
import pathlib
import random
import sys

PIECE = 250_000


def piece(job):
    first, count, owners = job
    chance = random.Random(f"visits/{first}").random
    return "".join(
        f"{visit},{1 + int(chance() * owners)},{1 + int(chance() * owners)},{946684800 + int(chance() * 473385600)},{int(chance() * 6)}\n"
        for visit in range(first, first + count)
    )


def main():
    path, rows = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    owners = max(1, rows // 11)
    jobs = [(first, min(PIECE, rows - first + 1), owners) for first in range(1, rows + 1, PIECE)]
    unfinished = path.with_suffix(".part")
    with multiprocessing.Pool() as pool, unfinished.open("w") as file:
        file.write("id,location,user,visited_at,mark\n")
        for at in range(0, len(jobs), os.cpu_count()):  # so few pieces are in memory at a time
            for text in pool.map(piece, jobs[at : at + os.cpu_count()], chunksize=1):
                file.write(text)
    unfinished.rename(path)


if __name__ == "__main__":
    main()
