"""Runs the code blocks of documents that push to tester01, against a real server.

    python3 snippets.py ../README.md ../docs/guide/push.md

Blocks of PHP and Python are run as programs. Blocks of shell commands are run only if each line is a push. The
addresses of the demo's configuration are replaced by those in VECHE_API and VECHE_PUSH; nothing else is changed.
"""

import json
import os
import pathlib
import re
import select
import subprocess
import sys
from urllib.parse import urlsplit

FENCE = re.compile(r"^( *)```(php|python|sh)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PUSHES = re.compile(r"^(curl |printf |veche push --address 127\.0\.0\.1:1234 --user tester01 'hello'$)")
ENOUGH_BLOCKS = 8  # if there are fewer, this test no longer recognises the blocks of the documents
TIMEOUT_S = 10

# Replaces `nc -w 1`, which waits for a second at its end and is not installed on every machine.
SHELL = f"""
nc() {{ cat > "/dev/tcp/${{@: -2:1}}/${{@: -1}}"; }}
veche() {{ "{os.environ["VECHE_BIN"]}" "$@" -c "{os.environ["VECHE_CONFIG"]}"; }}
set -e -o pipefail
"""
PROGRAMS = {
    "php": lambda code: ["php", "-r", code],
    "python": lambda code: ["python3", "-c", code],
    "sh": lambda code: ["bash", "-c", SHELL + code],
}


def blocks(path):
    """Yields the location, the language and the code of each block that pushes to tester01."""
    text = path.read_text()
    for match in FENCE.finditer(text):
        indent, language, code = match.groups()
        code = re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
        pushes = language != "sh" or all(PUSHES.match(line) for line in code.splitlines())
        if "tester01" in code and pushes:
            yield f"{path.name}:{text.count(chr(10), 0, match.start()) + 1}", language, code


def here(code):
    """Replaces the demo's addresses in the code by those of this server."""
    host, port = os.environ["VECHE_PUSH"].split(":")
    code = code.replace("127.0.0.1:8081", urlsplit(os.environ["VECHE_API"]).netloc)
    code = code.replace("127.0.0.1:1234", f"{host}:{port}")
    return code.replace('("127.0.0.1", 1234)', f'("{host}", {port})').replace("127.0.0.1 1234", f"{host} {port}")


def read_line(stream):
    """Returns the next line, or None if none arrives in time. The stream is unbuffered, so that `select` sees every
    line."""
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([stream], [], [], TIMEOUT_S)[0]:
            return None
        byte = os.read(stream.fileno(), 1)
        if not byte:
            return None
        line += byte
    return line.decode().strip()


def fault(language, code):
    """Returns the reason why a block fails, or None."""
    listener = [sys.executable, str(pathlib.Path(__file__).with_name("listen_once.py")), os.environ["VECHE_URL"], "tester01"]
    with subprocess.Popen(listener, stdout=subprocess.PIPE, bufsize=0) as client:
        try:
            if read_line(client.stdout) != "open":
                return "the client did not connect"
            done = subprocess.run(
                PROGRAMS[language](here(code)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            if done.returncode != 0 or "error" in done.stdout:
                return f"status {done.returncode}: {done.stdout}{done.stderr}"
            wanted = len(code.splitlines()) if language == "sh" else 1
            arrived = [read_line(client.stdout) for _ in range(wanted)]
            good = [json.dumps("hello"), json.dumps('{"order":42}')]
            return None if all(line in good for line in arrived) else f"arrived: {arrived}"
        finally:
            client.terminate()


def main():
    failed = 0
    found = [block for name in sys.argv[1:] for block in blocks(pathlib.Path(name))]
    for where, language, code in found:
        why = fault(language, code)
        failed += why is not None
        print(f"ok      {where}, {language}" if why is None else f"FAILED  {where}, {language}: {why}")
    if len(found) < ENOUGH_BLOCKS:
        sys.exit(f"FAILED  only {len(found)} blocks found")
    sys.exit(1 if failed else 0)


main()
