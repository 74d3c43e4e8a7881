//! Worker messages: receives those of other workers and the control thread, and sends those of this turn.

use std::sync::Arc;

use veche_apps::{AppMail, Shelf};
use veche_frontends::{Parting, Site};
use veche_mailbox::{Class, Full};
use veche_net::Driver;
use veche_worker::{Accepting, Outgoing, WorkerMessage};

use super::{Host, Rest};
use crate::sealing::Doors;

/// A message to a worker: from another worker, whose applications send `M`, or from the control thread.
pub(crate) enum Letter<M = AppMail> {
    /// A message of another worker.
    Worker(WorkerMessage<M>),
    /// A new configuration, its outbox limit in bytes, and the code of applications.
    Reload(Arc<Site>, usize, Shelf),
    /// New TLS acceptors.
    Doors(Doors),
    /// The services of the previous process have ended: those of this one start.
    StartServices,
    /// Closes all connections, spread over this many milliseconds, for a reason.
    Drain(u64, Parting),
    /// Cuts off the connections that are left, at the end of the drain.
    CutOff,
    /// Commands of other nodes about clients are lost.
    Reconnect,
}

impl<A: Host> Rest<A> {
    pub(super) fn take_mail<D: Driver>(&mut self, driver: &mut D) {
        self.count_unfinished();
        while self.worker.wants_message()
            && let Some((from, letter)) = self.mailbox.pop()
        {
            match letter {
                Letter::Worker(message) => self.worker.handle_message(from, message),
                Letter::Reload(site, outbox_bytes_max, shelf) => {
                    self.begin_journal();
                    self.worker
                        .with_apps(|here, shared| here.reload(&shelf, shared));
                    self.worker.set_site(site, outbox_bytes_max);
                }
                Letter::Doors(doors) => self.doors = doors,
                Letter::StartServices => {
                    self.worker.with_apps(|here, _| here.start_services());
                }
                Letter::Drain(within_ms, parting) => {
                    self.start_draining(driver, within_ms, parting)
                }
                Letter::CutOff => self.worker.handle_drain_over(),
                Letter::Reconnect => self.worker.handle_commands_lost(),
            }
        }
    }

    fn start_draining<D: Driver>(&mut self, driver: &mut D, within_ms: u64, parting: Parting) {
        self.worker.handle_drain(within_ms, parting);
        // Connections that arrive while the server stops are answered, since no other process would take them.
        if parting == Parting::Replaced {
            self.set_accepting(driver, Accepting::Nothing);
        }
    }

    /// Sends the turn's messages and returns credits.
    pub(super) fn post(&mut self) {
        for to in 0..self.worker.workers() {
            for _ in 0..self.worker.poll_finished(to) {
                self.mailbox.done(to);
            }
        }
        while let Some(Outgoing { to, message }) = self.worker.poll_message() {
            let class = match message.is_data() {
                true => Class::Data,
                false => Class::Control,
            };
            if let Err(Full(Letter::Worker(message))) =
                self.mailbox.post(to, class, Letter::Worker(message))
            {
                // Data is sent with a credit. Control messages have far more room than sessions can use; beyond it they
                // wait in order, so none is lost.
                debug_assert!(class == Class::Control, "no credit for worker {to}");
                self.worker.put_back(Outgoing { to, message });
                break;
            }
        }
        self.count_unfinished();
        self.mailbox.flush();
    }

    fn count_unfinished(&mut self) {
        for to in 0..self.worker.workers() {
            self.worker.handle_credits(to, self.mailbox.unfinished(to));
        }
    }
}
