//! The connections of a worker, beside the driver's table of transports: same index, same generation.

use veche_frontends::Connection;
use veche_hub::SessionId;
use veche_net::{Driver, TransportId};

use super::preface::Preface;
use super::sealed::Seal;

/// A connection and what the driver was last told about it.
pub(super) struct Slot {
    pub(super) connection: Connection,
    /// What a proxy has yet to say before all else.
    pub(super) preface: Option<Box<Preface>>,
    /// Between the transport and the connection, where the peer speaks TLS.
    pub(super) seal: Option<Box<Seal>>,
    generation: u32,
    /// When the driver's timer is set for; `u64::MAX`: it is not.
    pub(super) armed_ms: u64,
    pub(super) stall: Stall,
    paused: bool,
}

/// Whether what is queued makes progress: the driver tells of every step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stall {
    /// 0: nothing is queued.
    since_ms: u64,
}

impl Stall {
    /// A send was not completed at once; whether it is the first.
    pub(super) fn begin(&mut self, now_ms: u64) -> bool {
        let first = self.since_ms == 0;
        if first {
            self.since_ms = now_ms.max(1);
        }
        first
    }

    /// The transport took more; so much is still unsent.
    pub(super) fn progress(&mut self, unsent: usize, now_ms: u64) {
        self.since_ms = if unsent == 0 { 0 } else { now_ms.max(1) };
    }

    /// Since when nothing has moved, if something should.
    pub(super) fn since_ms(&self) -> Option<u64> {
        (self.since_ms != 0).then_some(self.since_ms)
    }
}

impl Slot {
    /// Tells the driver what the connection now wants: a nearer deadline, receiving or not.
    pub(super) fn settle<D: Driver>(&mut self, driver: &mut D, id: TransportId) {
        self.arm(driver, id, self.connection.deadline_ms());
        let stands_in_line = self.seal.as_ref().is_some_and(|seal| seal.is_waiting());
        let blocked = stands_in_line || self.connection.is_blocked().is_some();
        if blocked != self.paused {
            self.paused = blocked;
            if blocked {
                driver.pause(id)
            } else {
                driver.resume(id)
            }
        }
    }

    /// By when what has to come before the connection's own has to be there; `u64::MAX` if nothing has.
    pub(super) fn begin_by_ms(&self) -> u64 {
        let preface = self.preface.as_ref().map(|preface| preface.until_ms());
        let seal = self.seal.as_ref().map(|seal| seal.until_ms());
        preface.or(seal).unwrap_or(u64::MAX)
    }

    /// Makes sure that the timer fires by then. A timer that fires early is looked at and set again, so activity
    /// never touches it.
    pub(super) fn arm<D: Driver>(&mut self, driver: &mut D, id: TransportId, deadline_ms: u64) {
        if deadline_ms < self.armed_ms {
            self.armed_ms = deadline_ms;
            driver.set_timer(id, deadline_ms);
        }
    }
}

#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
}

impl Slots {
    pub(super) fn insert(&mut self, id: SessionId, connection: Connection) -> &mut Slot {
        let index = id.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index].insert(Slot {
            connection,
            preface: None,
            seal: None,
            generation: id.generation,
            armed_ms: u64::MAX,
            stall: Stall::default(),
            paused: false,
        })
    }

    pub(super) fn find(&mut self, id: SessionId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.index as usize)?.as_mut()?;
        (slot.generation == id.generation).then_some(slot)
    }

    pub(super) fn look(&self, id: SessionId) -> Option<&Slot> {
        let slot = self.slots.get(id.index as usize)?.as_ref()?;
        (slot.generation == id.generation).then_some(slot)
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Slot> {
        self.find(id)?;
        self.slots[id.index as usize].take()
    }

    /// One more than the greatest index in use so far.
    pub(super) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn at(&self, index: u32) -> Option<SessionId> {
        let slot = self.slots.get(index as usize)?.as_ref()?;
        Some(SessionId {
            index,
            generation: slot.generation,
        })
    }
}
