"""The servers of bench/php. All have handlers in PHP, with the same settings of PHP."""

import pathlib
import shutil
import subprocess

from harness import servers
from harness.running import VECHE, Running

SDK = servers.ROOT / "sdk/php/veche.php"

# Enables the JIT, which Debian's php.ini disables.
INI = ["-d", "opcache.enable_cli=1", "-d", "opcache.jit=tracing", "-d", "opcache.jit_buffer_size=64M"]

ECHO = """<?php
require '{sdk}';
$app = Veche\\App::create();
$app->message(fn (Veche\\Connection $conn, string $data, bool $isBinary)
    => $isBinary ? $conn->sendBinary($data) : $conn->send($data));
$app->run();
"""
SLEEP = """<?php
require '{sdk}';
$app = Veche\\App::create();
$app->message(function (Veche\\Connection $conn, string $data) {{
    usleep(5000);
    $conn->send($data);
}});
$app->run();
"""
CONFIG = """
[server]
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[app]]
name = "php"
{app}
[[route]]
path = "/php"
handler = "app"
app = "php"
[[route]]
path = "/echo"
handler = "echo"
"""
WORKERS = 'runtime = "php"\ncommand = [{command}]\nworkers = {workers}'
FASTCGI = 'runtime = "fastcgi"\naddress = "unix:{fpm}/fpm.sock"\nscript = "{fpm}/app.php"\nevents = ["message"]\nworkers = 4'

WORKERMAN = """<?php
spl_autoload_register(static function (string $class): void {{
    $file = '{folder}/src/' . strtr(substr($class, 10), '\\\\', '/') . '.php';
    if (str_starts_with($class, 'Workerman\\\\') && is_file($file)) {{
        require $file;
    }}
}});
use Workerman\\Worker;
Worker::$pidFile = __DIR__ . '/pid';
Worker::$logFile = __DIR__ . '/workerman.log';
$worker = new Worker('websocket://127.0.0.1:{port}');
$worker->count = 1;
$worker->onMessage = static fn ($connection, $data) => $connection->send($data);
Worker::runAll();
"""


class Family(Running):
    """A server whose processor time is the sum over all its processes. `pid` is the first process, and the tester adds
    the children."""

    tls = False
    echo_path = "/php"

    @property
    def pid(self):
        return self.child.pid

    def family(self):
        """Returns the ids of the process and all its descendants."""
        found = [self.child.pid]
        for pid in found:
            for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    found += map(int, children.read_text().split())
                except OSError:
                    pass  # a thread that ended meanwhile
        return found

    def cpu_ns(self):
        return sum(map(servers.cpu_ns, self.family()))


class Fpm(Running):
    """Debian's php-fpm on a socket."""

    def answers(self):
        return (self.folder / "fpm.sock").exists()


def veche(workers=1, script=ECHO, core=servers.SERVER_CORE):
    """Starts Veche with one worker thread and `workers` PHP processes."""
    server = Family(core)
    (server.folder / "app.php").write_text(script.format(sdk=SDK))
    command = ", ".join(f'"{word}"' for word in ["php", *INI, "app.php"])
    app = WORKERS.format(command=command, workers=workers)
    (server.folder / "veche.toml").write_text(CONFIG.format(port=server.port, app=app))
    return server.start(VECHE, "serve")


def fastcgi(backing):
    """Starts Veche with one worker thread in front of php-fpm. The processor time of php-fpm is not included."""
    server = Family(servers.SERVER_CORE)
    app = FASTCGI.format(fpm=backing.folder)
    (server.folder / "veche.toml").write_text(CONFIG.format(port=server.port, app=app))
    return server.start(VECHE, "serve")


def fpm():
    server = Fpm(servers.SERVER_CORE)
    (server.folder / "app.php").write_text(ECHO.format(sdk=SDK))
    (server.folder / "fpm.conf").write_text(
        f"[global]\ndaemonize = no\nerror_log = {server.folder}/fpm.log\n[www]\nlisten = {server.folder}/fpm.sock\n"
        "listen.mode = 0666\nlisten.backlog = 512\npm = static\npm.max_children = 4\nuser = root\ngroup = root\n")
    server.folder.chmod(0o755)
    binary = sorted(pathlib.Path("/usr/sbin").glob("php-fpm*"))[-1]
    return server.start(str(binary), "-R", "-F", *INI, "-y", str(server.folder / "fpm.conf"))


def workerman(folder, options):
    """Starts an echo server of Workerman in one process, from a folder with Workerman's sources. It echoes on any
    path."""
    server = Family(servers.SERVER_CORE)
    (server.folder / "app.php").write_text(WORKERMAN.format(folder=folder, port=server.port))
    return server.start("php", *INI, *options, "app.php", "start")


def settings(options=()):
    """Returns the settings that PHP reports with these options."""
    code = "echo PHP_VERSION, ', opcache ', ini_get('opcache.enable_cli') ? 'on' : 'off', ', JIT ', ini_get('opcache.jit');" \
        "foreach (['event', 'ev'] as $one) { if ($v = phpversion($one)) { echo \", ext-$one $v\"; } }"
    done = subprocess.run(["php", *INI, *options, "-r", code], capture_output=True, text=True)
    return done.stdout.strip()


# Measures the baseline: round trips over a socket pair between two otherwise idle PHP processes, with a request as long
# as the frame of an event and a response as long as the frame of its answer. ROUNDS round trips are timed, with a pause
# before each.
PAIR = """
[$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
foreach ([$ours, $theirs] as $one) { stream_set_read_buffer($one, 0); stream_set_write_buffer($one, 0); }
if (pcntl_fork() === 0) {
    fclose($ours);
    $answer = str_repeat('y', 92);
    while (($read = fread($theirs, 262144)) !== '' && $read !== false) { fwrite($theirs, $answer); }
    exit;
}
fclose($theirs);
$event = str_repeat('x', 124);
$took = [];
for ($i = -20; $i < ROUNDS; $i++) {
    usleep(PAUSE);
    $began = hrtime(true);
    fwrite($ours, $event);
    fread($ours, 262144);
    if ($i >= 0) { $took[] = hrtime(true) - $began; }
}
sort($took);
echo $took[intdiv(count($took), 2)];
"""


def pair_us(rounds, pause_us):
    """Returns the median duration of such a round trip in microseconds."""
    code = PAIR.replace("ROUNDS", str(rounds)).replace("PAUSE", str(pause_us))
    command = ["taskset", "-c", servers.SERVER_CORE, "php", *INI, "-r", code]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1000


def is_present():
    return shutil.which("php") is not None
