//! What is due at a rate that asks for nobody's leave, and waits only while there is no connection to take it.

use crate::clock::MILLISECOND;
use crate::engine::Net;
use crate::pace::Pace;
use crate::tally::{Cause, Fault};

/// The open loop of one thread. Nothing is stored for what waits: the pace stands still and knows when it was due.
#[derive(Debug)]
pub(crate) struct OpenLoop {
    pace: Pace,
    /// The last look found something due and nobody to take it.
    is_held_up: bool,
    /// What was due until then has waited for a connection. That it is late is not the tester's doing.
    excused_until_ns: u64,
}

impl OpenLoop {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            is_held_up: false,
            excused_until_ns: 0,
        }
    }

    /// When to look again: when the next one is due, or when a connection has opened, which is no time.
    pub(crate) fn due(&mut self, now_ns: u64) -> u64 {
        if self.is_held_up {
            return u64::MAX;
        }
        self.pace.due(now_ns)
    }

    /// Whether something that was due in the run still waits.
    pub(crate) fn is_behind(&self, net: &Net) -> bool {
        let due = self.pace.clone().due(net.now_ns);
        due <= net.now_ns && due < net.until_ns
    }

    /// The client that `find` has for the next that is due by now, and when it was due. What the tester itself sends
    /// late is counted.
    #[inline]
    pub(crate) fn next(
        &mut self,
        net: &mut Net,
        find: impl FnOnce(&Net) -> Option<u32>,
    ) -> Option<(u32, u64)> {
        let now = net.now_ns;
        let due = self.pace.due(now);
        if due > now || due >= net.until_ns {
            return None;
        }
        let Some(who) = find(net) else {
            self.is_held_up = true;
            return None;
        };
        if std::mem::take(&mut self.is_held_up) {
            self.excused_until_ns = now;
        }
        self.pace.next();
        let late_ns = now - due.max(self.excused_until_ns);
        if late_ns > MILLISECOND && net.is_measured(due) {
            net.tally.late_sends += 1;
        }
        Some((who, due))
    }

    /// Counts what still waits when all is over as faults: `what`, a plural, could never leave. Gives how many of them
    /// were due in the measured time.
    pub(crate) fn give_up(&mut self, net: &mut Net, what: &str) -> u64 {
        let mut count = 0;
        let mut measured = 0;
        while let Some(due) = self.pace.pass(net.until_ns, net.until_ns) {
            count += 1;
            measured += u64::from(net.is_measured(due));
        }
        let (cause, words) = match (net.has_open(), net.has_full()) {
            (true, true) => (Cause::TimedOut, "the server is not reading"),
            (true, false) => (Cause::TimedOut, "no connection was free until the end"),
            (false, _) => (Cause::Closed, "no connection was open until the end"),
        };
        let words = format!("{what} were due, and {words}");
        net.tally.faults(&Fault::new(cause, words), count);
        measured
    }
}
