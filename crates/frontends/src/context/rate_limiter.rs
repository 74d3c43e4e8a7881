//! Rate limiting of a client's WebSocket messages.

use crate::context::rate::{Rate, RateMeter};

/// The rate limits of a route's WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Limit on messages, pings and pongs of one connection.
    pub messages: Option<Rate>,
    /// Limit on the decompressed payload bytes of one connection.
    pub bytes: Option<Rate>,
    /// What happens to messages over a limit.
    pub over_limit: OverLimit,
}

/// What happens to messages over the rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverLimit {
    /// Messages over the limit, and all later input, wait until the rate permits them. Once the socket's receive buffer
    /// is full, the client can send nothing more.
    #[default]
    Delay,
    /// Messages over the limit are dropped, and the drops are counted.
    Drop,
    /// The connection is closed with close code 1008.
    Close,
}

/// Maximum time, in milliseconds, by which messages that can't be delayed may run ahead of their rate. Beyond that, the
/// connection is closed.
const AHEAD_MS: u64 = 5_000;

/// The rate limit usage of one connection. Connections without rate limits have no `RateLimiter`.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    limits: RateLimits,
    messages: RateMeter,
    bytes: RateMeter,
    wait_until_ms: u64,
    /// Monotonic time until which the number of messages alone (not their bytes) makes input wait.
    messages_wait_until_ms: u64,
}

/// The result of counting a message or command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateDecision {
    Allow,
    /// The message is processed now; input after it waits until `wait_until_ms`.
    AllowThenWait,
    /// The message has to wait until `wait_until_ms`, and is not counted yet.
    Wait,
    Drop,
    Close,
}

impl RateLimiter {
    pub(crate) fn new(pacing: RateLimits) -> Self {
        Self {
            limits: pacing,
            messages: RateMeter::default(),
            bytes: RateMeter::default(),
            wait_until_ms: 0,
            messages_wait_until_ms: 0,
        }
    }

    /// Counts a message or control frame with its bytes.
    pub(crate) fn message(&mut self, bytes: usize, now_ms: u64) -> RateDecision {
        match self.publications(1, now_ms) {
            RateDecision::Allow => self.bytes(bytes, now_ms),
            RateDecision::AllowThenWait => {
                self.bytes(bytes, now_ms);
                RateDecision::AllowThenWait
            }
            refused => refused,
        }
    }

    /// Counts the bytes of a message that contains commands; the commands are counted when each is processed.
    pub(crate) fn bytes(&mut self, bytes: usize, now_ms: u64) -> RateDecision {
        let over = self.limits.over_limit;
        let (paced, wait_until_ms) = charge(
            self.limits.bytes,
            over,
            &mut self.bytes,
            bytes as u64,
            now_ms,
        );
        self.wait_until_ms = self.wait_until_ms.max(wait_until_ms);
        paced
    }

    /// Counts a message that contains this number of publications.
    pub(crate) fn publications(&mut self, count: u64, now_ms: u64) -> RateDecision {
        let over = self.limits.over_limit;
        let (paced, wait_until_ms) = charge(
            self.limits.messages,
            over,
            &mut self.messages,
            count,
            now_ms,
        );
        self.messages_wait_until_ms = self.messages_wait_until_ms.max(wait_until_ms);
        self.wait_until_ms = self.wait_until_ms.max(wait_until_ms);
        paced
    }

    /// Counts the next command of a message, unless earlier messages still make it wait.
    pub(crate) fn command(&mut self, now_ms: u64) -> RateDecision {
        match self.messages_wait_until_ms > now_ms {
            true => RateDecision::Wait,
            false => self.publications(1, now_ms),
        }
    }

    /// Counts a command that arrived on another connection and therefore can't be delayed.
    pub(crate) fn relayed_command(&mut self, now_ms: u64) -> RateDecision {
        let paced = self.publications(1, now_ms);
        self.unless_late(paced, now_ms)
    }

    /// Counts the bytes of commands that arrived on another connection.
    pub(crate) fn relayed_bytes(&mut self, bytes: usize, now_ms: u64) -> RateDecision {
        let paced = self.bytes(bytes, now_ms);
        self.unless_late(paced, now_ms)
    }

    fn unless_late(&self, paced: RateDecision, now_ms: u64) -> RateDecision {
        match paced {
            RateDecision::AllowThenWait if self.wait_until_ms > now_ms + AHEAD_MS => {
                RateDecision::Close
            }
            RateDecision::AllowThenWait => RateDecision::Allow,
            paced => paced,
        }
    }

    /// Handles the end of the client's input: messages that would have to wait are dropped from now
    /// on.
    pub(crate) fn end(&mut self) {
        if self.limits.over_limit == OverLimit::Delay {
            self.limits.over_limit = OverLimit::Drop;
            (self.wait_until_ms, self.messages_wait_until_ms) = (0, 0);
        }
    }

