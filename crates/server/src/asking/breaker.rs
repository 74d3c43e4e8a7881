//! Leaves a back end alone that has failed several times in a row, and tries it with one question after a while.

/// See the module's text. Times are in monotonic milliseconds.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures_max: u32,
    pause_ms: u64,
    failures: u32,
    /// Until when nobody is asked; 0: it is asked.
    paused_until_ms: u64,
    /// One is being tried.
    is_trying: bool,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32, pause_ms: u64) -> Self {
        Self {
            failures_max,
            pause_ms,
            failures: 0,
            paused_until_ms: 0,
            is_trying: false,
        }
    }

    /// Whether one may ask now; whoever may has to say what came of it.
    pub(crate) fn may_ask(&mut self, now_ms: u64) -> bool {
        if self.paused_until_ms == 0 {
            return true;
        }
        if now_ms < self.paused_until_ms || self.is_trying {
            return false;
        }
        self.is_trying = true;
        true
    }

    /// Whether all are turned away.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until_ms != 0
    }

    /// Who was let ask did not: another one may try.
    pub(crate) fn not_asked(&mut self) {
        self.is_trying = false;
    }

    /// What came of a question; whether the back end is left alone from now on, and was not before.
    pub(crate) fn answered(&mut self, is_failure: bool, now_ms: u64) -> bool {
        if !is_failure {
            (self.failures, self.paused_until_ms, self.is_trying) = (0, 0, false);
            return false;
        }
        let was_paused = self.is_paused();
        self.failures = self.failures.saturating_add(1);
        if self.failures < self.failures_max {
            return false;
        }
        self.is_trying = false;
        self.paused_until_ms = now_ms.saturating_add(self.pause_ms).max(1);
        !was_paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_that_fails_is_left_alone_and_tried_with_one_question() {
        let mut breaker = Breaker::new(3, 1000);
        for _ in 0..2 {
            assert!(breaker.may_ask(0) && !breaker.answered(true, 0));
        }
        // One that answers makes up for all before.
        assert!(!breaker.answered(false, 0));
        assert!(!breaker.answered(true, 0) && !breaker.answered(true, 0));
        assert!(breaker.may_ask(0));
        assert!(breaker.answered(true, 5) && breaker.is_paused());
        assert!(!breaker.may_ask(5) && !breaker.may_ask(1004));
        assert!(breaker.may_ask(1005));
        assert!(!breaker.may_ask(1006), "one is enough to try");
        assert!(!breaker.answered(true, 1100), "that was known");
        assert!(!breaker.may_ask(2099) && breaker.may_ask(2100));
        breaker.not_asked();
        assert!(breaker.is_paused() && breaker.may_ask(2100) && !breaker.may_ask(2100));
        assert!(!breaker.answered(false, 2200));
        assert!(breaker.may_ask(2200) && breaker.may_ask(2200) && !breaker.is_paused());
    }
}
