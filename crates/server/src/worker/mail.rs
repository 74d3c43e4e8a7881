//! Letters: what other workers and the control thread sent is taken, and this turn's messages are posted.

use std::sync::Arc;

use veche_apps::{AppMail, Shelf};
use veche_frontends::{Parting, Site};
use veche_mailbox::{Class, Full};
use veche_net::Driver;
use veche_worker::{Accepting, Outgoing, WorkerMessage};

use super::{Host, Rest};
use crate::sealing::Doors;

/// What a worker gets: messages of other workers, whose applications send each other `M`, and orders of the control thread.
pub(crate) enum Letter<M = AppMail> {
    /// From another worker.
    Worker(WorkerMessage<M>),
    /// A new configuration is in force, with so many bytes of an outbox, and with this code of applications.
    Reload(Arc<Site>, usize, Shelf),
    /// Connections come in by these doors from now on.
    Doors(Doors),
    /// The services of the process before have ended: those of this one begin.
    StartServices,
    /// Close everything, spread over so many milliseconds, for that reason.
    Drain(u64, Parting),
    /// The time to drain is over.
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
        // Connections that arrive while the server stops are answered: nobody else would take them from the queue.
        if parting == Parting::Replaced {
            self.set_accepting(driver, Accepting::Nothing);
        }
    }

    /// Posts the turn's messages and gives back the credits of what is finished.
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
                // Data is sent with a credit in hand. Control has room for far more than sessions can ask for; beyond it
                // the rest waits in order, so no answer is lost.
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
