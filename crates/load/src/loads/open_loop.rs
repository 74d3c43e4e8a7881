//! An open loop: messages are due at a rate that does not depend on the server. A message waits
//! only if no connection can send it.

use crate::clock::MILLISECOND;
use crate::engine::EngineState;
use crate::schedule::Schedule;
use crate::tally::{ErrorCase, ErrorCause};

/// The open loop of one thread. Messages that wait for a connection are not stored: the schedule
/// does not advance while they wait, so it can yield their due times afterwards.
#[derive(Debug)]
pub(crate) struct OpenLoop {
    pace: Schedule,
    /// Whether a message was due in the last check but no client could send it.
    is_held_up: bool,
    /// Messages due before this time had to wait for a connection, so their delay is not attributed
    /// to the tester.
    excused_until_ns: u64,
}

impl OpenLoop {
    pub(crate) fn new(pace: Schedule) -> Self {
        Self {
            pace,
            is_held_up: false,
            excused_until_ns: 0,
        }
    }

    /// Returns the time of the next check: when the next message is due, or `u64::MAX` while a due
    /// message waits for a connection.
    pub(crate) fn due(&mut self, now_ns: u64) -> u64 {
        if self.is_held_up {
            return u64::MAX;
        }
        self.pace.due(now_ns)
    }

    /// Returns whether a message due in the run is still waiting.
    pub(crate) fn is_behind(&self, net: &EngineState) -> bool {
        let due = self.pace.clone().due(net.now_ns);
        due <= net.now_ns && due < net.until_ns
    }

    /// Returns the client that `find` selects for the next due message, and the message's due time.
    /// Returns `None` if no message is due or `find` selects no client. Counts delays caused by the tester.
    #[inline]
    pub(crate) fn next(
        &mut self,
        net: &mut EngineState,
        find: impl FnOnce(&EngineState) -> Option<u32>,
    ) -> Option<(u32, u64)> {
        let now = net.now_ns;
        let due = self.pace.due(now);
        if due > now || due >= net.until_ns {
            return None;
        }
        let Some(client_index) = find(net) else {
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
        Some((client_index, due))
    }

    /// Counts messages still waiting at the end as errors. `what` is a plural noun that names the
    /// messages in the error text. Returns how many of them were due in the measured time.
    pub(crate) fn give_up(&mut self, net: &mut EngineState, what: &str) -> u64 {
        let mut count = 0;
        let mut measured = 0;
        while let Some(due) = self.pace.pass(net.until_ns, net.until_ns) {
            count += 1;
            measured += u64::from(net.is_measured(due));
        }
        let (cause, words) = match (net.has_open(), net.has_full()) {
            (true, true) => (
                ErrorCause::TimedOut,
                "the server had not read the data sent before",
            ),
            (true, false) => (
                ErrorCause::TimedOut,
                "no connection became free before the run ended",
            ),
            (false, _) => (
                ErrorCause::Closed,
                "no connection was open when the run ended",
            ),
        };
        let words = format!("{what} were scheduled but not sent: {words}");
        net.tally.faults(&ErrorCase::new(cause, words), count);
        measured
    }
}
