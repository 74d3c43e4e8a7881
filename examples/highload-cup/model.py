"""Computes the expected answers: the rules of the contest over plain dictionaries, written to be read, not to be fast.

An answer is (status, value). The value of a 200 is its decoded body, that of any other status is None.
"""

import collections
import decimal
import json
import re
from urllib.parse import parse_qsl, unquote

from texts import years_before

U32, I32 = (0, 2**32 - 1), (-(2**31), 2**31 - 1)
# Each field allows a range of whole numbers, a text with a maximum length in characters, or one of several texts.
FIELDS = {
    "users": {"id": U32, "email": 100, "first_name": 50, "last_name": 50, "gender": {"m", "f"}, "birth_date": I32},
    "locations": {"id": U32, "place": 65535, "country": 50, "city": 50, "distance": U32},
    "visits": {"id": U32, "location": U32, "user": U32, "visited_at": I32, "mark": (0, 5)},
}
NOT_FOUND, BAD = (404, None), (400, None)


def fits(value, rule):
    if isinstance(rule, tuple):
        return type(value) is int and rule[0] <= value <= rule[1]
    return type(value) is str and (value in rule if isinstance(rule, set) else len(value) <= rule)


def mean(marks):
    """The mean of the marks, rounded half up to five decimals with integer arithmetic."""
    if not marks:
        return decimal.Decimal(0)
    return decimal.Decimal((2 * 100_000 * sum(marks) + len(marks)) // (2 * len(marks))).scaleb(-5)


class Bad(Exception):
    """The query is invalid."""


class Query:
    """The parameters of a request. The first value of each name counts; unknown names are ignored."""

    def __init__(self, text):
        self.values = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            self.values.setdefault(name, value)

    def number(self, name):
        text = self.values.get(name)
        if text is None:
            return None
        if not re.fullmatch("-?[0-9]+", text):
            raise Bad
        return int(text)


class Model:
    def __init__(self, now):
        self.now = now
        self.rows = {kind: {} for kind in FIELDS}
        self.emails = {}
        self.of_user, self.of_location = collections.defaultdict(set), collections.defaultdict(set)

    def put(self, kind, row):
        old = self.rows[kind].get(row["id"])
        if kind == "users":
            if old:
                del self.emails[old["email"]]
            self.emails[row["email"]] = row["id"]
        elif kind == "visits":
            if old:
                self.of_user[old["user"]].discard(row["id"])
                self.of_location[old["location"]].discard(row["id"])
            self.of_user[row["user"]].add(row["id"])
            self.of_location[row["location"]].add(row["id"])
        self.rows[kind][row["id"]] = row

    def answer(self, method, target, body):
        path, _, query = target.partition("?")
        query = Query(query)
        found = re.fullmatch("/(users|locations|visits)/([0-9]+|new)(/visits|/avg)?", unquote(path))
        if not found:
            return NOT_FOUND
        kind, name, tail = found.groups()
        if method == "POST":
            if tail:
                return NOT_FOUND
            return self.insert(kind, body) if name == "new" else self.update(kind, int(name), body)
        row = self.rows[kind].get(int(name)) if name != "new" else None
        if row is None or (kind, tail) not in [*((kind, None) for kind in FIELDS), ("users", "/visits"), ("locations", "/avg")]:
            return NOT_FOUND
        try:
            if tail:
                return 200, self.visits(row["id"], query) if kind == "users" else self.average(row["id"], query)
        except Bad:
            return BAD
        return 200, row

    # ------------------------------------------------------------------------------------------------ reads

    def visits(self, user, query):
        """The visits of a user, ordered by date. Visits of the same second may be in any order: see `same_visits`."""
        since, until, distance = query.number("fromDate"), query.number("toDate"), query.number("toDistance")
        country, found = query.values.get("country"), []
        for visit in (self.rows["visits"][number] for number in self.of_user[user]):
            location = self.rows["locations"][visit["location"]]
            if (
                (since is None or visit["visited_at"] > since)
                and (until is None or visit["visited_at"] < until)
                and (country is None or location["country"] == country)
                and (distance is None or location["distance"] < distance)
            ):
                found.append({"mark": visit["mark"], "visited_at": visit["visited_at"], "place": location["place"]})
        return {"visits": sorted(found, key=lambda one: one["visited_at"])}

    def average(self, location, query):
        since, until = query.number("fromDate"), query.number("toDate")
        older, younger, gender = query.number("fromAge"), query.number("toAge"), query.values.get("gender")
        if gender not in (None, "m", "f"):
            raise Bad
        before = None if older is None else years_before(self.now, older)
        after = None if younger is None else years_before(self.now, younger)
        marks = []
        for visit in (self.rows["visits"][number] for number in self.of_location[location]):
            user = self.rows["users"][visit["user"]]
            if (
                (since is None or visit["visited_at"] > since)
                and (until is None or visit["visited_at"] < until)
                and (before is None or user["birth_date"] < before)
                and (after is None or user["birth_date"] > after)
                and gender in (None, user["gender"])
            ):
                marks.append(visit["mark"])
        return {"avg": mean(marks)}

    # ------------------------------------------------------------------------------------------------ writes

    def insert(self, kind, body):
        row = self.body(body)
        if row is None or row.keys() != FIELDS[kind].keys() or not self.is_good(kind, row, None) or row["id"] in self.rows[kind]:
            return BAD
        self.put(kind, row)
        return 200, {}

    def update(self, kind, number, body):
        old = self.rows[kind].get(number)
        if old is None:
            return NOT_FOUND
        changes = self.body(body)
        if changes is None or "id" in changes or not changes.keys() <= FIELDS[kind].keys() or not self.is_good(kind, changes, number):
            return BAD
        self.put(kind, {**old, **changes})
        return 200, {}

    def body(self, text):
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def is_good(self, kind, row, number):
        """Whether the present fields are valid; missing ones are not checked."""
        if not all(fits(value, FIELDS[kind][name]) for name, value in row.items()):
            return False
        if kind == "users":
            return self.emails.get(row.get("email"), number) == number
        if kind == "visits":
            return all(row[name] in self.rows[name + "s"] for name in ("user", "location") if name in row)
        return True


def same(expected, got):
    """Whether two JSON values are equal and of the same types; 3 and 3.0 are equal where a Decimal is expected."""
    if isinstance(expected, dict):
        if type(got) is not dict or expected.keys() != got.keys():
            return False
        if "visits" in expected:
            return same_visits(expected["visits"], got["visits"])
        return all(same(value, got[name]) for name, value in expected.items())
    if isinstance(expected, decimal.Decimal):
        return type(got) in (int, decimal.Decimal) and expected == got
    return type(expected) is type(got) and expected == got


def same_visits(expected, got):
    if type(got) is not list or len(expected) != len(got):
        return False
    if not all(type(one) is dict and one.keys() == {"mark", "visited_at", "place"} for one in got):
        return False
    if [one["visited_at"] for one in got] != [one["visited_at"] for one in expected]:
        return False
    key = lambda one: (one["visited_at"], str(one["mark"]), str(one["place"]))
    return all(map(same, sorted(expected, key=key), sorted(got, key=key)))
