//! Homes whose log takes no more.
//!
//! A publication that is to be kept and finds its home's log full is stalled like one without credit, but gives its credit
//! back: channels without history need the lane too. So that no more of them come than have a bound here, the home tells
//! all other workers to hold theirs back, and again when its log has room. Until a worker has heard it, its credits limit
//! what it still sends.

use std::mem;

use crate::reports::remembers;
use crate::{ChannelName, Class, Engine, Hub, Mail, Outlet, WorkerId};

/// Stalled publications of each worker that have no credit. What comes beyond keeps its credit.
const WITHOUT_CREDIT_MAX: u32 = 1024;

/// See the module.
pub(crate) struct Holds {
    /// As publisher: the homes whose log takes no more, by worker.
    full: Box<[bool]>,
    /// As home: the others have been told that the log here takes no more.
    is_told: bool,
    /// As home: stalled publications without credit, by worker.
    stalled: Box<[u32]>,
}

impl Holds {
    pub(crate) fn new(workers: u16) -> Self {
        Self {
            full: vec![false; workers.into()].into(),
            is_told: false,
            stalled: vec![0; workers.into()].into(),
        }
    }

    /// As publisher: this home takes them again, or does not.
    pub(crate) fn set(&mut self, home: WorkerId, is_full: bool) {
        self.full[usize::from(home.0)] = is_full;
    }

    /// As home: a publication that was stalled without credit has its place.
    pub(crate) fn placed(&mut self, from: WorkerId) {
        self.stalled[usize::from(from.0)] -= 1;
    }
}

impl<E: Engine> Hub<E> {
    /// Returns whether a publication to another home has to wait here for that home's log.
    #[inline]
    pub(crate) fn is_held(&self, home: WorkerId, channel: ChannelName<'_>) -> bool {
        self.holds.full[usize::from(home.0)] && remembers(&self.namespaces, channel.as_str())
    }

    /// Home: a publication of another worker is about to be stalled. Returns whether it keeps its credit.
    pub(crate) fn hold(&mut self, index: u32, from: WorkerId, outlet: &mut impl Outlet) -> bool {
        if !self.engine.is_full() || !self.may_wait(index) {
            return true;
        }
        if !mem::replace(&mut self.holds.is_told, true) {
            self.tell_all(true, outlet);
        }
        let stalled = &mut self.holds.stalled[usize::from(from.0)];
        if *stalled >= WITHOUT_CREDIT_MAX {
            return true;
        }
        *stalled += 1;
        outlet.mail_done(from, Class::Publish);
        false
    }

    /// Home: tells the others once the log has room again.
    pub(crate) fn end_hold(&mut self, outlet: &mut impl Outlet) {
        if self.holds.is_told && !self.engine.is_full() {
            self.holds.is_told = false;
            self.tell_all(false, outlet);
        }
    }

    fn tell_all(&self, is_full: bool, outlet: &mut impl Outlet) {
        let others = (0..self.workers).map(WorkerId).filter(|&to| to != self.me);
        others.for_each(|to| outlet.mail(to, Mail::LogFull { is_full }));
    }
}
