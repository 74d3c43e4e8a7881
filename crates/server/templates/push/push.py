#!/usr/bin/env python3
"""Pushes a message to all connections of a user, with the standard library alone: python3 push.py tester01 "hello"."""

import json
import os
import pathlib
import sys
import urllib.request

API = os.environ.get("VECHE_API", "http://127.0.0.1:8081/api")
KEY = (pathlib.Path(__file__).parent / "api.key").read_text().strip()


def push(user, data):
    """Returns to how many connections Veche handed the message, or None if it does not know (with Redis)."""
    request = urllib.request.Request(
        f"{API}/push",
        data=json.dumps({"user": user, "data": data}).encode(),
        headers={"Content-Type": "application/json", "X-API-Key": KEY},
    )
    with urllib.request.urlopen(request, timeout=2) as response:
        answer = json.load(response)
    if "error" in answer:
        raise ValueError(answer["error"]["message"])
    return answer["result"].get("handed")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python3 push.py USER MESSAGE")
    try:
        handed = push(*sys.argv[1:])
        print("published" if handed is None else f"handed to {handed}")
    except (OSError, ValueError) as error:
        sys.exit(f"not pushed: {error}")
