//! The glue's interfaces to applications, history and hooks: one implementation in the server, others in tests.

use veche_apps::{Asked, Here, Shelf};
use veche_archive::{Durable, Record, Refused, Writer};
use veche_frontends::Shared;
use veche_frontends::hooks::{Question, Verdict};
use veche_webhooks::hooks::{Done, Hooks};
use veche_worker::AppHost;

/// The applications of a worker, as seen by its driver.
pub(crate) trait Host: AppHost {
    /// Takes the applications' requests for sockets.
    fn take_asked(&mut self) -> Vec<Asked>;

    /// Replaces the code.
    fn reload(&mut self, shelf: &Shelf, shared: &mut Shared);

    /// Starts the services that were held back.
    fn start_services(&mut self);
}

impl Host for Here {
    fn take_asked(&mut self) -> Vec<Asked> {
        self.take_asked()
    }

    fn reload(&mut self, shelf: &Shelf, shared: &mut Shared) {
        self.reload(shelf, shared);
    }

    fn start_services(&mut self) {
        self.start_services();
    }
}

/// The destination of history: see [`Writer`], which implements these methods.
pub(crate) trait Log {
    fn append(&mut self, records: Vec<Record>) -> Result<u64, Refused>;

    fn durable(&mut self) -> Option<Durable>;

    fn is_failing(&self) -> bool;

    fn is_closed(&self) -> bool;
}

impl Log for Writer {
    fn append(&mut self, records: Vec<Record>) -> Result<u64, Refused> {
        self.append(records)
    }

    fn durable(&mut self) -> Option<Durable> {
        self.durable()
    }

    fn is_failing(&self) -> bool {
        self.is_failing()
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }
}

/// Decides on clients' commands: see [`Hooks::ask`].
pub(crate) trait Decide {
    fn ask(&self, question: Question, done: Done) -> Option<Verdict>;
}

impl Decide for Hooks {
    fn ask(&self, question: Question, done: Done) -> Option<Verdict> {
        self.ask(question, done)
    }
}
