//! A circuit breaker: stops requests to a back end that mostly fails, and tries it with one request after a pause.

use std::collections::HashSet;

use veche_calls::{CallError, CallErrorKind};

/// The length of a counting window in milliseconds. The results of the current and of the previous window count.
const SPAN_MS: u64 = 5_000;

/// The outcome of a request, as far as it concerns the back end's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendResult {
    /// A response arrived, whatever its content.
    Answered,
    /// No response in time. The client's data may be the cause, so all timeouts of one client count as one failure.
    TimedOut,
    /// The back end is unreachable or reports that it can't respond.
    Unavailable,
}

impl BackendResult {
    /// Returns the outcome that an HTTP status stands for. Status 500 counts as a response, because the data of a
    /// single client may cause it.
    pub fn of_status(status: u16) -> Self {
        match status {
            502 | 503 => Self::Unavailable,
            504 => Self::TimedOut,
            _ => Self::Answered,
        }
    }

    /// Returns the outcome of an error; `None` if the request could not be made because of the client's data.
    pub fn of_fault(fault: &CallError) -> Option<Self> {
        match fault.kind {
            CallErrorKind::Invalid => None,
            // All connections are busy with earlier requests, so the back end is slow.
            CallErrorKind::Timeout | CallErrorKind::PoolFull => Some(Self::TimedOut),
            _ => Some(Self::Unavailable),
        }
    }
}

/// Stops requests ("opens") when the failures within ten seconds reach a limit and are more than the responses. Times
/// are in monotonic milliseconds.
#[derive(Debug)]
pub struct CircuitBreaker {
    failures_max: usize,
    pause_ms: u64,
    spans: [TimeWindow; 2],
    /// The end of the pause; 0 while the breaker is closed.
    paused_until_ms: u64,
    /// Whether the single request after the pause is in progress.
    is_trying: bool,
}

#[derive(Debug, Default)]
struct TimeWindow {
    number: u64,
    answers: usize,
    unavailable: usize,
    /// Clients whose requests timed out.
    late: HashSet<Box<str>>,
}

impl CircuitBreaker {
    /// Creates a breaker that opens if, within ten seconds, there are at least `failures_max` failures and more
    /// failures than responses. It then stays open for `pause_ms`.
    pub fn new(failures_max: u32, pause_ms: u64) -> Self {
        Self {
            failures_max: failures_max as usize,
            pause_ms,
            spans: Default::default(),
            paused_until_ms: 0,
            is_trying: false,
        }
    }

    /// Returns whether a request may be made. If so, the caller must report its end with
    /// [`ended`](Self::ended) or [`not_asked`](Self::not_asked).
    pub fn may_ask(&mut self, now_ms: u64) -> bool {
        if self.paused_until_ms == 0 {
            return true;
        }
        if now_ms < self.paused_until_ms || self.is_trying {
            return false;
        }
        self.is_trying = true;
        true
    }

    /// Returns whether requests are refused.
    pub fn is_open(&self) -> bool {
        self.paused_until_ms != 0
    }

    /// Reports that an allowed request was not made, or that its outcome says nothing about the back end. Another request
    /// may then be tried.
    pub fn not_asked(&mut self) {
        self.is_trying = false;
    }

    /// Counts the outcome of a client's request. Returns whether it opened the breaker.
    pub fn ended(&mut self, ending: BackendResult, client: &str, now_ms: u64) -> bool {
        if ending == BackendResult::Answered && self.is_open() {
            (self.paused_until_ms, self.is_trying) = (0, false);
            self.spans = Default::default();
        }
        self.turn_to(now_ms / SPAN_MS);
        let [current, _] = &mut self.spans;
        match ending {
            BackendResult::Answered => {
                current.answers += 1;
                return false;
            }
            BackendResult::TimedOut => _ = current.late.insert(client.into()),
            BackendResult::Unavailable => current.unavailable += 1,
        }
        let was_open = self.is_open();
        if !was_open && !self.is_failing() {
            return false;
        }
        self.is_trying = false;
        self.paused_until_ms = now_ms.saturating_add(self.pause_ms).max(1);
        !was_open
    }

