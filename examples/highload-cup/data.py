"""Reads the data that the generator has written, from a folder or from the data.zip in it."""

import json
import multiprocessing
import re
import zipfile

from model import Model

KINDS = ("users", "locations", "visits")


def now_of(folder):
    return int((folder / "options.txt").read_text().split()[0])


def names_of(folder, kind):
    """The names of the files with entities of this kind, in the order of their numbers."""
    names = [path.name for path in folder.iterdir()]
    if "data.zip" in names:
        with zipfile.ZipFile(folder / "data.zip") as archive:
            names = archive.namelist()
    found = [name for name in names if re.fullmatch(kind + r"_\d+\.json", name)]
    return sorted(found, key=lambda name: int(re.search(r"\d+", name)[0]))


def rows_of(folder, kind, name):
    if (folder / name).exists():
        text = (folder / name).read_bytes()
    else:
        with zipfile.ZipFile(folder / "data.zip") as archive:
            text = archive.read(name)
    return json.loads(text)[kind]


def whole(folder):
    """A model of all data, which takes memory for each entity: for a few hundred thousand entities."""
    model = Model(now_of(folder))
    for kind in KINDS:
        for name in names_of(folder, kind):
            for row in rows_of(folder, kind, name):
                model.put(kind, row)
    return model


def sample(folder, rng, count):
    """A model of `count` users, locations and visits each, with all entities needed for answers about them; their ids,
    and the last ids of the whole data."""
    last = {kind: rows_of(folder, kind, names_of(folder, kind)[-1])[-1]["id"] for kind in KINDS}
    ids = {kind: [rng.randint(1, last[kind]) for _ in range(count)] for kind in KINDS}
    model = Model(now_of(folder))
    with multiprocessing.Pool() as pool:
        wanted = {"id": set(ids["visits"]), "user": set(ids["users"]), "location": set(ids["locations"])}
        fill(model, pool, folder, "visits", wanted)
        visits = model.rows["visits"].values()
        fill(model, pool, folder, "users", {"id": {visit["user"] for visit in visits} | wanted["user"]})
        fill(model, pool, folder, "locations", {"id": {visit["location"] for visit in visits} | wanted["location"]})
    return model, ids, last


def fill(model, pool, folder, kind, wanted):
    jobs = [(folder, kind, name, wanted) for name in names_of(folder, kind)]
    for rows in pool.imap_unordered(pick, jobs):
        for row in rows:
            model.put(kind, row)


def pick(job):
    folder, kind, name, wanted = job
    return [row for row in rows_of(folder, kind, name) if any(row[field] in values for field, values in wanted.items())]
