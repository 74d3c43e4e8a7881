#!/usr/bin/env python3
"""Runs the back ends of examples/push-backends/php against real servers, with the handlers in Lua and with those in
PHP: each pushed message must reach the user, and invalid requests must get an error. The binary is VECHE_BIN.
"""

import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples/push-backends"
PROGRAMS = EXAMPLE / "php"
WAIT_S = 20
FRAME = '{"command":"update_data","user":"tester01"}'
# Each row: a program and its arguments, the path of the user, the expected output and message.
PUSHES = [
    (["workerman.php", "tester01", "test вече"], "/", "handed to 1", "test вече"),
    (["hoa.php", "tester01", "111111"], "/", "sent", "111111"),
    (["ratchet.php", "tester01", "update_data"], "/", "sent", "New data!"),
    (["swoole.php", "tester01"], "/swoole", "sent", FRAME),
]
REFUSED = [
    (["ratchet.php", "tester01", "nonsense"], "no such command"),
    (["hoa.php", "", "111111"], "user"),
]


class Server:
    """A server with a configuration of the example on free ports."""

    def __init__(self, name):
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        public, internal, push = (each.getsockname()[1] for each in held)
        for each in held:
            each.close()
        self.folder = tempfile.TemporaryDirectory(prefix="veche-backends-")
        config = (EXAMPLE / name).read_text()
        for old, new in ((8080, public), (8081, internal), (1234, push)):
            config = config.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        # The handlers need files beside them, such as the SDK, so the config refers to the handlers
        # in the example's folder.
        config = config.replace('"handlers/', f'"{EXAMPLE}/handlers/').replace('script = "', f'script = "{EXAMPLE}/')
        path = pathlib.Path(self.folder.name) / "veche.toml"
        path.write_text(config)
        self.log = path.with_name("log")
        command = [os.environ["VECHE_BIN"], "serve", "-c", str(path)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.environment = os.environ | {
            "VECHE_PUBLIC": f"ws://127.0.0.1:{public}",
            "VECHE_INTERNAL": f"ws://127.0.0.1:{internal}",
            "VECHE_PUSH": f"127.0.0.1:{push}",
        }
        self.wait(f"http://127.0.0.1:{internal}/health")

    def wait(self, url):
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                urllib.request.urlopen(url, timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(2):  # the second signal ends the server at once
            self.process.terminate()
            time.sleep(0.2)
        self.process.wait()
        self.folder.cleanup()

    def run(self, arguments):
        done = subprocess.run(
            ["php", *arguments], cwd=PROGRAMS, env=self.environment, capture_output=True, text=True, timeout=WAIT_S,
            check=False,
        )
        return done.stdout + done.stderr

    def user(self, path):
        command = ["php", "user.php", "tester01", path]
        return subprocess.Popen(command, cwd=PROGRAMS, env=self.environment, stdout=subprocess.PIPE, bufsize=0)


def line(stream, wait):
    """Returns the next line, or None if none arrives in time."""
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([stream], [], [], wait)[0]:
            return None
        byte = os.read(stream.fileno(), 1)
        if not byte:
            return None
        text += byte
    return text.decode().rstrip("\n")


def push(server, arguments, path, printed, arrives):
    """Runs a program that pushes to a user. Returns the problem, or None."""
    with server.user(path) as user:
        try:
            deadline = time.monotonic() + WAIT_S
            while True:
                # The server does not report when the user is connected, so the program is run again
                # until its message arrives.
                out = server.run(arguments).strip()
                arrived = line(user.stdout, 0.3)
                if arrived is not None or time.monotonic() > deadline:
                    break
            is_right = out == printed and arrived == arrives
            return None if is_right else f"printed {out!r}, arrived {arrived!r}"
        finally:
            user.kill()


def main():
    failed = 0
    for config in ("veche.toml", "php.toml"):
        with Server(config) as server:
            results = [(arguments[0], push(server, arguments, *more)) for arguments, *more in PUSHES]
            for arguments, why in REFUSED:
                out = server.run(arguments)
                is_right = out.startswith("refused: ") and why in out
                results.append((f"{arguments[0]}, refused", None if is_right else f"printed {out!r}"))
            log = server.log.read_text()
            results.append(("log", log if "ERROR" in log else None))
        for name, why in results:
            failed += why is not None
            print(f"ok      {config}, {name}" if why is None else f"FAILED  {config}, {name}: {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
