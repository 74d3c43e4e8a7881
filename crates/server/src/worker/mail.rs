//! Letters: what other workers and the control thread sent is taken, and this turn's mail is posted.

use std::sync::Arc;

use veche_frontends::{Census, Parting, Relay, Site};
use veche_hub::{Mail, WorkerId};
use veche_mailbox::{Class, Full};
use veche_net::Driver;

use super::Rest;
use crate::apps::{AppMail, Here, Shelf};
use crate::sealing::Doors;

/// Unfinished mail in a lane with which applications send no more. A lane has 1024 credits.
pub(super) const APP_CREDITS: u32 = 256;

/// Letters taken in a turn.
const MAIL_MAX: usize = 4096;

/// What a worker gets: other hubs' mail and orders of the control thread.
pub(crate) enum Letter {
    /// From the hub of another worker.
    Hub(Mail),
    /// From its applications.
    Apps(AppMail),
    /// Commands for a response of this worker.
    Relay(Relay),
    /// Which connections there are.
    Census(Census),
    /// A new configuration is in force, with so many bytes of an outbox, and with this code of applications.
    Reload(Arc<Site>, usize, Shelf),
    /// Connections come in by these doors from now on.
    Doors(Doors),
    /// Close everything, spread over so many milliseconds, for that reason.
    Drain(u64, Parting),
}

impl Rest {
    pub(super) fn take_mail<D: Driver>(&mut self, driver: &mut D) {
        for lane in 0..self.shared.ports.post.lanes.len() {
            self.shared.ports.post.lanes[lane].unfinished = self.mailbox.unfinished(lane);
        }
        let mut depth = 0;
        while depth < MAIL_MAX
            && let Some((from, letter)) = self.mailbox.pop()
        {
            depth += 1;
            match letter {
                Letter::Hub(mail) => {
                    let from = WorkerId(from as u16);
                    let ports = &mut self.shared.ports;
                    self.shared.hub.receive(from, mail, ports);
                    // Whoever joins a channel hears first what it has joined, and then what the next mail brings.
                    self.hand_answers(driver);
                }
                Letter::Apps(mail) => {
                    self.with_here(|here, shared| here.mail(mail, shared));
                    self.shared.ports.post.lanes[from].finished += 1;
                }
                Letter::Relay(relay) => {
                    self.relayed(driver, &relay);
                    self.shared.ports.post.lanes[from].finished += 1;
                }
                Letter::Census(census) => self.take_census(&census),
                Letter::Reload(site, outbox_bytes_max, shelf) => {
                    self.begin_journal();
                    self.reload_apps(&shelf);
                    self.shared.set_site(site);
                    self.shared
                        .ports
                        .outboxes
                        .set_outbox_bytes_max(outbox_bytes_max);
                }
                Letter::Doors(doors) => self.doors = doors,
                Letter::Drain(within_ms, parting) => {
                    self.start_draining(driver, within_ms, parting)
                }
            }
        }
        self.busy |= depth == MAIL_MAX;
        self.shared.stats.mailbox_depth.set(depth as u64);
    }

    /// Posts the turn's mail and gives back the credits of what is finished.
    pub(super) fn post(&mut self) {
        for to in 0..self.shared.ports.post.lanes.len() {
            let lane = &mut self.shared.ports.post.lanes[to];
            for _ in 0..std::mem::take(&mut lane.finished) {
                self.mailbox.done(to);
            }
            while let Some(mail) = lane.outgoing.pop_front() {
                let class = match mail.class() {
                    veche_hub::Class::Control => Class::Control,
                    veche_hub::Class::Publish | veche_hub::Class::Deliver => Class::Data,
                };
                if let Err(Full(Letter::Hub(mail))) =
                    self.mailbox.post(to, class, Letter::Hub(mail))
                {
                    // Data is sent with a credit in hand and control is bounded by the sessions of a worker, so this
                    // is never; were it wrong, the rest would wait in order.
                    debug_assert!(false, "the lane to worker {to} is full");
                    lane.outgoing.push_front(mail);
                    self.busy = true;
                    break;
                }
                lane.outgoing_data -= u32::from(class == Class::Data);
            }
        }
        self.post_apps();
        self.post_relays();
        for to in 0..self.shared.ports.post.lanes.len() {
            self.shared.ports.post.lanes[to].unfinished = self.mailbox.unfinished(to);
        }
        self.mailbox.flush();
    }

    /// Posts what applications have for those of other workers. It uses a part of the credits alone, so that it does not
    /// hold up the hub; the rest waits.
    fn post_apps(&mut self) {
        let mailbox = &mut self.mailbox;
        let apps = self.shared.apps.as_deref_mut();
        let apps: Option<&mut dyn std::any::Any> = apps.map(|apps| apps as _);
        let Some(here) = apps.and_then(|apps| apps.downcast_mut::<Here>()) else {
            return;
        };
        if !here.has_mail() {
            return;
        }
        for to in 0..self.shared.ports.post.lanes.len() {
            while mailbox.unfinished(to) < APP_CREDITS
                && let Some(mail) = here.next_mail(to)
            {
                if mailbox.post(to, Class::Data, Letter::Apps(mail)).is_err() {
                    debug_assert!(false, "the lane to worker {to} has fewer credits");
                }
            }
        }
    }
}
