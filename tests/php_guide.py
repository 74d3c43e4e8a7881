#!/usr/bin/env python3
"""Tests the code blocks of docs/guide/php.md and the applications in README.md: PHP with Veche\\Testing\\AppTester,
configurations with `veche check`, `nginx -t` and `php-fpm -t`, and commands in a shell. The binary is VECHE_BIN.

If a program is not installed, its blocks are skipped, which is reported.
"""

import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs/guide/php.md"
README = ROOT / "README.md"
TEMPLATE = ROOT / "crates/server/templates/php/app.php"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HANDLER = re.compile(r"^\$app->\w+\((fn|function)", re.MULTILINE)
TIMEOUT_S = 30
# Minimum number of code blocks by language. Fewer mean that this test does not find them in the guide.
ENOUGH = {"php": 8, "toml": 4, "nginx": 1, "ini": 1, "sh": 2}

REQUIRE = "require_once __DIR__ . '/veche.php';\n"
# Opens a connection, sends a message, and fails if a handler has logged anything.
DRIVER = """<?php
require_once __DIR__ . '/veche.php';
$tester = Veche\\Testing\\AppTester::load(__DIR__ . '/app.php');
$conn = $tester->open('/ws?user=ann', parameters: ['room' => '7']);
$conn->say('hello');
$tester->stop();
if ($conn->refusedWith !== null || $tester->log !== []) {
    fwrite(STDERR, "refused with $conn->refusedWith: " . implode("\\n", $tester->log));
    exit(1);
}
echo implode(' ', $conn->received());
"""
# The results of calls over the pools for MySQL, Redis and HTTP.
ANSWERS = """$tester->mysql = fn (string $database, string $sql) => 42;
$tester->redis = fn (string $database, array $words) => 1;
$tester->http = fn (string $method, string $url) => new Veche\\Pool\\HttpResponse(200, '2');
"""
# Replaces PDO, since not every PHP has MySQL. The first connection is lost at its second statement.
FAKE_PDO = """
final class Rows extends PDOStatement
{
    public function execute(?array $params = null): bool { return true; }
    public function fetchColumn(int $column = 0): mixed { return '42'; }
}
final class FakePdo extends PDO
{
    private static int $made = 0;
    private int $number;
    private int $statements = 0;
    public function __construct() { $this->number = ++self::$made; }
    public function prepare(string $query, array $options = []): PDOStatement|false
    {
        if ($this->number === 1 && ++$this->statements === 2) {
            $error = new PDOException('MySQL server has gone away');
            $error->errorInfo = ['HY000', 2006, ''];
            throw $error;
        }
        return new Rows();
    }
}
"""


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout, done.stderr


def fault(status, out, err):
    return None if status == 0 else f"status {status}: {out}{err}"


def program(code):
    """Makes a complete application of a code block."""
    if "Veche\\App::create()" in code:
        return "<?php\n" + code.removeprefix("<?php\n")
    if not HANDLER.search(code):
        code = f"$app->message(function (Veche\\Connection $conn, string $data) use ($app) {{\n{code}}});\n"
    return f"<?php\n{REQUIRE}$app = Veche\\App::create();\n{code}$app->run();\n"


def php(code, folder):
    shutil.copy(ROOT / "sdk/php/veche.php", folder)
    app = folder / "app.php"
    if "$tester" in code:
        shutil.copy(TEMPLATE, app)
        (folder / "test.php").write_text(f"<?php\n{REQUIRE}{code}")
        status, out, err = run(["php", "test.php"], folder)
        return fault(status, out, err) or (None if "hello" in out else f"printed {out}")
    if "new PDO(" in code:
        return database(code, folder)
    app.write_text(program(code))
    (folder / "driver.php").write_text(DRIVER.replace("$conn = ", ANSWERS + "$conn = ") if "$app->mysql(" in code else DRIVER)
    return fault(*run(["php", "driver.php"], folder))


def database(code, folder):
    """Tests that the second message is answered although its database connection has ended."""
    fake = re.sub(r"new PDO\([^)]*\)", "new FakePdo()", code)
    (folder / "app.php").write_text(program(fake + FAKE_PDO))
    driver = DRIVER.replace("$conn->say('hello');", "$conn->say('tea'); $conn->say('tea');")
    (folder / "driver.php").write_text(driver)
    status, out, err = run(["php", "driver.php"], folder)
    return fault(status, out, err) or (None if out == "42 42" else f"answered {out}")


