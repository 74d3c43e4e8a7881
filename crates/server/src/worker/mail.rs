//! Letters: what other workers and the control thread sent is taken, and this turn's messages are posted.

use std::sync::Arc;

use veche_apps::{AppSet, AppWorkerMessage};
use veche_frontends::{FrontendConfig, ShutdownReason};
use veche_mailbox::{Class, Full};
use veche_net::Driver;
use veche_worker::{AcceptPolicy, OutgoingMail, WorkerMessage};

use super::{WorkerApps, WorkerState};
use crate::tls_listeners::TlsAcceptors;

/// What a worker gets: messages of other workers, whose applications send each other `M`, and orders of the control thread.
pub(crate) enum WorkerMail<M = AppWorkerMessage> {
    /// From another worker.
    Worker(WorkerMessage<M>),
    /// A new configuration is in force, with so many bytes of an outbox, and with this code of applications.
    Reload(Arc<FrontendConfig>, usize, AppSet),
    /// Connections come in by these doors from now on.
    Doors(TlsAcceptors),
    /// The services of the process before have ended: those of this one begin.
    StartServices,
    /// Close everything, spread over so many milliseconds, for that reason.
    Drain(u64, ShutdownReason),
    /// The time to drain is over.
    CutOff,
}

impl<A: WorkerApps> WorkerState<A> {
    pub(super) fn receive_messages<D: Driver>(&mut self, driver: &mut D) {
        self.count_unfinished();
        while self.worker.wants_message()
            && let Some((from, letter)) = self.mailbox.pop()
        {
            match letter {
                WorkerMail::Worker(message) => self.worker.handle_message(from, message),
                WorkerMail::Reload(site, outbox_bytes_max, shelf) => {
                    self.begin_access_log();
                    self.worker
                        .with_apps(|here, shared| here.reload(&shelf, shared));
                    self.worker.set_config(site, outbox_bytes_max);
                }
                WorkerMail::Doors(doors) => self.doors = doors,
                WorkerMail::StartServices => {
                    self.worker.with_apps(|here, _| here.start_services());
                }
                WorkerMail::Drain(within_ms, parting) => {
                    self.start_draining(driver, within_ms, parting)
                }
                WorkerMail::CutOff => self.worker.handle_drain_over(),
            }
        }
    }

    fn start_draining<D: Driver>(
        &mut self,
        driver: &mut D,
        within_ms: u64,
        parting: ShutdownReason,
    ) {
        self.worker.handle_drain(within_ms, parting);
        // Connections that arrive while the server stops are answered: nobody else would take them from the queue.
        if parting == ShutdownReason::Replaced {
            self.set_accepting(driver, AcceptPolicy::Nothing);
        }
    }

    /// Posts the turn's messages and gives back the credits of what is finished.
    pub(super) fn send_messages(&mut self) {
        for to in 0..self.worker.workers() {
            for _ in 0..self.worker.poll_finished(to) {
                self.mailbox.done(to);
            }
        }
        while let Some(OutgoingMail { to, message }) = self.worker.poll_message() {
            let class = match message.is_data() {
                true => Class::Data,
                false => Class::Control,
            };
            if let Err(Full(WorkerMail::Worker(message))) =
                self.mailbox.post(to, class, WorkerMail::Worker(message))
            {
                // Data is sent with a credit in hand. Control has room for far more than sessions can ask for; beyond it
                // the rest waits in order, so no answer is lost.
                debug_assert!(class == Class::Control, "no credit for worker {to}");
                self.worker.put_back(OutgoingMail { to, message });
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
