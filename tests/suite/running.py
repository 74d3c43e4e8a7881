"""Runs one step in a process group, writes its log, ends it at its time limit, and measures its processor time."""

import dataclasses
import os
import shlex
import signal
import subprocess
import threading
import time

from .schedule import IDLE

# Seconds between SIGTERM and SIGKILL.
PATIENCE = 5


@dataclasses.dataclass
class Ended:
    """How a step ended."""

    status: int
    output: str
    began: float
    # Wall time and processor time, in seconds.
    took: float
    cpu: float


class Runner:
    """Runs steps, each in a process group of its own, and can end all of them."""

    def __init__(self, root, logs):
        self.root, self.logs = root, logs
        # Binaries by name, once they are built.
        self.binaries = {}
        self._running = set()
        self._lock = threading.Lock()

    def log_of(self, step):
        name = step.name.replace("::", "-").replace(" ", "-")
        return self.logs / step.group.replace(" ", "-") / f"{name}.log"

    def run(self, step):
        """Runs a step until its end. The step's output goes to its log."""
        command, folder, environment = step.command, self.root, os.environ | step.environment
        if step.binary:
            binary = self.binaries[step.binary]
            command, folder = f"exec {shlex.quote(binary.executable)} {step.command}", binary.folder
            environment |= binary.environment()
        log = self.log_of(step)
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with log.open("wb") as output:
            child = subprocess.Popen(
                laid_back(command) if step.place == IDLE else command, shell=True, cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                **({"start_new_session": True} if step.place == IDLE else {"process_group": 0}),
            )  # fmt: skip
        with self._lock:
            self._running.add(child.pid)
        late = threading.Event()
        timer = threading.Timer(step.limit, lambda: (late.set(), end([child.pid])))
        timer.start()
        # Unlike child.wait(), wait4 returns the processor time of the step and its children.
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        with self._lock:
            self._running.discard(child.pid)
        text = log.read_text(errors="replace")
        if late.is_set():
            text += f"\nnot done after {step.limit} s"
        took, cpu = time.monotonic() - began, used.ru_utime + used.ru_stime
        return Ended(1 if late.is_set() else child.returncode, text, began, took, cpu)

    def end_all(self):
        """Ends running steps when the whole run is interrupted."""
        with self._lock:
            end(list(self._running))


def laid_back(command):
    """Returns a shell command that runs `command` with only idle processor time.

    The command must lead a session, because Linux may share the processors evenly among sessions (autogroups)
    regardless of the processes in them. Writing to /proc/self/autogroup lowers the share of this session.
    """
    return f"echo 19 2> /dev/null > /proc/self/autogroup; exec chrt --idle 0 sh -c {shlex.quote(command)}"


def end(groups):
    """Ends process groups with SIGTERM, and after PATIENCE seconds with SIGKILL."""
    for order in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            try:
                os.killpg(group, order)
            except ProcessLookupError:
                pass
        if order == signal.SIGTERM:
            time.sleep(PATIENCE)
