//! Receives messages from other workers and the control thread, and sends this turn's messages.

use std::sync::Arc;

use veche_apps::{AppSet, AppWorkerMessage};
use veche_frontends::{FrontendConfig, ShutdownReason};
use veche_mailbox::{Class, Full};
use veche_net::Driver;
use veche_worker::{AcceptPolicy, OutgoingMail, WorkerMessage};

use super::{WorkerApps, WorkerState};
use crate::tls_listeners::TlsAcceptors;

/// A message to a worker: from another worker, whose applications send `M`, or from the control thread.
pub(crate) enum WorkerMail<M = AppWorkerMessage> {
    /// A message of another worker.
    Worker(WorkerMessage<M>),
    /// A new configuration, its outbox limit in bytes, and the code of applications.
    Reload(Arc<FrontendConfig>, usize, AppSet),
    /// TLS acceptors of renewed or reloaded certificates, by listener.
    Acceptors(TlsAcceptors),
    /// Starts the services of this process, since those of the previous process have ended.
    StartServices,
    /// Closes all connections, spread over this many milliseconds, for the given reason.
    Drain(u64, ShutdownReason),
    /// Cuts off the connections that are left, at the end of the drain.
    CutOff,
    /// Closes the connections of clients, since commands of other nodes for these clients were
    /// lost.
    Reconnect,
}

impl<A: WorkerApps> WorkerState<A> {
    pub(super) fn receive_messages<D: Driver>(&mut self, driver: &mut D) {
        self.count_unfinished();
        while self.worker.wants_message()
            && let Some((from, message)) = self.mailbox.pop()
        {
            match message {
                WorkerMail::Worker(message) => self.worker.handle_message(from, message),
                WorkerMail::Reload(site, outbox_bytes_max, app_set) => {
                    self.begin_access_log();
                    self.worker
                        .with_apps(|here, shared| here.reload(&app_set, shared));
                    self.worker.set_config(site, outbox_bytes_max);
                }
                WorkerMail::Acceptors(acceptors) => self.acceptors = acceptors,
                WorkerMail::StartServices => {
                    self.worker.with_apps(|here, _| here.start_services());
                }
                WorkerMail::Drain(within_ms, shutdown_reason) => {
                    self.start_draining(driver, within_ms, shutdown_reason)
                }
                WorkerMail::CutOff => self.worker.handle_drain_over(),
                WorkerMail::Reconnect => self.worker.handle_commands_lost(),
            }
        }
    }

    fn start_draining<D: Driver>(
        &mut self,
        driver: &mut D,
        within_ms: u64,
        shutdown_reason: ShutdownReason,
    ) {
        self.worker.handle_drain(within_ms, shutdown_reason);
        // Connections that arrive while the server stops are served, since no other process would accept them.
        if shutdown_reason == ShutdownReason::Replaced {
            self.set_accepting(driver, AcceptPolicy::Nothing);
        }
    }

    /// Sends this turn's messages to other workers, and returns the credits of processed messages to the workers that
    /// sent them.
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
                // Data is sent only with a credit, which guarantees room. Control messages have far more room than
                // sessions can use. Those that find no room wait in order, so none is lost.
                debug_assert!(
                    class == Class::Control,
                    "data must not be sent to worker {to} without a credit"
                );
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
