//! The coarse clock by which the time of a turn is divided among coroutines. Reading it costs no system call.

use std::cell::Cell;

use crate::watch::ThreadWatch;

/// The number of checks after which a run counts as long even if the clock does not advance.
const CHECKS_MAX: u32 = 64;

/// The time source of turns and runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClockMode {
    /// The watchdog's ticks; the default.
    #[default]
    Real,
    /// One tick for each run, for tests of turns.
    Runs,
    /// The clock stands still, for tests of applications that must not depend on real time.
    Still,
}

/// The clock of one VM.
pub(crate) struct VmClock {
    pace: ClockMode,
    watch: ThreadWatch,
    /// The number of runs so far.
    runs: Cell<u64>,
    /// The tick at which the current run began.
    run_began: Cell<u64>,
    /// The number of times that the current run has checked whether it is long.
    checks: Cell<u32>,
}

impl VmClock {
    pub(crate) fn new(pace: ClockMode, watch: ThreadWatch) -> Self {
        Self {
            pace,
            watch,
            runs: Cell::new(0),
            run_began: Cell::new(0),
            checks: Cell::new(0),
        }
    }

    /// Returns the current tick.
    pub(crate) fn ticks(&self) -> u64 {
        match self.pace {
            ClockMode::Real => self.watch.ticks(),
            ClockMode::Runs => self.runs.get(),
            ClockMode::Still => 0,
        }
    }

    /// Starts a run of a coroutine.
    pub(crate) fn begin_run(&self) {
        self.run_began.set(self.ticks());
        self.checks.set(0);
    }

    /// Ends the run of a coroutine.
    pub(crate) fn end_run(&self) {
        self.runs.set(self.runs.get() + 1);
    }

    /// Returns whether the current run has used up its time slice. A function that may wait then lets other coroutines
    /// run first.
    pub(crate) fn is_run_long(&self) -> bool {
        if self.pace == ClockMode::Real {
            return self.ticks() != self.run_began.get();
        }
        let checks = self.checks.get() + 1;
        self.checks.set(checks);
        checks >= CHECKS_MAX
    }
}
