#!/usr/bin/env python3
"""Tests HTTP/1.x of Veche over raw sockets: the cases of http_cases.py, each sent at once and byte by byte, and further
checks that do not fit into the table, such as timeouts, conditional requests and bytes after an upgrade.

    http_suite.py [--io epoll|io_uring|delayed] [WORD…]     only cases whose name contains a WORD
"""

import argparse
import base64
import hashlib
import os
import sys
import time

import veche
from exchange import Exchange, Malformed
from http_cases import CASES, CLOSED, GET, HEALTH, KEPT, get, is_internal, post, sized, upgrade

CONFIG = """
[server]
workers = 1
io = "{io}"
log = "warn"

[[listen]]
address = "127.0.0.1:{port}"
hosts = ["*"]

[[listen]]
address = "127.0.0.1:{internal_port}"
role = "internal"
hosts = ["*"]

[[route]]
path = "/echo"
handler = "echo"

[[route]]
path = "/*"
handler = "static"
root = "{folder}/www"

[limits]
header_timeout = "1s"
handshake_timeout = "1s"

[api]
keys = ["a-key-for-the-suite"]
"""

HELLO = b"Hello, world!\n"
SECRET = b"not for you"


def check(server, data, statuses, after, by_byte):
    """Sends `data`; returns the error in the responses, or None."""
    internal = is_internal(data)
    with Exchange(server.internal_port if internal else server.port) as exchange:
        exchange.send(data, by_byte)
        methods = [data.split(b" ", 1)[0].decode("latin-1")] + ["GET"] * len(statuses)
        for number, status in enumerate(statuses):
            wanted = status if isinstance(status, set) else {status}
            response = exchange.response(methods[number])
            while response is not None and response.status == 100:
                response = exchange.response(methods[number])
            got = response.status if response else "the end of the connection"
            if got not in wanted:
                return f"answer {number + 1} is {got}, not {' or '.join(map(str, sorted(wanted)))}"
            if got == 405 and not response.headers.get("allow"):
                return "405 without Allow (RFC 9110 section 15.5.6)"
            if SECRET in response.body:
                return "a file from outside of the root"
            if "x-split" in response.headers:
                return "a header from the request's target"
            if got >= 400 and after == CLOSED and response.headers.get("connection", "").lower() != "close":
                return "closes without saying so"
        if after == CLOSED and not exchange.closed():
            return "the connection stays open, or more came than was asked for"
        if after == KEPT:
            exchange.send(HEALTH if internal else GET)
            response = exchange.response()
            if response is None or response.status != 200 or not (internal or response.body == HELLO):
                return "the connection does not serve the next request"
    return None


def check_head(server):
    """The response to HEAD has the headers of GET and no body."""
    with Exchange(server.port) as exchange:
        exchange.send(get(method=b"HEAD") + GET)
        head, full = exchange.response("HEAD"), exchange.response()
        if head.headers.get("content-length") != str(len(HELLO)) or full.body != HELLO:
            return f"HEAD says {head.headers.get('content-length')}, GET has {len(full.body)}"
        if head.headers.get("etag") != full.headers.get("etag"):
            return "another ETag"
    return None


def check_ten(server):
    """An HTTP/1.0 client that requests keep-alive gets `Connection: keep-alive`."""
    with Exchange(server.port) as exchange:
        exchange.send(get(b"Connection: keep-alive", version=b"HTTP/1.0"))
        response = exchange.response()
        if response.headers.get("connection", "").lower() != "keep-alive":
            return "no Connection: keep-alive"
    return None


