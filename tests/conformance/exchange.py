"""A raw HTTP connection for tests: sends bytes, reads responses with a strict parser, and checks whether the connection
stays open."""

import socket
import time


class Malformed(Exception):
    """The server's bytes are not a well-formed response."""


class Response:
    """A response: its status, its headers by name in lower case, and its body."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class Exchange:
    """A connection to a server on this machine."""

    def __init__(self, port, timeout_s=5.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data, by_byte=False):
        try:
            if by_byte:
                for index in range(len(data)):
                    self.socket.sendall(data[index : index + 1])
            else:
                self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server refused the request early; its response, if any, is read later

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        except socket.timeout:
            raise Malformed(f"no answer in time, only {self.buffer[:80]!r}") from None
        self.buffer += data
        return bool(data)

    def _until(self, mark):
        while mark not in self.buffer:
            if not self._more():
                return None
        piece, self.buffer = self.buffer.split(mark, 1)
        return piece

    def _exactly(self, count):
        while len(self.buffer) < count:
            if not self._more():
                raise Malformed(f"body ends after {len(self.buffer)} of {count} bytes")
        piece, self.buffer = self.buffer[:count], self.buffer[count:]
        return piece

    def response(self, method="GET"):
        """Returns the response to a request with this method, or None if the connection ends instead."""
        head = self._until(b"\r\n\r\n")
        if head is None:
            if self.buffer:
                raise Malformed(f"ends in the middle of {self.buffer[:80]!r}")
            return None
        lines = head.decode("latin-1").split("\r\n")
        parts = lines[0].split(" ", 2)
        if len(parts) != 3 or parts[0] != "HTTP/1.1" or not parts[1].isdigit():
            raise Malformed(f"status line {lines[0]!r}")
        status, headers = int(parts[1]), {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip() or any(c in value for c in "\r\n\0"):
                raise Malformed(f"header line {line!r}")
            if name.lower() in headers and name.lower() in ("content-length", "transfer-encoding", "connection"):
                raise Malformed(f"two {name}")
            headers[name.lower()] = value.strip()
        return Response(status, headers, self._body(method, status, headers))

    def _body(self, method, status, headers):
        if method == "HEAD" or status < 200 or status in (204, 304):
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(self._until(b"\r\n").split(b";")[0], 16)
                piece = self._exactly(size + 2)
                if not piece.endswith(b"\r\n"):
                    raise Malformed("a chunk without its end")
                body += piece[:-2]
                if size == 0:
                    return body
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]))
        while self._more():
            pass
        body, self.buffer = self.buffer, b""
        return body

    def closed(self, within_s=3.0):
        """Returns whether the server ends the connection in time, without sending another byte."""
        self.socket.settimeout(within_s)
        try:
            while True:
                data = self.socket.recv(65536)
                if not data:
                    return not self.buffer
                self.buffer += data
        except ConnectionResetError:
            return not self.buffer
        except socket.timeout:
            return False

    def seconds_until_closed(self, at_most_s):
        started = time.monotonic()
        return time.monotonic() - started if self.closed(at_most_s) else None
