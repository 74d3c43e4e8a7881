//! Rate limiting of a client's WebSocket messages.

use crate::context::rate::{Meter, Rate};

/// The rate limits of a route's WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Messages, pings and pongs of one connection.
    pub messages: Option<Rate>,
    /// Inflated payload bytes per connection.
    pub bytes: Option<Rate>,
    /// How excess messages are handled.
    pub over: OverPace,
}

/// How messages over the limit are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverPace {
    /// They wait, as does all later input, until the client's socket is full.
    #[default]
    Delay,
    /// They are dropped and counted.
    Drop,
    /// The connection is closed with 1008.
    Close,
}

/// Maximum time by which messages that can't be delayed may exceed the rate.
const AHEAD_MS: u64 = 5_000;

/// The usage of one connection; not stored for connections without rate limits.
#[derive(Debug)]
pub(crate) struct Pace {
    pacing: Pacing,
    messages: Meter,
    bytes: Meter,
    wait_until_ms: u64,
    /// The wait required by the number of messages alone.
    messages_wait_until_ms: u64,
}

/// Whether a message or command may be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paced {
    InTime,
    /// Process it; later input waits until `wait_until_ms`.
    ThenWait,
    /// It has to wait until then and is not counted yet.
    Wait,
    Drop,
    Close,
}

impl Pace {
    pub(crate) fn new(pacing: Pacing) -> Self {
        Self {
            pacing,
            messages: Meter::default(),
            bytes: Meter::default(),
            wait_until_ms: 0,
            messages_wait_until_ms: 0,
        }
    }

    /// Counts a message or control frame.
    pub(crate) fn message(&mut self, bytes: usize, now_ms: u64) -> Paced {
        match self.publications(1, now_ms) {
            Paced::InTime => self.bytes(bytes, now_ms),
            Paced::ThenWait => {
                self.bytes(bytes, now_ms);
                Paced::ThenWait
            }
            refused => refused,
        }
    }

    /// Counts the bytes of a message whose commands are counted when they are processed.
    pub(crate) fn bytes(&mut self, bytes: usize, now_ms: u64) -> Paced {
        let over = self.pacing.over;
        let (paced, wait_until_ms) = charge(
            self.pacing.bytes,
            over,
            &mut self.bytes,
            bytes as u64,
            now_ms,
        );
        self.wait_until_ms = self.wait_until_ms.max(wait_until_ms);
        paced
    }

    /// Counts a message that consists of several publications.
    pub(crate) fn publications(&mut self, count: u64, now_ms: u64) -> Paced {
        let over = self.pacing.over;
        let (paced, wait_until_ms) = charge(
            self.pacing.messages,
            over,
            &mut self.messages,
            count,
            now_ms,
        );
        self.messages_wait_until_ms = self.messages_wait_until_ms.max(wait_until_ms);
        self.wait_until_ms = self.wait_until_ms.max(wait_until_ms);
        paced
    }

    /// Counts the next command of a message.
    pub(crate) fn command(&mut self, now_ms: u64) -> Paced {
        match self.messages_wait_until_ms > now_ms {
            true => Paced::Wait,
            false => self.publications(1, now_ms),
        }
    }

    /// Counts a command that can't be delayed, since it arrived on another connection.
    pub(crate) fn relayed_command(&mut self, now_ms: u64) -> Paced {
        let paced = self.publications(1, now_ms);
        self.unless_late(paced, now_ms)
    }

    /// Counts the bytes of commands that can't be delayed.
    pub(crate) fn relayed_bytes(&mut self, bytes: usize, now_ms: u64) -> Paced {
        let paced = self.bytes(bytes, now_ms);
        self.unless_late(paced, now_ms)
    }

    fn unless_late(&self, paced: Paced, now_ms: u64) -> Paced {
        match paced {
            Paced::ThenWait if self.wait_until_ms > now_ms + AHEAD_MS => Paced::Close,
            Paced::ThenWait => Paced::InTime,
            paced => paced,
        }
    }

    /// Ends input of the client: messages that would have to wait are dropped.
    pub(crate) fn end(&mut self) {
        if self.pacing.over == OverPace::Delay {
            self.pacing.over = OverPace::Drop;
            (self.wait_until_ms, self.messages_wait_until_ms) = (0, 0);
        }
    }

    /// Returns until when later input waits, in monotonic milliseconds.
    pub(crate) fn wait_until_ms(&self) -> u64 {
        self.wait_until_ms
    }
}

