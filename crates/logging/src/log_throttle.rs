//! Limits the rate of log lines that clients can cause.

/// The minimum interval between two lines in milliseconds.
const EVERY_MS: u64 = 10_000;

/// Limits the rate of a log line. The field is the time at which the line was last written, in
/// monotonic milliseconds.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<u64>);

impl LogThrottle {
    /// Returns whether a line may be written now, and if so records it as written.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = self.0.is_none_or(|at| now_ms >= at + EVERY_MS);
        if is_due {
            self.mark_logged(now_ms);
        }
        is_due
    }

    /// Records that a line was written.
    pub fn mark_logged(&mut self, now_ms: u64) {
        self.0 = Some(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds() {
        let mut throttle = LogThrottle::default();
        assert!(throttle.is_due(5) && !throttle.is_due(10_004) && throttle.is_due(10_005));
        assert!(!throttle.is_due(10_006));
    }
}
