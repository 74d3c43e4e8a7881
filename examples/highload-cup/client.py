"""An HTTP connection that checks every byte of its responses."""

import collections
import socket


class Answer:
    def __init__(self, status, headers, body, is_last):
        self.status, self.headers, self.body, self.is_last = status, headers, body, is_last


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.is_closing, self.is_over = b"", False, False
        self.asked = collections.deque()

    def send(self, method, target, body, closing):
        """Sends a request. `closing`: it is the last one of this connection."""
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n"
        if closing:
            head += "Connection: close\r\n"
        content = b""
        if body is not None:
            content = body.encode()
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        self.is_closing = closing
        self.asked.append(closing)
        self.socket.sendall(head.encode() + b"\r\n" + content)

    def more(self):
        received = self.socket.recv(1 << 16)
        self.buffer += received
        return received

    def receive(self):
        """The next answer. Errors: ValueError if the received bytes are not a valid answer; OSError if none arrives."""
        while b"\r\n\r\n" not in self.buffer:
            if not self.more():
                raise ConnectionError("it was closed without an answer")
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        version, status, _ = first.split(" ", 2)
        if version != "HTTP/1.1":
            raise ValueError(f"the first line is {first!r}")
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            if name.lower() in headers:
                raise ValueError(f"{name} comes twice")
            headers[name.lower()] = value
        if not headers.get("content-length", "").isdecimal() or "transfer-encoding" in headers:
            raise ValueError(f"no Content-Length: {head!r}")
        length = int(headers["content-length"])
        while len(self.buffer) < length:
            if not self.more():
                raise ValueError(f"it was closed after {len(self.buffer)} of {length} bytes of a body")
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        is_last = self.asked.popleft()
        if is_last:
            self.is_over = True
            if self.buffer or self.more():
                raise ValueError(f"behind the last answer comes {self.buffer[:200]!r}")
        return Answer(int(status), headers, body, is_last)

    def left(self):
        """The received bytes that belong to no request."""
        self.socket.setblocking(False)
        try:
            self.more()
        except OSError:
            pass
        return self.buffer

    def close(self):
        self.socket.close()
