//! Back pressure from homes whose log is full.
//!
//! If a publication for a channel with history arrives while its home's log is full, it is stalled,
//! as if there were no credit for it. Unlike other stalled publications, it does not keep its
//! credit, because channels without history need the lane too. To limit the number of stalled
//! publications, the home asks all other workers to hold such publications back, and notifies them
//! when its log has room again. Until a worker receives this request, the credits of its lane limit
//! how many publications it still sends.

use std::mem;

use crate::reports::has_history;
use crate::{ChannelName, Engine, Hub, HubMessage, HubMessageClass, Outlet, WorkerId};

/// Maximum number of publications per sending worker that are stalled without a credit; further ones keep their credit.
const WITHOUT_CREDIT_MAX: u32 = 1024;

/// The state of the back pressure from full logs, for a worker as publisher and as home of
/// channels.
pub(crate) struct LogBackpressure {
    /// For each worker, whether it has reported, as the home of channels, that its log is full.
    full_homes: Box<[bool]>,
    /// At the home of channels: whether the other workers were notified that the log is full.
    is_announced: bool,
    /// At the home of channels: the number of publications stalled without a credit, by sending worker.
    stalled: Box<[u32]>,
}

impl LogBackpressure {
    pub(crate) fn new(workers: u16) -> Self {
        Self {
            full_homes: vec![false; workers.into()].into(),
            is_announced: false,
            stalled: vec![0; workers.into()].into(),
        }
    }

    /// Returns the number of publications stalled without a credit, and of homes, this worker included, that have reported
    /// a full log and not yet that it has room again.
    pub(crate) fn sizes(&self) -> [u64; 2] {
        let stalled = self.stalled.iter().map(|count| u64::from(*count)).sum();
        let full = self.full_homes.iter().filter(|is_full| **is_full).count() as u64;
        [stalled, full + u64::from(self.is_announced)]
    }

    /// As a publisher: records whether the log of a home is full.
    pub(crate) fn set(&mut self, home: WorkerId, is_full: bool) {
        self.full_homes[usize::from(home.0)] = is_full;
    }

    /// At the home of channels: decrements the number of publications stalled without a credit,
    /// because one of them was ordered.
    pub(crate) fn unstalled(&mut self, from: WorkerId) {
        self.stalled[usize::from(from.0)] -= 1;
    }
}

impl<E: Engine> Hub<E> {
    /// Returns whether this worker must hold back a publication to another home, because the log of that home is full.
    #[inline]
    pub(crate) fn must_wait_for_log(&self, home: WorkerId, channel: ChannelName<'_>) -> bool {
        self.log_backpressure.full_homes[usize::from(home.0)]
            && has_history(&self.namespaces, channel.as_str())
    }

    /// At the channel's home: must be called before a publication of another worker is stalled. If the log is full,
    /// notifies the other workers. Returns whether the publication keeps its credit; if not, the credit was returned.
    pub(crate) fn announce_full_log(
        &mut self,
        index: u32,
        from: WorkerId,
        outlet: &mut impl Outlet,
    ) -> bool {
        if !self.engine.is_full() || !self.may_wait(index) {
            return true;
        }
        if !mem::replace(&mut self.log_backpressure.is_announced, true) {
            self.broadcast_log_state(true, outlet);
        }
        let stalled = &mut self.log_backpressure.stalled[usize::from(from.0)];
        if *stalled >= WITHOUT_CREDIT_MAX {
            return true;
        }
        *stalled += 1;
        outlet.return_credit(from, HubMessageClass::Publish);
        false
    }

    /// At the channel's home: notifies the other workers once the log has room again.
    pub(crate) fn announce_log_room(&mut self, outlet: &mut impl Outlet) {
        if self.log_backpressure.is_announced && !self.engine.is_full() {
            self.log_backpressure.is_announced = false;
            self.broadcast_log_state(false, outlet);
        }
    }

    fn broadcast_log_state(&self, is_full: bool, outlet: &mut impl Outlet) {
        let others = (0..self.workers).map(WorkerId).filter(|&to| to != self.me);
        others.for_each(|to| outlet.send_message(to, HubMessage::LogFull { is_full }));
    }
}