def check_conditional(server):
    """A matching ETag or date gets 304, any other gets 200; `If-None-Match` takes precedence over the date (RFC 9110
    section 13.2.2)."""
    with Exchange(server.port) as exchange:
        exchange.send(GET)
        response = exchange.response()
        tag, date = response.headers.get("etag"), response.headers.get("last-modified")
        if not tag or not date or not response.headers.get("content-type", "").startswith("text/plain"):
            return f"ETag {tag}, Last-Modified {date}, Content-Type {response.headers.get('content-type')}"
        tag, date = tag.encode(), date.encode()
        rows = [
            (b"If-None-Match: " + tag, 304),
            (b'If-None-Match: "other", ' + tag, 304),
            (b"If-None-Match: *", 304),
            (b'If-None-Match: "other"', 200),
            (b"If-Modified-Since: " + date, 304),
            (b"If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 200),
            (b"If-Modified-Since: nonsense", 200),
            (b'If-None-Match: "other"\r\nIf-Modified-Since: ' + date, 200),
        ]
        for header, status in rows:
            exchange.send(get(header))
            response = exchange.response()
            if response.status != status or response.body not in (b"", HELLO):
                return f"{header.decode()}: {response.status}, not {status}"
    return None


def check_continue(server):
    """The server sends 100 before it has received the body, and only once."""
    request = post(b"Content-Length: 28", b"Expect: 100-continue")
    with Exchange(server.internal_port) as exchange:
        exchange.send(request)
        if exchange.response().status != 100:
            return "no 100 before the body"
        exchange.send(b'{"user":"nobody","data":"x"}')
        if exchange.response("POST").status != 200:
            return "no 200 after the body"
    return None


def check_upgrade(server):
    """The response 101 has the right `Sec-WebSocket-Accept`; a frame sent in the same packet as the request is
    echoed."""
    with Exchange(server.port) as exchange:
        frame = bytes([0x81, 0x85, 1, 2, 3, 4]) + bytes(b ^ k for b, k in zip(b"hello", [1, 2, 3, 4, 1]))
        exchange.send(upgrade() + frame)
        response = exchange.response()
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        wanted = base64.b64encode(hashlib.sha1(b"dGhlIHNhbXBsZSBub25jZQ==" + guid).digest()).decode()
        if response.status != 101 or response.headers.get("sec-websocket-accept") != wanted:
            return "a wrong 101"
        if exchange._exactly(7) != b"\x81\x05hello":
            return "no echo of the frame behind the handshake"
    return None


def check_version(server):
    """The response to an unknown WebSocket version names the supported version (RFC 6455 section 4.4)."""
    with Exchange(server.port) as exchange:
        exchange.send(upgrade(b"Sec-WebSocket-Version: 7", without=b"Sec-WebSocket-Version"))
        response = exchange.response()
        if response.headers.get("sec-websocket-version") != "13":
            return "no Sec-WebSocket-Version: 13"
    return None


def timed_out(port, data, statuses):
    with Exchange(port, timeout_s=8) as exchange:
        started = time.monotonic()
        exchange.send(data)
        response = exchange.response()
        seconds = time.monotonic() - started
        got = response.status if response else None
        if got not in statuses:
            return f"{got}, not {statuses}"
        if not 0.7 <= seconds <= 5:
            return f"after {seconds:.1f} s, header_timeout is 1 s"
        if response and not exchange.closed():
            return "the connection stays open"
    return None


def check_slow_head(server):
    """A client that stops within the head of a request gets 408."""
    return timed_out(server.port, GET[:20], {408})


def check_slow_drip(server):
    """A head that arrives byte by byte does not extend the deadline."""
    with Exchange(server.port, timeout_s=8) as exchange:
        started = time.monotonic()
        for byte in GET[:60]:
            exchange.send(bytes([byte]))
            time.sleep(0.25)
            if time.monotonic() - started > 3:
                break
        response = exchange.response()
        if response is None or response.status != 408:
            return f"{response and response.status}, not 408"
    return None


def check_slow_body(server):
    """A client that stops within the body of a request gets 408."""
    return timed_out(server.internal_port, sized()[:-5], {408})


def check_silence(server):
    """A client that sends nothing is disconnected, with or without a 408."""
    return timed_out(server.port, b"", {408, None})


CHECKS = [
    check_head,
    check_ten,
    check_conditional,
    check_continue,
    check_upgrade,
    check_version,
    check_slow_head,
    check_slow_drip,
    check_slow_body,
    check_silence,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--io", default=os.environ.get("VECHE_TEST_IO", "epoll"))
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    config = CONFIG.replace("{io}", arguments.io)
    started = time.monotonic()
    with veche.Veche(config, {"www/hello.txt": HELLO, "www/sub/a.html": b"<p>a", "secret.txt": SECRET}) as server:
        (server.folder / "www/out").symlink_to(server.folder / "secret.txt")
        passed, failed = run(server, arguments.words)
        if server.panicked():
            failed += 1
            print(f"veche panicked:\n{server.log_tail()}")
    seconds = time.monotonic() - started
    print(f"HTTP, io {arguments.io}: {passed} passed, {failed} failed in {seconds:.0f} s")
    return 1 if failed else 0


def run(server, words):
    passed = failed = 0

    def wanted(name):
        return not words or any(word in name for word in words)

    def count(name, check, *arguments):
        nonlocal passed, failed
        try:
            problem = check(*arguments)
        except (Malformed, OSError) as error:
            problem = str(error)
        if problem:
            failed += 1
            print(f"FAILED {name}: {problem}")
        else:
            passed += 1

    for name, data, statuses, after in CASES:
        if wanted(name):
            count(name, check, server, data, statuses, after, False)
            # Long inputs are not sent byte by byte, which would take long and test nothing more.
            if len(data) < 2000:
                count(f"{name}, byte by byte", check, server, data, statuses, after, True)
    for function in CHECKS:
        name = function.__name__.removeprefix("check_").replace("_", " ")
        if wanted(name):
            count(name, function, server)
    return passed, failed


if __name__ == "__main__":
    sys.exit(main())
