//! Publications that their home can't order now.
//!
//! They wait in order of arrival and keep their credits (except for those that wait for the log, see
//! `log_backpressure.rs`), so the credits of their lanes limit their number, and their publishers pause. A stalled
//! publication reserves the lanes to all workers for which it needs a credit: no later publication may take the next
//! credit of these lanes, so each lane is served in order. Lanes that no stalled publication needs are not affected.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::message::Origin;
use crate::payload::PayloadSource;
use crate::publish::Blocked;
use crate::{Engine, Hub, Outlet, Payload, PublishOptions, WorkerId};

pub(crate) struct StalledPublish {
    pub(crate) payload: Payload,
    pub(crate) options: Option<Arc<PublishOptions>>,
    pub(crate) origin: Origin,
    pub(crate) has_credit: bool,
}

struct StalledEntry {
    channel: u32,
    request: StalledPublish,
}

pub(crate) struct Stalled {
    entries: VecDeque<StalledEntry>,
    /// For each worker, whether the next credit of the lane to it is reserved.
    reserved: Box<[bool]>,
}

impl Stalled {
    pub(crate) fn new(workers: u16) -> Self {
        Self {
            entries: VecDeque::new(),
            reserved: vec![false; workers.into()].into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn reserved_count(&self) -> usize {
        self.reserved.iter().filter(|reserved| **reserved).count()
    }

    /// Returns whether the next credit of the lane to that worker is reserved.
    pub(crate) fn reserves(&self, worker: WorkerId) -> bool {
        self.reserved[usize::from(worker.0)]
    }
}

impl<E: Engine> Hub<E> {
    /// At the channel's home: queues a publication until it can be ordered.
    pub(crate) fn stall(&mut self, channel: u32, blocked: Blocked, request: StalledPublish) {
        self.channels[channel].waiting += 1;
        self.reserve(channel, blocked);
        self.stalled
            .entries
            .push_back(StalledEntry { channel, request });
    }

    /// Makes one pass over all stalled publications, oldest first. Returns whether the pass ended early, because
    /// sessions must process their replies to subscriptions first.
    pub(crate) fn retry_stalled(&mut self, outlet: &mut impl Outlet) -> bool {
        if self.stalled.entries.is_empty() && self.reports() == 0 {
            self.engine.reports_passed();
            self.announce_log_room(outlet);
            return false;
        }
        self.stalled.reserved.fill(false);
        // The engine's reports are handled first, since the reported publications were ordered
        // earlier.
        if !self.retry_reports(outlet) {
            self.announce_log_room(outlet);
            return true;
        }
        for _ in 0..self.stalled.entries.len() {
            let Some(mail) = self.stalled.entries.pop_front() else {
                break;
            };
            // While stalled publications are retried, room only decreases and reservations only increase, so no
            // publication overtakes an earlier one of its channel.
            let blocked = self
                .blocked_by_room(mail.channel, outlet)
                .or_else(|| self.blocked_by_engine(mail.channel, false));
            if let Some(blocked) = blocked {
                self.reserve(mail.channel, blocked);
                self.stalled.entries.push_back(mail);
                continue;
            }
            let StalledEntry { channel, request } = mail;
            let payload = PayloadSource::Owned(request.payload);
            let (terms, origin) = (request.options.as_ref(), request.origin);
            if !request.has_credit {
                self.log_backpressure.unstalled(origin.from);
            }
            let published = self.order(channel, payload, terms, origin, outlet);
            self.channels[channel].waiting -= 1;
            self.channels.release(channel);
            self.evict_over_budget();
            self.acknowledge(origin, request.has_credit, published, outlet);
            self.join_leave_queue.mark_unblocked();
        }
        self.announce_log_room(outlet);
        false
    }

    /// At the channel's home: reserves the lanes to the workers with subscribers if a publication is blocked for lack
    /// of credit. A full local queue needs no reservation, because the next sweep empties it.
    pub(crate) fn reserve(&mut self, channel: u32, blocked: Blocked) {
        if blocked == Blocked::Lane {
            let wildcard = self.wildcard_entry(&self.channels[channel].name);
            for index in wildcard.into_iter().chain([channel]) {
                for share in self.channels[index].remote_subscribers.as_slice() {
                    self.stalled.reserved[usize::from(share.worker.0)] = true;
                }
            }
        }
    }
}
