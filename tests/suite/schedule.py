"""Decides which steps run at the same time. This module starts no processes and reads no clock.

Steps start in the order of their list. A foreground step starts when the cores that it keeps busy are free; a later
step that needs fewer cores may start before it. A step that runs alone waits until no foreground step runs, and no
later foreground step starts before it. Idle steps use the time that the foreground leaves, one after the other, and
none starts beside a step that uses all cores.
"""

from dataclasses import dataclass, field, replace

FOREGROUND, ALONE, IDLE = "foreground", "alone", "idle"


@dataclass(frozen=True)
class Step:
    """One command of a run and its requirements."""

    name: str
    # A shell command; if `binary` is set, only the arguments of that binary.
    command: str
    # Time limit in seconds.
    limit: int
    # Number of cores that the step keeps busy; a fraction for a step that mostly waits.
    cores: float = 1.0
    # Steps that must have succeeded; choosing this step chooses them too.
    needs: tuple = ()
    place: str = FOREGROUND
    # The test binary that is run instead of a command: PACKAGE::TARGET.
    binary: str = ""
    environment: dict = field(default_factory=dict, hash=False, compare=False)
    # The name of the group; its results are shown as a sum in one line.
    group: str = ""


class Schedule:
    """The steps of one run: waiting, running and over."""

    def __init__(self, steps, cores):
        self.cores = cores
        self.waiting = list(steps)
        self.running = []
        # Whether each ended step has succeeded, by name.
        self.over = {}

    def replace(self, step, steps):
        """Replaces a waiting placeholder step by the given steps."""
        place = self.waiting.index(step)
        self.waiting[place : place + 1] = steps

    def start(self):
        """Moves the steps that may start now to `running`, and returns them."""
        started = []
        is_drained = False
        for step in list(self.waiting):
            if not all(self.over.get(need) for need in step.needs):
                continue
            if step.place == IDLE:
                fits = not any(other.place == IDLE or other.cores >= self.cores for other in self.running)
            elif is_drained:
                fits = False
            else:
                fits = self._fits(step)
                is_drained = step.place == ALONE and not fits
            if fits:
                self.waiting.remove(step)
                self.running.append(step)
                started.append(step)
        return started

    def end(self, step, succeeded):
        """Records the end of a step. Returns the waiting steps that can no longer start because of it."""
        self.running.remove(step)
        self.over[step.name] = succeeded
        return self._abandon()

    def _fits(self, step):
        foreground = [other for other in self.running if other.place != IDLE]
        if not foreground:
            return True
        if step.place == ALONE or any(other.place == ALONE for other in foreground):
            return False
        return sum(min(each.cores, self.cores) for each in [*foreground, step]) <= self.cores

    def _abandon(self):
        """Removes and returns the waiting steps that depend on a failed one, directly or indirectly."""
        abandoned = []
        while lost := [step for step in self.waiting if any(self.over.get(need) is False for need in step.needs)]:
            for step in lost:
                self.waiting.remove(step)
                self.over[step.name] = False
            abandoned += lost
        return abandoned


def chosen(steps, words):
    """Returns the steps whose names contain one of these words, and all steps that they need; all steps if there are no
    words. Needed steps that are not in the set count as done."""
    by_name = {step.name: step for step in steps}
    names = [name for name in by_name if not words or any(word in name for word in words)]
    for name in names:
        names += [need for need in by_name[name].needs if need in by_name and need not in names]
    known = [replace(step, needs=tuple(need for need in step.needs if need in by_name)) for step in steps]
    return [step for step in known if step.name in names]
