#!/usr/bin/env python3
"""redis_rows.py PORT FILE ROWS: the first visits of a file as hashes v:ID, with sorted sets u:USER and l:LOCATION of ids
by visited_at. Prints a line of JSON; memory is that of the Redis server, as the kernel counts it."""

import json
import pathlib
import socket
import sys
import time

PIECE = 5000


def command(*words):
    encoded = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.replies = self.socket.makefile("rb")

    def pipeline(self, commands):
        self.socket.sendall(b"".join(commands))
        return [self.reply() for _ in commands]

    def reply(self):
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return self.replies.read(int(rest) + 2)[:-2].decode() if rest != b"-1" else None
        if kind == b"-":
            raise SystemExit(f"redis: {rest}")
        return int(rest) if kind == b":" else rest.decode()

    def info(self, field):
        (text,) = self.pipeline([command("INFO")])
        return next(line.split(":")[1] for line in text.split("\r\n") if line.startswith(field + ":"))


def main():
    redis, file, rows = Redis(int(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    pid = redis.info("process_id")

    def memory(name):
        return 1024 * int(pathlib.Path(f"/proc/{pid}/status").read_text().split(name + ":")[1].split()[0])

    def load(commands_of):
        count, waiting = 0, []
        with open(file) as lines:
            next(lines)
            for line in lines:
                if count == rows:
                    break
                count += 1
                waiting += commands_of(*line.rstrip().split(","))
                if len(waiting) >= PIECE:
                    redis.pipeline(waiting)
                    waiting = []
        redis.pipeline(waiting)
        return count

    def row(visit, location, user, visited_at, mark):
        return [command("HSET", "v:" + visit, "location", location, "user", user, "visited_at", visited_at, "mark", mark)]

    def indexes(visit, location, user, visited_at, mark):
        return [command("ZADD", "u:" + user, visited_at, visit), command("ZADD", "l:" + location, visited_at, visit)]

    before, started = memory("VmRSS"), time.monotonic()
    count = load(row)
    with_rows = memory("VmRSS")
    load(indexes)
    with_indexes = memory("VmRSS")
    order = marks = 0
    for key in range(1, 1001):
        of_user, of_location = redis.pipeline([command("ZRANGE", f"u:{key}", 0, -1, "WITHSCORES"), command("ZRANGE", f"l:{key}", 0, -1)])
        order += sum((place + 1) * int(at) for place, at in enumerate(of_user[1::2]))
        marks += sum(key * int(mark) for mark in redis.pipeline([command("HGET", f"v:{visit}", "mark") for visit in of_location]))
    answer = {"rows": count, "before": before, "with_rows": with_rows, "with_indexes": with_indexes, "highest": memory("VmHWM")}
    print(json.dumps(answer | {"cpu_s": float(redis.info("used_cpu_user")), "order": order, "marks": marks}))


if __name__ == "__main__":
    main()