    fn turn_to(&mut self, number: u64) {
        let [current, previous] = &mut self.spans;
        if current.number == number {
            return;
        }
        let last = std::mem::take(current);
        current.number = number;
        *previous = match last.number + 1 == number {
            true => last,
            false => TimeWindow::default(),
        };
    }

    fn is_failing(&self) -> bool {
        let [current, previous] = &self.spans;
        let late = current.late.union(&previous.late).count();
        let failures = late + current.unavailable + previous.unavailable;
        failures >= self.failures_max && failures > current.answers + previous.answers
    }
}

#[cfg(test)]
mod tests {
    use super::BackendResult::{Answered, TimedOut, Unavailable};
    use super::*;

    #[test]
    fn a_back_end_that_fails_is_not_asked_and_tried_with_one_request() {
        let mut breaker = CircuitBreaker::new(3, 1000);
        for _ in 0..2 {
            assert!(breaker.may_ask(0) && !breaker.ended(Unavailable, "", 0));
        }
        assert!(breaker.may_ask(0));
        assert!(breaker.ended(Unavailable, "", 5) && breaker.is_open());
        assert!(!breaker.may_ask(5) && !breaker.may_ask(1004));
        assert!(breaker.may_ask(1005));
        assert!(!breaker.may_ask(1006), "one is enough to try");
        assert!(!breaker.ended(TimedOut, "a", 1100), "it was open before");
        assert!(!breaker.may_ask(2099) && breaker.may_ask(2100));
        breaker.not_asked();
        assert!(breaker.is_open() && breaker.may_ask(2100) && !breaker.may_ask(2100));
        assert!(!breaker.ended(Answered, "", 2200));
        assert!(breaker.may_ask(2200) && breaker.may_ask(2200) && !breaker.is_open());
        assert!(!breaker.ended(Unavailable, "", 2300), "it starts over");
    }

    #[test]
    fn time_outs_count_once_for_each_client() {
        let mut breaker = CircuitBreaker::new(3, 1000);
        for _ in 0..50 {
            assert!(!breaker.ended(TimedOut, "ann", 4_999));
            assert!(
                !breaker.ended(TimedOut, "ann", 5_001),
                "spans share clients"
            );
        }
        assert!(!breaker.ended(TimedOut, "bob", 5_002));
        assert!(breaker.ended(TimedOut, "eve", 5_003));
    }

    #[test]
    fn it_stays_closed_while_most_requests_are_answered() {
        let mut breaker = CircuitBreaker::new(3, 1000);
        for _ in 0..100 {
            assert!(!breaker.ended(Answered, "", 0));
            assert!(!breaker.ended(Unavailable, "", 0));
            assert!(breaker.may_ask(0));
        }
        assert!(
            breaker.ended(Unavailable, "", 1),
            "more failures than answers"
        );
    }

    #[test]
    fn failures_older_than_ten_seconds_do_not_count() {
        let mut breaker = CircuitBreaker::new(2, 1000);
        assert!(!breaker.ended(Unavailable, "", 0));
        assert!(!breaker.ended(Unavailable, "", 10_000));
        let mut breaker = CircuitBreaker::new(2, 1000);
        assert!(!breaker.ended(Unavailable, "", 0));
        assert!(breaker.ended(Unavailable, "", 9_999));
        let mut breaker = CircuitBreaker::new(2, 1000);
        for _ in 0..50 {
            assert!(!breaker.ended(Answered, "", 0));
        }
        assert!(!breaker.ended(Unavailable, "", 15_000));
        assert!(
            breaker.ended(Unavailable, "", 15_000),
            "the answers are old"
        );
    }
}
