"""The requests of the three phases. This module does not know the expected answers, which the oracle determines. It
knows which entities exist, so that most requests are valid, and each invalid one has one fault."""

import json
from urllib.parse import quote, quote_plus

from texts import CITY_BEGINS, CITY_ENDS, COUNTRIES, LAST_BEGINS, LAST_ENDS_M, MEN, SIGHTS, email_of, years_before

DAY = 86400
YEAR = 365 * DAY
ID_MAX = 2**32 - 1


def phases(sizes, rng):
    """Three lists of [method, path, body]; the body of a GET is None."""
    asks = Asks(sizes, rng)
    yield [asks.get() for _ in range(sizes.requests)]
    yield [asks.post() for _ in range(sizes.requests)]
    yield [asks.get() for _ in range(sizes.requests)]


class Asks:
    def __init__(self, sizes, rng):
        self.now, self.rng, self.number = sizes.now, rng, 0
        self.last = {"users": sizes.users, "locations": sizes.locations, "visits": sizes.visits}
        self.touched = {kind: [1] for kind in self.last}

    def chance(self, share):
        return self.rng.random() < share

    def below(self, count):
        return int(self.rng.random() * count)

    def one_of(self, values):
        return values[self.below(len(values))]

    def an_id(self, kind):
        """The id of an entity; often of one that was changed before."""
        return self.one_of(self.touched[kind]) if self.chance(0.3) else 1 + self.below(self.last[kind])

    def not_an_id(self, kind):
        beyond = self.last[kind] + 1_000_000 + self.below(1000)
        return self.one_of([beyond, "abc", "1a", "-1", "1.0", "%20", 0, ID_MAX, ID_MAX + 1, 10**18, 10**30, "0x1"])

    def numbered(self, path, **query):
        """The target with a unique number of the request, which the server ignores."""
        self.number += 1
        query = {"query_id": self.number, **query}
        pairs = [f"{name}={value}" for name, value in query.items()]
        self.rng.shuffle(pairs)
        return f"{path}?{'&'.join(pairs)}"

    # ------------------------------------------------------------------------------------------------ reads

    def get(self):
        if self.chance(0.02):
            path = self.one_of(["/", "/user/1", "/users", "/users/", "/users/1/", "/users/1/visit", "/users/1/avg",
                                "/locations/1/visits", "/visits/1/visits", "/visits/1/avg", "/x/users/1", "/users/1/visits/"])  # fmt: skip
            return ["GET", self.numbered(path), None]
        kind = self.one_of(["users", "locations", "visits", "of_user", "of_user", "average", "average"])
        query = {}
        if kind == "of_user":
            kind, tail, query = "users", "/visits", self.filters(self.visits_filters())
        elif kind == "average":
            kind, tail, query = "locations", "/avg", self.filters(self.average_filters())
        else:
            tail = ""
        found = self.not_an_id(kind) if self.chance(0.04) else self.an_id(kind)
        return ["GET", self.numbered(f"/{kind}/{found}{tail}", **query), None]

    def filters(self, choices):
        """A random part of the filters; sometimes one of them has an invalid value."""
        names = [name for name in choices if self.chance(0.35)]
        query = {name: choices[name][0] for name in names}
        if names and self.chance(0.06):
            bad = self.one_of(names)
            query[bad] = self.one_of(choices[bad][1])
        return query

    def date(self):
        """A time from 2000 to 2015, often a midnight at which visits begin; sometimes one far outside."""
        at = 946684800 + self.below(15 * YEAR)
        if self.chance(0.5):
            at -= (at - 946684800) % (DAY * 180)
        return self.one_of([at] * 20 + [-5, 0, 4102444800, 10**12])

    def visits_filters(self):
        bad = ["", "abc", "1.5", "1e5", "0x10", "%20", "5%20", "--1", "1,2", "null"]
        country = self.one_of([*COUNTRIES, "Нигде", self.one_of(COUNTRIES).lower()])
        return {
            "fromDate": (self.date(), bad),
            "toDate": (self.date(), bad),
            "country": (self.one_of([quote, quote_plus])(country), ["%D0%9D%D0%B5%D1%82"]),
            "toDistance": (self.one_of([1 + self.below(110), 1 + self.below(110), 0, 10**10]), bad),
        }

    def average_filters(self):
        bad = ["", "abc", "1.5", "1e1", "0x10", "%20", "null"]
        return {
            "fromDate": (self.date(), bad),
            "toDate": (self.date(), bad),
            "fromAge": (self.one_of([self.below(70), 18 + self.below(50), 0, 500]), bad),
            "toAge": (self.one_of([self.below(70), 18 + self.below(50), 0, 500]), bad),
            "gender": (self.one_of(["m", "f"]), ["", "x", "M", "mf", "male", "0"]),
        }

    # ------------------------------------------------------------------------------------------------ writes

    def post(self):
        kind = self.one_of(["users", "locations", "visits", "visits"])
        if self.chance(0.02):
            path = self.one_of(["/", "/new", "/user/new", f"/{kind}/new/", f"/{kind}", f"/{kind}/1/new", "/users/1/visits"])
            return ["POST", self.numbered(path), self.text(self.entity(kind))]
        if self.chance(0.45):
            return ["POST", self.numbered(f"/{kind}/new"), self.new(kind)]
        found, body = self.an_id(kind), self.entity(kind)
        body = {name: value for name, value in body.items() if self.chance(0.5)} or body
        if self.chance(0.05):
            found = self.not_an_id(kind)
            return ["POST", self.numbered(f"/{kind}/{found}"), self.text(self.spoiled(kind, body, False) if self.chance(0.5) else body)]
        if self.chance(0.25):
            return ["POST", self.numbered(f"/{kind}/{found}"), self.text(self.spoiled(kind, body, False))]
        self.touched[kind].append(found)
        return ["POST", self.numbered(f"/{kind}/{found}"), self.text(body)]

    def new(self, kind):
        body = self.entity(kind)
        if self.chance(0.1):
            return self.text({**body, "id": self.an_id(kind)})
        if self.chance(0.25):
            return self.text(self.spoiled(kind, {**body, "id": self.last[kind] + 1}, True))
        self.last[kind] += 1
        self.touched[kind].append(self.last[kind])
        items = [*body.items(), ("id", self.last[kind])]
        self.rng.shuffle(items)
        return self.text(dict(items))

    def text(self, body):
        """A body as JSON in one of the forms that clients write."""
        if isinstance(body, str):
            return body
        return json.dumps(body, ensure_ascii=self.chance(0.5), indent=self.one_of([None, None, 1]))

    def entity(self, kind):
        """A valid entity: all fields except the id."""
        if kind == "users":
            self.number += 1
            long = f"{self.number}@" + "длинный." * 12
            born = self.one_of([self.below(40 * YEAR), -self.below(40 * YEAR), years_before(self.now, 18 + self.below(50))])
            # The fourth e-mail address belongs to a user, unless a change has replaced it.
            emails = [f"{self.number}.new@mail.ru"] * 3 + [email_of(self.an_id("users")), long[:100].ljust(100, "я")]
            return {
                "email": self.one_of(emails),
                "first_name": self.words(MEN),
                "last_name": self.words([begin + end for begin in LAST_BEGINS[:4] for end in LAST_ENDS_M]),
                "gender": self.one_of("mf"),
                "birth_date": born,
            }
        if kind == "locations":
            return {
                "place": self.one_of([self.words(SIGHTS)] * 8 + ["Место " * 300]),
                "country": self.words(COUNTRIES),
                "city": self.words([begin + end for begin in CITY_BEGINS[:4] for end in CITY_ENDS]),
                "distance": self.one_of([self.below(100), self.below(100), 0, ID_MAX]),
            }
        return {
            "location": self.an_id("locations"),
            "user": self.an_id("users"),
            "visited_at": min(max(self.date(), 0), 1420070400),
            "mark": self.below(6),
        }

    def words(self, choices):
        """One of the choices, or an unusual text, such as one of the maximum length: fifty characters, not bytes."""
        return self.one_of([self.one_of(choices)] * 8 + ["Ы" * 50, "🎡" * 50, "a", "\"\\\t</script>\u2028"])

    def spoiled(self, kind, body, is_new):
        """The body with one fault."""
        ways = [self.null, self.mistyped, self.out_of_range, self.not_json]
        if is_new:
            ways += [self.missing, self.missing]
        else:
            ways.append(lambda kind, body: {**body, "id": self.one_of([1, self.last[kind], "1", None])})
        if kind == "visits":
            ways.append(lambda kind, body: {**body, "user": self.last["users"] + 1_000_000})
            ways.append(lambda kind, body: {**body, "location": self.last["locations"] + 1_000_000})
        return self.one_of(ways)(kind, body)

    def null(self, kind, body):
        return {**body, self.one_of([*body]): None}

    def missing(self, kind, body):
        gone = self.one_of([*body])
        return {name: value for name, value in body.items() if name != gone}

    def mistyped(self, kind, body):
        name = self.one_of([*body])
        if isinstance(body[name], str):
            bad = [5, True, {}, [body[name]], False]
        else:
            bad = [str(body[name]), True, {}, [body[name]], "", body[name] + 0.5]
        return {**body, name: self.one_of(bad)}

    def out_of_range(self, kind, body):
        too_long = "Ы" * 51
        bad = {
            "users": [("email", "я" * 101), ("first_name", too_long), ("last_name", too_long), ("gender", "x"), ("gender", "")],
            "locations": [("country", too_long), ("city", too_long), ("distance", -1), ("distance", 2**32), ("distance", 1e300)],
            "visits": [("mark", 6), ("mark", -1), ("mark", 255), ("mark", 2**53), ("user", -1), ("location", 2**32)],
        }
        name, value = self.one_of(bad[kind])
        return {**body, name: value}

    def not_json(self, kind, body):
        whole = json.dumps(body)
        return self.one_of(["", whole[:-1], whole + "}", "[" + whole + "]", "null", "5", '"x"', "{", "id=5", "\x00"])
