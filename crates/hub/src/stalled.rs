//! Publications that their home can't order yet.
//!
//! They wait in order of arrival and keep their credits (except for those that wait for the log, see `holds.rs`), so
//! their number is bounded by the credits of their lanes, and their sources pause. A stalled publication reserves the
//! lanes that it waits for: nothing that arrived later takes their next credit, so each lane is waited for in order.
//! Lanes that no stalled publication needs continue.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::mail::Origin;
use crate::payload::Source;
use crate::publish::Blocked;
use crate::{Engine, Hub, Outlet, Payload, PublishOptions, WorkerId};

pub(crate) struct Request {
    pub(crate) payload: Payload,
    pub(crate) terms: Option<Arc<PublishOptions>>,
    pub(crate) origin: Origin,
    pub(crate) has_credit: bool,
}

struct Mail {
    channel: u32,
    request: Request,
}

pub(crate) struct Stalled {
    mails: VecDeque<Mail>,
    /// By worker.
    reserved: Box<[bool]>,
}

impl Stalled {
    pub(crate) fn new(workers: u16) -> Self {
        Self {
            mails: VecDeque::new(),
            reserved: vec![false; workers.into()].into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.mails.len()
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
    /// Home: queues a publication until it can be ordered.
    pub(crate) fn stall(&mut self, channel: u32, blocked: Blocked, request: Request) {
        self.channels[channel].waiting += 1;
        self.reserve(channel, blocked);
        self.stalled.mails.push_back(Mail { channel, request });
    }

    /// Makes one pass over all stalled publications, oldest first. Returns whether it ended early because sessions must
    /// process their subscriptions first.
    pub(crate) fn retry_stalled(&mut self, outlet: &mut impl Outlet) -> bool {
        if self.stalled.mails.is_empty() && self.reports() == 0 {
            self.end_hold(outlet);
            return false;
        }
        self.stalled.reserved.fill(false);
        // Reports were ordered earlier.
        if !self.retry_reports(outlet) {
            self.end_hold(outlet);
            return true;
        }
        for _ in 0..self.stalled.mails.len() {
            let Some(mail) = self.stalled.mails.pop_front() else {
                break;
            };
            // During a pass room only shrinks and reservations only grow, so no publication overtakes an earlier one of
            // its channel.
            let blocked = self
                .blocked_by_room(mail.channel, outlet)
                .or_else(|| self.blocked_by_engine(mail.channel, false));
            if let Some(blocked) = blocked {
                self.reserve(mail.channel, blocked);
                self.stalled.mails.push_back(mail);
                continue;
            }
            let Mail { channel, request } = mail;
            let payload = Source::Kept(request.payload);
            let (terms, origin) = (request.terms.as_ref(), request.origin);
            if !request.has_credit {
                self.holds.placed(origin.from);
            }
            let published = self.order(channel, payload, terms, origin, outlet);
            self.channels[channel].waiting -= 1;
            self.channels.release(channel);
            self.keep_to_budget();
            self.taken(origin, request.has_credit, published, outlet);
            self.announcements.look_again();
        }
        self.end_hold(outlet);
        false
    }

    /// The next sweep empties a full local queue, so that needs no reservation.
    pub(crate) fn reserve(&mut self, channel: u32, blocked: Blocked) {
        if blocked == Blocked::Lane {
            let overheard = self.overheard(&self.channels[channel].name);
            for index in overheard.into_iter().chain([channel]) {
                for share in self.channels[index].shares.as_slice() {
                    self.stalled.reserved[usize::from(share.worker.0)] = true;
                }
            }
        }
    }
}
