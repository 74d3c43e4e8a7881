//! One transport of [`Delayed`](super::Delayed), with the delayed data of each direction.

use std::collections::VecDeque;
use std::net::SocketAddr;

use fastrand::Rng;

use crate::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, ListenerId, RECEIVE_AFTER_PAUSE_MAX,
};

/// The inner driver is paused while at least this many received bytes wait for delivery to the caller.
const HELD_BYTES_MAX: usize = RECEIVE_AFTER_PAUSE_MAX;

/// An event of the inner driver that was not delivered to the caller yet.
#[derive(Debug)]
pub(super) enum Arrival {
    Accepted(ListenerId, SocketAddr),
    Connected,
    Bytes(Vec<u8>),
    Ended,
    Closed(CloseReason),
}

/// A buffer of the caller that is being sent.
#[derive(Debug)]
struct Send {
    due: u64,
    buffer: Buffer,
    /// Number of bytes of `buffer` that were passed to the inner driver.
    sent: usize,
}

impl Send {
    fn is_sent(&self) -> bool {
        self.sent == self.buffer.len()
    }
}

#[derive(Debug)]
pub(super) struct Sends(VecDeque<Send>);

impl Sends {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct DelayedLink {
    pub(super) generation: u32,
    /// Whether the caller may still use the id.
    pub(super) live: bool,
    /// The transport's id in the inner driver; `None` after the inner transport was closed.
    pub(super) below: Option<ConnectionId>,
    arrivals: VecDeque<(u64, Arrival)>,
    pub(super) sends: Sends,
    pub(super) shutdown: bool,
    shutdown_sent: bool,
    /// Whether more than the low-water mark was queued, so that `Drained` must be reported when the
    /// queue falls to the mark.
    pub(super) is_above_low_water: bool,
    /// Number of unsent bytes as last reported to the caller, by a send or by an event.
    unsent_reported: usize,
    /// If the transport is paused, the number of bytes that may still be delivered.
    paused: Option<usize>,
}

impl DelayedLink {
    pub(super) fn free() -> Self {
        Self {
            generation: 1,
            live: false,
            below: None,
            arrivals: VecDeque::new(),
            sends: Sends(VecDeque::new()),
            shutdown: false,
            shutdown_sent: false,
            is_above_low_water: false,
            unsent_reported: 0,
            paused: None,
        }
    }

    pub(super) fn open(&mut self, below: ConnectionId) {
        self.live = true;
        self.below = Some(below);
    }

    /// Resets the entry for the next transport that uses it.
    pub(super) fn reset(&mut self) {
        let generation = self.generation.wrapping_add(1).max(1);
        *self = Self {
            generation,
            ..Self::free()
        };
    }

    /// Returns how long the next turn may wait for the inner driver, in milliseconds; `None` if it
    /// may wait until the inner driver has an event.
    pub(super) fn wait_ms_max(&self) -> Option<u64> {
        let tellable = match self.arrivals.front() {
            Some((_, Arrival::Bytes(_))) => self.paused != Some(0) || self.is_closed_below(),
            Some((_, Arrival::Ended)) => self.paused.is_none() || self.is_closed_below(),
            Some(_) => true,
            None => false,
        };
        let shutdown_due = self.live && self.shutdown && !self.shutdown_sent;
        if tellable || shutdown_due || self.sends.0.iter().any(|send| !send.is_sent()) {
            return Some(0);
        }
        // All sends were passed to the inner driver. Their completion causes no event here and
        // shows only in the inner driver's `unsent`, so the wait must be short.
        (!self.sends.is_empty() || self.is_above_low_water).then_some(1)
    }

    pub(super) fn is_used(&self) -> bool {
        self.live || !self.arrivals.is_empty()
    }

    fn is_closed_below(&self) -> bool {
        matches!(self.arrivals.back(), Some((_, Arrival::Closed(_))))
    }

    fn held_bytes(&self) -> usize {
        self.arrivals
            .iter()
            .map(|(_, arrival)| {
                if let Arrival::Bytes(bytes) = arrival {
                    bytes.len()
                } else {
                    0
                }
            })
            .sum()
    }

    pub(super) fn wants_bytes(&self) -> bool {
        self.paused.is_none() && self.held_bytes() < HELD_BYTES_MAX
    }

    pub(super) fn pause(&mut self, bytes_max: usize) {
        if self.paused.is_none() {
            self.paused = Some(bytes_max);
        }
    }

    pub(super) fn resume(&mut self) {
        self.paused = None;
    }

    pub(super) fn arrive(&mut self, due: u64, arrival: Arrival) {
        if let Arrival::Closed(reason) = arrival {
            // Buffers that were not sent completely are dropped with the transport.
            self.sends.0.clear();
            self.is_above_low_water = false;
            self.arrivals.push_back((due, Arrival::Closed(reason)));
        } else {
            self.arrivals.push_back((due, arrival));
        }
    }

    /// Closes the transport for the caller, so that only `Closed` is still delivered.
    pub(super) fn close(&mut self, due: u64, reason: CloseReason) {
        self.live = false;
        self.sends.0.clear();
        self.is_above_low_water = false;
        self.arrivals.clear();
        self.arrivals.push_back((due, Arrival::Closed(reason)));
    }