/// Charges an amount to a rate; returns what to do with the message, and how long later input waits.
fn charge(
    rate: Option<Rate>,
    over: OverPace,
    meter: &mut Meter,
    amount: u64,
    now_ms: u64,
) -> (Paced, u64) {
    let Some(rate) = rate else {
        return (Paced::InTime, 0);
    };
    let paced = match over {
        OverPace::Delay => {
            let wait_ms = meter.charge(&rate, amount, now_ms);
            if wait_ms > 0 {
                return (Paced::ThenWait, now_ms.saturating_add(wait_ms));
            }
            Paced::InTime
        }
        _ if meter.take(&rate, amount, now_ms) => Paced::InTime,
        OverPace::Drop => Paced::Drop,
        OverPace::Close => Paced::Close,
    };
    (paced, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(over: OverPace) -> Pace {
        Pace::new(Pacing {
            messages: Some(Rate::new(2, 1_000)),
            bytes: Some(Rate::new(1_000, 1_000)),
            over,
        })
    }

    #[test]
    fn what_waits_is_worked_on_at_the_rate() {
        let mut pace = pace(OverPace::Delay);
        assert_eq!(pace.message(1, 5_000), Paced::InTime);
        assert_eq!(pace.message(1, 5_000), Paced::InTime);
        assert_eq!(pace.message(1, 5_000), Paced::ThenWait);
        assert_eq!(pace.wait_until_ms(), 5_500);
        assert_eq!(pace.message(3_000, 9_000), Paced::ThenWait);
        assert_eq!(pace.wait_until_ms(), 11_000);
    }

    #[test]
    fn what_is_too_fast_is_dropped_or_ends_it() {
        for (over, expected) in [
            (OverPace::Drop, Paced::Drop),
            (OverPace::Close, Paced::Close),
        ] {
            let mut pace = pace(over);
            assert_eq!(pace.message(1, 5_000), Paced::InTime);
            assert_eq!(pace.message(1, 5_000), Paced::InTime);
            assert_eq!(pace.message(1, 5_000), expected);
            assert_eq!(pace.message(1, 5_500), Paced::InTime);
        }
    }

    #[test]
    fn a_command_that_waits_is_counted_when_it_is_worked_on() {
        let mut pace = pace(OverPace::Delay);
        assert_eq!(pace.command(5_000), Paced::InTime);
        assert_eq!(pace.command(5_000), Paced::InTime);
        assert_eq!(pace.command(5_000), Paced::ThenWait);
        (0..9).for_each(|_| assert_eq!(pace.command(5_000), Paced::Wait));
        assert_eq!(pace.wait_until_ms(), 5_500);
        assert_eq!(pace.command(5_500), Paced::ThenWait);
        // Many bytes delay later messages, not the commands in them.
        assert_eq!(pace.bytes(9_000, 9_000), Paced::ThenWait);
        assert_eq!(pace.command(9_000), Paced::InTime);
        assert_eq!(pace.wait_until_ms(), 17_000);
    }

    #[test]
    fn what_cannot_wait_is_ahead_by_a_limited_time() {
        let mut pace = pace(OverPace::Delay);
        // Two per second, and five seconds ahead.
        let carried_out = (0..99).take_while(|_| pace.relayed_command(5_000) == Paced::InTime);
        assert_eq!(carried_out.count(), 2 + 10);
        assert_eq!(pace.relayed_command(5_000), Paced::Close);
    }

    #[test]
    fn what_would_have_to_wait_when_its_client_has_gone_is_dropped() {
        let mut pace = pace(OverPace::Delay);
        while pace.command(5_000) != Paced::Wait {}
        pace.end();
        assert_eq!(pace.command(5_000), Paced::Drop);
        assert_eq!(pace.wait_until_ms(), 0);
        let mut others = self::pace(OverPace::Close);
        others.end();
        (0..2).for_each(|_| assert_eq!(others.command(5_000), Paced::InTime));
        assert_eq!(others.command(5_000), Paced::Close);
    }

    #[test]
    fn several_at_once_are_had_once() {
        let mut pace = pace(OverPace::Close);
        assert_eq!(pace.publications(1_024, 5_000), Paced::InTime);
        assert_eq!(pace.publications(1, 5_000 + 500_000), Paced::Close);
        assert_eq!(pace.publications(1, 5_000 + 512_000), Paced::InTime);
    }
}
