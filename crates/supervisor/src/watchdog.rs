//! The watch over the server process: it is asked at intervals for the pulse of its workers, and replaced when it no longer
//! answers, or when a worker is in the same turn all the time.
//!
//! Unanswered questions are counted rather than time, so a pause of the machine, which stops the supervisor too, kills no
//! healthy process.

use std::time::{Duration, Instant};

use tracing::{error, warn};

use super::Supervisor;
use crate::clock::now;
use crate::message::ToServer;
use crate::pulse::Stuck;

/// The target of this module's log lines.
const TARGET: &str = "veche::supervisor::watchdog";

/// Questions within `limits.watchdog_timeout`.
const QUESTIONS: u32 = 4;

/// See the module.
#[derive(Default)]
pub(super) struct Watchdog {
    is_watching: bool,
    /// When the next question is due, if ever.
    next: Option<Instant>,
    unanswered: u32,
    /// The process is found to hang and is being killed.
    pub(super) is_hung: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Ask,
    /// As many questions as there are within the timeout have no answer.
    Hung,
}

impl Watchdog {
    /// A process that has just got ready, or was taken over.
    pub(super) fn begin(now: Instant) -> Self {
        Self {
            is_watching: true,
            next: Some(now),
            ..Self::default()
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// The timeout may be another one.
    pub(super) fn config_changed(&mut self, now: Instant) {
        self.next = self.is_watching.then_some(now);
    }

    fn answered(&mut self) {
        self.unanswered = 0;
    }

    fn tick(&mut self, now: Instant, timeout: Duration) -> Due {
        if self.next.is_none_or(|next| now < next) {
            return Due::Nothing;
        }
        self.next = Some(now + timeout / QUESTIONS);
        if self.unanswered >= QUESTIONS {
            return Due::Hung;
        }
        self.unanswered += 1;
        Due::Ask
    }

    fn hang(&mut self) {
        *self = Self {
            is_hung: true,
            ..Self::default()
        };
    }
}

impl Supervisor {
    /// Asks the server process when that is due, and kills it when it hangs.
    pub(super) fn watch(&mut self, now: Instant) {
        let Some(timeout) = self.current.config.limits.watchdog_timeout else {
            self.watchdog.next = None;
            self.watchdog.answered();
            return;
        };
        let Some(server) = self.server.as_mut().filter(|server| server.is_ready) else {
            return;
        };
        // A drain has a time of its own.
        if self.stopping.is_some() {
            self.watchdog = Watchdog::default();
            return;
        }
        match self.watchdog.tick(now, timeout) {
            Due::Nothing => {}
            Due::Ask => {
                if let Err(error) = server.say(&ToServer::Pulse) {
                    warn!(target: TARGET, %error, "the server process can't be asked for its pulse");
                }
            }
            Due::Hung => self.replace_hung(&format!("it has not answered for {timeout:?}")),
        }
    }

    /// The server process has answered.
    pub(super) fn take_pulse(&mut self, stuck: Option<Stuck>) {
        self.watchdog.answered();
        let Some(timeout) = self.current.config.limits.watchdog_timeout else {
            return;
        };
        if let Some(Stuck {
            worker,
            step,
            looks,
        }) = stuck
            && looks >= QUESTIONS
            && self.stopping.is_none()
            && !self.watchdog.is_hung
        {
            let why = format!(
                "worker {worker} has not finished its turn for {timeout:?}, in its step {step:?}"
            );
            self.replace_hung(&why);
        }
    }

    fn replace_hung(&mut self, why: &str) {
        self.watchdog.hang();
        let Some(server) = &mut self.server else {
            return;
        };
        error!(target: TARGET, pid = server.pid(),
            "the server process hangs: {why}; killing it"
        );
        server.hung = Some(why.to_owned());
        server.kill();
        self.notifier
            .waits(&format!("the server process hangs: {why}"));
    }

    /// Begins to watch the server process that is there.
    pub(super) fn begin_watch(&mut self) {
        self.watchdog = Watchdog::begin(now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_hangs_after_as_many_questions_without_an_answer() {
        let timeout = Duration::from_secs(20);
        let start = now();
        let mut watchdog = Watchdog::begin(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watchdog.tick(at(0), timeout), Due::Ask);
        assert_eq!(watchdog.tick(at(4), timeout), Due::Nothing);
        assert_eq!(watchdog.tick(at(5), timeout), Due::Ask);
        watchdog.answered();
        // However long it was: nobody has asked meanwhile.
        for seconds in [1000, 1005, 1010, 1015] {
            assert_eq!(watchdog.tick(at(seconds), timeout), Due::Ask);
        }
        assert_eq!(watchdog.tick(at(1020), timeout), Due::Hung);
        watchdog.hang();
        assert_eq!(watchdog.tick(at(1025), timeout), Due::Nothing);
        assert_eq!(Watchdog::default().tick(at(0), timeout), Due::Nothing);
    }
}
