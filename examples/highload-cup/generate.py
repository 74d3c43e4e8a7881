#!/usr/bin/env python3
"""generate.py FOLDER: writes data and requests like those of the contest, the same for the same seed and sizes.

In FOLDER: users_N.json, locations_N.json and visits_N.json, or all of them in data.zip (--zip); options.txt; and
requests/phase_1.ndjson to phase_3.ndjson with a list [method, path, body] per line; some requests are invalid on
purpose. Phases 1 and 3 read; phase 2 writes, and its order matters. Files are generated one by one by --jobs processes,
none of which holds all of the data.
"""

import argparse
import itertools
import json
import multiprocessing
import pathlib
import random
import zipfile

from asks import phases
from texts import (
    CITY_BEGINS, CITY_ENDS, COUNTRIES, LAST_BEGINS, LAST_ENDS_F, LAST_ENDS_M, MEN, SIGHTS, WOMEN, email_of, years_before,
)  # fmt: skip

BORN = (-1262304000, 915148800)  # 1930 to 1999
VISITED = (946684800, 1420070400)  # 2000 to 2015
DAY = 86400


def rng_of(*names):
    return random.Random("/".join(map(str, names)))


def written(words, is_ascii):
    """The words as inside the quotes of a JSON string: plain UTF-8, or everything beyond ASCII as \\u…."""
    return [json.dumps(word, ensure_ascii=is_ascii)[1:-1] for word in words]


def users(sizes, first, count, rng, is_ascii):
    men, women = written(MEN, is_ascii), written(WOMEN, is_ascii)
    begins = written(LAST_BEGINS, is_ascii)
    ends_m, ends_f = written(LAST_ENDS_M, is_ascii), written(LAST_ENDS_F, is_ascii)
    chance = rng.random
    for user in range(first, first + count):
        is_man = chance() < 0.5
        names, ends = (men, ends_m) if is_man else (women, ends_f)
        name, last = names[int(chance() * len(names))], begins[int(chance() * len(begins))] + ends[int(chance() * len(ends))]
        born = BORN[0] + DAY * int(chance() * ((BORN[1] - BORN[0]) // DAY))
        if chance() < 0.5:  # it is a birthday to the second, or nearly
            born = years_before(sizes.now, 18 + int(chance() * 50)) + (-1, 0, 0, 0, 1)[int(chance() * 5)]
        gender = "m" if is_man else "f"
        yield (
            f'{{"first_name": "{name}", "last_name": "{last}", "birth_date": {born}, "gender": "{gender}", '
            f'"id": {user}, "email": "{email_of(user)}"}}'
        )


def locations(sizes, first, count, rng, is_ascii):
    countries, sights = written(COUNTRIES, is_ascii), written(SIGHTS, is_ascii)
    begins, ends = written(CITY_BEGINS, is_ascii), written(CITY_ENDS, is_ascii)
    chance = rng.random
    for location in range(first, first + count):
        city = begins[int(chance() * len(begins))] + ends[int(chance() * len(ends))]
        yield (
            f'{{"distance": {int(chance() * 100)}, "city": "{city}", "place": "{sights[int(chance() * len(sights))]}", '
            f'"id": {location}, "country": "{countries[int(chance() * len(countries))]}"}}'
        )


def visits(sizes, first, count, rng, is_ascii):
    """Rows of visits. Every third visit is at one of thirty midnights, which filters use too, so that some visits have the
    same second."""
    chance, users, locations = rng.random, sizes.users, sizes.locations
    span, begin = VISITED[1] - VISITED[0], VISITED[0]
    for visit in range(first, first + count):
        at = int(chance() * span)
        if visit % 3 == 0:
            at -= at % (DAY * 180)
        yield (
            f'{{"user": {1 + int(chance() * users)}, "location": {1 + int(chance() * locations)}, '
            f'"visited_at": {begin + at}, "id": {visit}, "mark": {int(chance() * 6)}}}'
        )


KINDS = {"users": users, "locations": locations, "visits": visits}


def file_of(job):
    """Name and content of one file. Its content depends only on the seed, the sizes and its number."""
    sizes, kind, number = job
    first = 1 + (number - 1) * sizes.per_file
    count = min(sizes.per_file, getattr(sizes, kind) - first + 1)
    rows = KINDS[kind](sizes, first, count, rng_of(sizes.seed, kind, number), number % 3 == 2)
    return f"{kind}_{number}.json", f'{{"{kind}": [' + ", ".join(rows) + "]}"


def save(job):
    name, content = file_of(job)
    pathlib.Path(job[0].folder, name).write_text(content)


def jobs_of(sizes):
    for kind in KINDS:
        for number in range(1, 1 + -(-getattr(sizes, kind) // sizes.per_file)):
            yield sizes, kind, number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--locations", type=int, default=800)
    parser.add_argument("--visits", type=int, default=10_000)
    parser.add_argument("--per-file", type=int, default=10_000, help="entities of a file")
    parser.add_argument("--requests", type=int, default=3000, help="of each phase")
    parser.add_argument("--now", type=int, default=1503695452, help="the timestamp of options.txt")
    parser.add_argument("--zip", action="store_true", help="data.zip instead of files")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    sizes = parser.parse_args()
    (sizes.folder / "requests").mkdir(parents=True, exist_ok=True)
    options = f"{sizes.now}\n1\n"
    (sizes.folder / "options.txt").write_text(options)
    with multiprocessing.Pool(sizes.jobs) as pool:
        if sizes.zip:
            with zipfile.ZipFile(sizes.folder / "data.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                archive.writestr("options.txt", options)
                jobs = jobs_of(sizes)
                while some := list(itertools.islice(jobs, 4 * sizes.jobs)):  # so few are in memory at a time
                    for name, content in pool.map(file_of, some, chunksize=1):
                        archive.writestr(name, content)
        else:
            for _ in pool.imap_unordered(save, jobs_of(sizes)):
                pass
    for number, requests in enumerate(phases(sizes, rng_of(sizes.seed, "requests")), 1):
        with (sizes.folder / "requests" / f"phase_{number}.ndjson").open("w") as file:
            for request in requests:
                file.write(json.dumps(request, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