def toml(code, folder):
    listeners = code.split("[[listen]]")[1:]
    if all("role" in listener for listener in listeners):
        code = f'[[listen]]\naddress = "127.0.0.1:8080"\n{code}'
    if "[[app]]" in code and "[[route]]" not in code:
        name = re.search(r'^name = "(\w+)"$', code, re.MULTILINE)[1]
        code += f'[[route]]\npath = "/ws"\nhandler = "app"\napp = "{name}"\n'
    (folder / "veche.toml").write_text(code)
    for name in ("api.key", "shop.password"):
        key = folder / name
        key.touch(0o600)
        key.write_text("guide-key-of-more-than-thirty-two-bytes\n")
    status, out, err = run([os.environ["VECHE_BIN"], "check", "-c", "veche.toml"], folder)
    return fault(status, out, err)


def nginx(code, folder):
    params = pathlib.Path("/etc/nginx/fastcgi_params")
    if shutil.which("nginx") is None or not params.is_file():
        return "skipped: nginx is not installed"
    shutil.copy(params, folder)
    code = code.replace("listen 80", f"listen unix:{folder}/nginx.sock")
    config = folder / "nginx.conf"
    config.write_text(f"error_log {folder}/log;\npid {folder}/pid;\nevents {{}}\nhttp {{ access_log off;\n{code}}}\n")
    return fault(*run(["nginx", "-t", "-p", str(folder), "-c", str(config)], folder))


def ini(code, folder):
    found = sorted(glob.glob("/usr/sbin/php-fpm*"))
    if not found:
        return "skipped: php-fpm is not installed"
    if not code.startswith("["):
        code = f"[settings]\nlisten = {folder}/x\npm = static\npm.max_children = 1\n" + "".join(
            "php_admin_value[{}] = {}\n".format(*map(str.strip, line.split("="))) for line in code.splitlines()
        )
    # The package's group does not exist on every machine.
    code = code.replace("/run/php", str(folder)).replace("listen.group = veche", "listen.group = www-data")
    (folder / "fpm.conf").write_text(f"[global]\nerror_log = {folder}/log\n{code}")
    return fault(*run([found[-1], "-R", "-t", "-y", "fpm.conf"], folder))


def sh(code, folder):
    """Runs the commands; instead of starting a server, `veche dev` checks the configuration."""
    binary = os.environ["VECHE_BIN"]
    shell = f'veche() {{ [ "$1" = dev ] && set -- check; "{binary}" "$@"; }}\nset -e\n'
    return fault(*run(["bash", "-c", shell + code], folder))


CHECKS = {"php": php, "toml": toml, "nginx": nginx, "ini": ini, "sh": sh}


def blocks():
    """Yields the location of each block, its language and its code."""
    for path in (GUIDE, README):
        text = path.read_text()
        for match in FENCE.finditer(text):
            language, code = match.groups()
            if language in CHECKS and (path == GUIDE or "Veche\\App" in code):
                yield f"{path.name}:{text.count(chr(10), 0, match.start()) + 1}, {language}", language, code


def main():
    counts = dict.fromkeys(CHECKS, 0)
    failed = 0
    for where, language, code in blocks():
        counts[language] += 1
        with tempfile.TemporaryDirectory(prefix="veche-guide-") as folder:
            why = CHECKS[language](code, pathlib.Path(folder))
        is_fault = why is not None and not why.startswith("skipped")
        failed += is_fault
        word = "FAILED " if is_fault else "ok     " if why is None else "SKIPPED"
        print(f"{word} {where}" if why is None else f"{word} {where}: {why.removeprefix('skipped: ')}")
    if TEMPLATE.read_text() not in GUIDE.read_text():
        failed += 1
        print("FAILED  php.md: its first application is not that of `veche new --template php`")
    for language, enough in ENOUGH.items():
        if counts[language] < enough:
            failed += 1
            print(f"FAILED  php.md: only {counts[language]} blocks of {language}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
