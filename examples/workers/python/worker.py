"""A worker in Python without a library: it echoes messages. The wire is docs/reference/runtime-protocol.md."""

import json
import socket
import struct
import sys
import traceback
from urllib.parse import parse_qs

PREFIX = struct.Struct("<II")  # the lengths of a frame's head and payload
veche = socket.socket(fileno=3)
reader = veche.makefile("rb")


def read():
    """Returns the next frame: its head and its payload. At the end of the stream both are None."""
    prefix = reader.read(PREFIX.size)
    if len(prefix) < PREFIX.size:
        return None, None
    head, payload = PREFIX.unpack(prefix)
    frame = reader.read(head + payload)
    return (json.loads(frame[:head]), frame[head:]) if len(frame) == head + payload else (None, None)


def write(head, payload=b""):
    head = json.dumps(head).encode()
    veche.sendall(PREFIX.pack(len(head), len(payload)) + head + payload)


# Each handler takes an event's head and payload, and returns the head and payload of its answer.
def on_open(event, _):
    query = parse_qs(event["request"].get("query", ""))
    return ({"reply": {"user": query["user"][0]}} if "user" in query else {}), b""


def on_message(event, data):
    return {"effects": [{"effect": "send", "data_kind": event["data_kind"], "data": 0}]}, data


def on_request(event, data):
    body = json.dumps({"path": event["request"]["path"], "bytes": len(data)}).encode()
    return {"reply": {"headers": [["Content-Type", "application/json"]], "body": 0}}, body


handlers = {"open": on_open, "message": on_message, "request": on_request}
write({"type": "hello", "versions": [1], "sdk": "python", "events": list(handlers)})
welcome, _ = read()
if welcome is None or welcome["type"] != "welcome":
    sys.exit(f"not welcome: {welcome}")
while (frame := read())[0] is not None:
    head, payload = frame
    if head["type"] == "event":
        try:
            answer, data = handlers[head["event"]](head, payload)
        except Exception:
            answer, data = {"failed": traceback.format_exc()}, b""
        write({"type": "answer", "id": head["id"]} | answer, data)
    elif head["type"] != "cancel":
        sys.exit(f"a frame of an unknown type: {head['type']}")
