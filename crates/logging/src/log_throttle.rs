//! Lines of the log that clients can bring about: one now and then is enough.

/// What a client can bring about is said so often.
const EVERY_MS: u64 = 10_000;

/// When the last line was written. Times are in monotonic milliseconds.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<u64>);

impl LogThrottle {
    /// Whether one is due; then it counts as written.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = self.0.is_none_or(|at| now_ms >= at + EVERY_MS);
        if is_due {
            self.mark_logged(now_ms);
        }
        is_due
    }

    /// One was written.
    pub fn mark_logged(&mut self, now_ms: u64) {
        self.0 = Some(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds() {
        let mut seldom = LogThrottle::default();
        assert!(seldom.is_due(5) && !seldom.is_due(10_004) && seldom.is_due(10_005));
        assert!(!seldom.is_due(10_006));
    }
}
