//! How fast a client may speak on its WebSocket, and what becomes of what it says too fast.

use crate::rate::{Meter, Rate};

/// The rates of a route's WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Messages, pings and pongs of one connection.
    pub messages: Option<Rate>,
    /// Bytes of their payload, inflated.
    pub bytes: Option<Rate>,
    /// What becomes of what comes too fast.
    pub over: OverPace,
}

/// What becomes of what a client says too fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverPace {
    /// It waits, and so does all that comes behind it: in the end the client's own socket is full.
    #[default]
    Delay,
    /// It is dropped, and counted.
    Drop,
    /// The connection is closed with 1008.
    Close,
}

/// What one connection has used; nothing is kept for those that have no rate to keep to.
#[derive(Debug)]
pub(crate) struct Pace {
    pacing: Pacing,
    messages: Meter,
    bytes: Meter,
    wait_until_ms: u64,
}

/// Whether a message may be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paced {
    /// It may.
    InTime,
    /// It may, but what is behind it waits until [`Pace::wait_until_ms`].
    ThenWait,
    /// It is to be dropped.
    Drop,
    /// It is to be the last.
    Close,
}

impl Pace {
    pub(crate) fn new(pacing: Pacing) -> Self {
        Self {
            pacing,
            messages: Meter::default(),
            bytes: Meter::default(),
            wait_until_ms: 0,
        }
    }

    /// A message has come, or a control frame.
    pub(crate) fn message(&mut self, bytes: usize, now_ms: u64) -> Paced {
        let Pacing {
            messages,
            bytes: rate_of_bytes,
            over,
        } = self.pacing;
        let bytes = bytes as u64;
        if over == OverPace::Delay {
            let charge = |rate: Option<Rate>, meter: &mut Meter, amount| {
                rate.map_or(0, |rate| meter.charge(&rate, amount, now_ms))
            };
            let wait_ms = charge(messages, &mut self.messages, 1).max(charge(
                rate_of_bytes,
                &mut self.bytes,
                bytes,
            ));
            if wait_ms == 0 {
                return Paced::InTime;
            }
            self.wait_until_ms = now_ms.saturating_add(wait_ms);
            return Paced::ThenWait;
        }
        let take = |rate: Option<Rate>, meter: &mut Meter, amount| {
            rate.is_none_or(|rate| meter.take(&rate, amount, now_ms))
        };
        match take(messages, &mut self.messages, 1) && take(rate_of_bytes, &mut self.bytes, bytes) {
            true => Paced::InTime,
            false if over == OverPace::Drop => Paced::Drop,
            false => Paced::Close,
        }
    }

    /// Until when what is behind the last message waits.
    pub(crate) fn wait_until_ms(&self) -> u64 {
        self.wait_until_ms
    }
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
}
