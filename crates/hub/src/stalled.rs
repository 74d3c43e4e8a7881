//! Publications that their home can't order for now.
//!
//! They wait in order of arrival and keep their credits (but for those that wait for the log, see
//! `holds.rs`), so there are never more of them than credits of the lanes they came by, and their
//! sources pause. A stalled publication reserves the
//! lanes that it waits for: nothing that came later takes their next credit, so each is waited for
//! only by those before it. Lanes that no stalled publication needs go on.

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

    /// Whether the next credit of the lane to that worker is spoken for.
    pub(crate) fn reserves(&self, worker: WorkerId) -> bool {
        self.reserved[usize::from(worker.0)]
    }
}

impl<E: Engine> Hub<E> {
    /// Home: keeps a publication until it can be ordered.
    pub(crate) fn stall(&mut self, channel: u32, blocked: Blocked, request: Request) {
        self.channels[channel].waiting += 1;
        self.reserve(channel, blocked);
        self.stalled.mails.push_back(Mail { channel, request });
    }

    /// One pass over all that are stalled, oldest first. Returns whether it ended early, so that sessions hear first what
    /// they have joined.
    pub(crate) fn retry_stalled(&mut self, outlet: &mut impl Outlet) -> bool {
        if self.stalled.mails.is_empty() && self.reports() == 0 {
            self.end_hold(outlet);
            return false;
        }
        self.stalled.reserved.fill(false);
        // They were ordered before.
        if !self.retry_reports(outlet) {
            self.end_hold(outlet);
            return true;
        }
        for _ in 0..self.stalled.mails.len() {
            let Some(mail) = self.stalled.mails.pop_front() else {
                break;
            };
            // Within a pass room only shrinks and reservations only grow, so a publication never
            // overtakes an earlier one of its channel.
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

    /// A full queue here is emptied by the next sweep and needs no reservation.
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