    /// Adds the delayed bytes of this driver to those of the inner driver.
    pub(super) fn detach(&mut self, detached: &mut Detached) {
        let late = self
            .arrivals
            .drain(..)
            .filter_map(|(_, arrival)| match arrival {
                Arrival::Bytes(bytes) => Some(bytes),
                _ => None,
            });
        let first: Vec<u8> = late.flatten().collect();
        detached.received.splice(..0, first);
        for send in &self.sends.0 {
            detached
                .unsent
                .extend_from_slice(&send.buffer.as_slice()[send.sent..]);
        }
    }

    pub(super) fn queue(&mut self, due: u64, buffer: Buffer, given: usize) {
        self.sends.0.push_back(Send {
            due,
            buffer,
            sent: given,
        });
    }

    /// Updates the state after the caller has queued a buffer.
    pub(super) fn queued(&mut self, low_water: usize, driver: &impl Driver) {
        self.unsent_reported = self.unsent(driver);
        self.is_above_low_water |= self.unsent_reported > low_water;
    }

    pub(super) fn unsent(&self, driver: &impl Driver) -> usize {
        let kept: usize = self
            .sends
            .0
            .iter()
            .map(|send| send.buffer.len() - send.sent)
            .sum();
        kept + self.below.map_or(0, |below| driver.unsent(below))
    }

    /// Passes pieces of due buffers to the inner driver.
    pub(super) fn advance_sends(&mut self, turn: u64, rng: &mut Rng, driver: &mut impl Driver) {
        let Some(below) = self.below else { return };
        for send in &mut self.sends.0 {
            if send.due > turn {
                break;
            }
            let rest = &send.buffer.as_slice()[send.sent..];
            if rest.is_empty() {
                continue;
            }
            let piece = if rng.bool() {
                rest.len()
            } else {
                rng.usize(1..=rest.len())
            };
            driver.send(below, Buffer::Owned(rest[..piece].to_vec()), rng.bool());
            send.sent += piece;
            if piece < rest.len() {
                send.due = turn + 1;
                break;
            }
        }
        let all_given = self
            .sends
            .0
            .iter()
            .all(|send| send.sent == send.buffer.len());
        if self.shutdown && !self.shutdown_sent && all_given {
            self.shutdown_sent = true;
            driver.shutdown(below);
        }
    }

    /// Returns the next buffer that the kernel has taken completely.
    pub(super) fn next_sent(&mut self, driver: &impl Driver) -> Option<Buffer> {
        let below = self.below?;
        let front = self.sends.0.front()?;
        // `unsent` includes the bytes of later buffers, so this buffer may be returned later than
        // necessary. That does no harm in this driver.
        if !self.live || front.sent < front.buffer.len() || driver.unsent(below) > 0 {
            return None;
        }
        self.unsent_reported = self.unsent(driver);
        self.sends.0.pop_front().map(|send| send.buffer)
    }

    /// Returns whether `Drained` must be reported: once each time that the unsent bytes fall to the
    /// low-water mark.
    pub(super) fn drained(&mut self, low_water: usize, driver: &impl Driver) -> bool {
        let unsent = self.unsent(driver);
        let drained = self.live && self.is_above_low_water && unsent <= low_water;
        if drained {
            self.is_above_low_water = false;
            self.unsent_reported = unsent;
        }
        drained
    }

    /// Returns whether `Progressed` must be reported: once each time that the unsent bytes fall.
    pub(super) fn progressed(&mut self, driver: &impl Driver) -> bool {
        let unsent = self.unsent(driver);
        let progressed = self.live && unsent > 0 && unsent < self.unsent_reported;
        self.unsent_reported = unsent;
        progressed
    }

    /// Returns the next event to deliver in this turn. Received bytes are delivered in pieces.
    pub(super) fn next_arrival(&mut self, turn: u64, rng: &mut Rng) -> Option<Arrival> {
        let closed_below = self.is_closed_below();
        let (due, front) = self.arrivals.front_mut()?;
        if *due > turn {
            return None;
        }
        let bytes = match front {
            Arrival::Bytes(bytes) => bytes,
            // A paused transport is not read, so the end of the peer's data is delivered only after
            // `resume`.
            Arrival::Ended if self.paused.is_some() && !closed_below => return None,
            _ => return self.arrivals.pop_front().map(|(_, arrival)| arrival),
        };
        let mut piece = if rng.bool() {
            bytes.len()
        } else {
            rng.usize(1..=bytes.len())
        };
        if let Some(left) = &mut self.paused {
            piece = piece.min(*left);
            *left -= piece;
            if piece == 0 && closed_below {
                self.arrivals
                    .retain(|(_, arrival)| matches!(arrival, Arrival::Closed(_)));
                return self.next_arrival(turn, rng);
            }
            if piece == 0 {
                return None;
            }
        }
        if piece == bytes.len() {
            return self.arrivals.pop_front().map(|(_, arrival)| arrival);
        }
        let rest = bytes.split_off(piece);
        let delivered = std::mem::replace(bytes, rest);
        *due = turn + rng.u64(0..2);
        Some(Arrival::Bytes(delivered))
    }
}