    /// Returns the monotonic time in milliseconds until which later input waits.
    pub(crate) fn wait_until_ms(&self) -> u64 {
        self.wait_until_ms
    }
}

/// Counts an amount against a rate. Returns the decision on the message, and the monotonic time in milliseconds until
/// which later input waits (0: it does not wait).
fn charge(
    rate: Option<Rate>,
    over: OverLimit,
    meter: &mut RateMeter,
    amount: u64,
    now_ms: u64,
) -> (RateDecision, u64) {
    let Some(rate) = rate else {
        return (RateDecision::Allow, 0);
    };
    let paced = match over {
        OverLimit::Delay => {
            let wait_ms = meter.charge(&rate, amount, now_ms);
            if wait_ms > 0 {
                return (RateDecision::AllowThenWait, now_ms.saturating_add(wait_ms));
            }
            RateDecision::Allow
        }
        _ if meter.take(&rate, amount, now_ms) => RateDecision::Allow,
        OverLimit::Drop => RateDecision::Drop,
        OverLimit::Close => RateDecision::Close,
    };
    (paced, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(over: OverLimit) -> RateLimiter {
        RateLimiter::new(RateLimits {
            messages: Some(Rate::new(2, 1_000)),
            bytes: Some(Rate::new(1_000, 1_000)),
            over_limit: over,
        })
    }

    #[test]
    fn what_waits_is_worked_on_at_the_rate() {
        let mut pace = pace(OverLimit::Delay);
        assert_eq!(pace.message(1, 5_000), RateDecision::Allow);
        assert_eq!(pace.message(1, 5_000), RateDecision::Allow);
        assert_eq!(pace.message(1, 5_000), RateDecision::AllowThenWait);
        assert_eq!(pace.wait_until_ms(), 5_500);
        assert_eq!(pace.message(3_000, 9_000), RateDecision::AllowThenWait);
        assert_eq!(pace.wait_until_ms(), 11_000);
    }

    #[test]
    fn messages_over_the_rate_are_dropped_or_close_the_connection() {
        for (over, expected) in [
            (OverLimit::Drop, RateDecision::Drop),
            (OverLimit::Close, RateDecision::Close),
        ] {
            let mut pace = pace(over);
            assert_eq!(pace.message(1, 5_000), RateDecision::Allow);
            assert_eq!(pace.message(1, 5_000), RateDecision::Allow);
            assert_eq!(pace.message(1, 5_000), expected);
            assert_eq!(pace.message(1, 5_500), RateDecision::Allow);
        }
    }

    #[test]
    fn a_command_that_waits_is_counted_when_it_is_worked_on() {
        let mut pace = pace(OverLimit::Delay);
        assert_eq!(pace.command(5_000), RateDecision::Allow);
        assert_eq!(pace.command(5_000), RateDecision::Allow);
        assert_eq!(pace.command(5_000), RateDecision::AllowThenWait);
        (0..9).for_each(|_| assert_eq!(pace.command(5_000), RateDecision::Wait));
        assert_eq!(pace.wait_until_ms(), 5_500);
        assert_eq!(pace.command(5_500), RateDecision::AllowThenWait);
        // Many bytes delay the messages after them, but not the commands in the same message.
        assert_eq!(pace.bytes(9_000, 9_000), RateDecision::AllowThenWait);
        assert_eq!(pace.command(9_000), RateDecision::Allow);
        assert_eq!(pace.wait_until_ms(), 17_000);
    }

    #[test]
    fn what_cannot_wait_is_ahead_by_a_limited_time() {
        let mut pace = pace(OverLimit::Delay);
        // Two commands are permitted at once by the rate of two per second, and ten more by the five seconds of
        // [`AHEAD_MS`].
        let carried_out =
            (0..99).take_while(|_| pace.relayed_command(5_000) == RateDecision::Allow);
        assert_eq!(carried_out.count(), 2 + 10);
        assert_eq!(pace.relayed_command(5_000), RateDecision::Close);
    }

    #[test]
    fn what_would_have_to_wait_when_its_client_has_gone_is_dropped() {
        let mut pace = pace(OverLimit::Delay);
        while pace.command(5_000) != RateDecision::Wait {}
        pace.end();
        assert_eq!(pace.command(5_000), RateDecision::Drop);
        assert_eq!(pace.wait_until_ms(), 0);
        let mut others = self::pace(OverLimit::Close);
        others.end();
        (0..2).for_each(|_| assert_eq!(others.command(5_000), RateDecision::Allow));
        assert_eq!(others.command(5_000), RateDecision::Close);
    }

    #[test]
    fn several_at_once_are_had_once() {
        let mut pace = pace(OverLimit::Close);
        assert_eq!(pace.publications(1_024, 5_000), RateDecision::Allow);
        assert_eq!(pace.publications(1, 5_000 + 500_000), RateDecision::Close);
        assert_eq!(pace.publications(1, 5_000 + 512_000), RateDecision::Allow);
    }
}
