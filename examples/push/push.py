#!/usr/bin/env python3
"""A back end in Python, with the standard library alone, both ways.

    python3 push.py tester01 "hello"            one line of JSON over TCP
    python3 push.py --http tester01 "hello"     the HTTP API

Exits with 1 when Veche is not there or refuses.
"""

import argparse
import json
import os
import socket
import sys
import urllib.error
import urllib.request

PUSH = os.environ.get("VECHE_PUSH", "127.0.0.1:1234")
API = os.environ.get("VECHE_API", "http://127.0.0.1:8081/api")
KEY = os.environ.get("VECHE_KEY", "demo")
TIMEOUT_S = 2.0


class Refused(Exception):
    """Veche understood, and said no."""


def push_by_line(user, message):
    """One JSON object a line. With "ack" Veche answers with a line of its own."""
    host, port = PUSH.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as veche:
        veche.sendall(json.dumps({"user": user, "data": message, "ack": True}).encode() + b"\n")
        return handed(json.loads(veche.makefile().readline() or "{}"))


def push_by_http(user, data):
    """The same as POST /api/push."""
    request = urllib.request.Request(
        f"{API}/push",
        data=json.dumps({"user": user, "data": data}).encode(),
        headers={"Content-Type": "application/json", "X-API-Key": KEY},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return handed(json.load(answer))
    except urllib.error.HTTPError as error:
        raise Refused(f"HTTP {error.code}") from error


def handed(answer):
    """To how many connections Veche handed the push; None if it does not know (with Redis)."""
    if "result" not in answer:
        raise Refused(answer.get("error", {}).get("message", "no answer"))
    return answer["result"].get("handed")


def main():
    parser = argparse.ArgumentParser(description="Pushes a message to a user's browsers.")
    parser.add_argument("--http", action="store_true", help="by the HTTP API instead of the TCP line")
    parser.add_argument("user")
    parser.add_argument("message")
    given = parser.parse_args()
    push = push_by_http if given.http else push_by_line
    try:
        count = push(given.user, given.message)
        print("published" if count is None else f"handed to {count}")
    except (Refused, OSError, ValueError) as error:
        sys.exit(f"not pushed: {error}")


if __name__ == "__main__":
    main()
