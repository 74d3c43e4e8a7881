//! The simulated world's side of a worker's mailboxes: takes the messages that the worker sends, and delivers messages
//! to the worker.

use std::convert::Infallible;

use veche_mailbox::{Class, Mailbox, Options, Wake};
use veche_sim::worker_driver::{self, WorkerOutput};

use super::OutputRecord;
use crate::worker::WorkerMail;

/// The type of messages between the workers of a simulated world.
type WorldMail = WorkerMail<Infallible>;

/// The mailboxes that exchange messages with one worker: those of the other workers and of the control thread.
pub(super) struct Mailboxes {
    me: usize,
    ends: Vec<Option<Mailbox<WorldMail>>>,
    /// For each mailbox in `ends`, the number of the worker's data messages that were taken and
    /// whose credit has not been returned.
    taken: Vec<u32>,
}

/// Records that the worker under test has sent messages to the mailbox with this number.
struct DepartureRecorder(OutputRecord, usize);

impl Wake for DepartureRecorder {
    fn wake(&self) {
        self.0.lock().push(WorkerOutput::Posted(self.1, Vec::new()));
    }
}

impl Mailboxes {
    /// Creates the mailbox of worker `me`, and the mailboxes that exchange messages with it. The
    /// worker's hub uses at most `credits` credits of each lane.
    pub(super) fn new(
        me: usize,
        workers: usize,
        credits: u32,
        record: &OutputRecord,
    ) -> (Mailbox<WorldMail>, Self) {
        let options = Options {
            // One call of `has_credit` may cover two deliveries, so a lane has one credit more than the hub uses.
            credits: credits + 1,
            ..Options::default()
        };
        let mut own = None;
        let mut ends = Vec::new();
        for (place, end) in Mailbox::mesh(workers + 1, &options).into_iter().enumerate() {
            if place == me {
                own = Some(end);
                ends.push(None);
                continue;
            }
            end.attach(DepartureRecorder(record.clone(), place));
            ends.push(Some(end));
        }
        let taken = vec![0; ends.len()];
        (
            own.expect("the number of the worker must be less than the number of workers"),
            Self { me, ends, taken },
        )
    }

    /// Delivers the messages of each lane to the worker. Then returns credits to the worker, until for each
    /// lane the number of credits not yet returned is that in `unfinished`.
    pub(super) fn deliver(
        &mut self,
        messages: Vec<Vec<worker_driver::LaneMail>>,
        unfinished: &[u32],
    ) {
        let me = self.me;
        for (from, messages) in messages.into_iter().enumerate() {
            let Some(end) = &mut self.ends[from] else {
                assert!(
                    messages.is_empty(),
                    "worker {me} must not send messages to itself"
                );
                continue;
            };
            for message in messages {
                let (class, message) = match message {
                    worker_driver::LaneMail::Message(message) if message.is_data() => {
                        (Class::Data, WorkerMail::Worker(message))
                    }
                    worker_driver::LaneMail::Message(message) => {
                        (Class::Control, WorkerMail::Worker(message))
                    }
                    worker_driver::LaneMail::Drain(within_ms, shutdown_reason) => (
                        Class::Control,
                        WorkerMail::Drain(within_ms, shutdown_reason),
                    ),
                };
                assert!(
                    end.post(me, class, message).is_ok(),
                    "the mailbox lane from worker {from} must have room"
                );
            }
            end.flush();
            let unfinished = unfinished.get(from).copied().unwrap_or(0);
            for _ in unfinished..self.taken[from] {
                end.done(me);
            }
            self.taken[from] = unfinished;
            end.sleep();
        }
    }

    /// Returns, for each mailbox in `ends`, the number of delivered data messages that the worker
    /// has not finished.
    pub(super) fn unfinished(&self) -> Vec<u32> {
        let ends = self.ends.iter();
        let unfinished = ends.map(|end| end.as_ref().map_or(0, |end| end.unfinished(self.me)));
        unfinished.collect()
    }

    /// Takes the messages that the worker has sent to the worker `to`.
    pub(super) fn take(&mut self, to: usize) -> Vec<worker_driver::WorldMessage> {
        let mut messages = Vec::new();
        while let Some(end) = &mut self.ends[to]
            && let Some((_, message)) = end.pop()
        {
            let WorkerMail::Worker(message) = message else {
                panic!("a worker can't send a command of the control thread");
            };
            self.taken[to] += u32::from(message.is_data());
            messages.push(message);
        }
        messages
    }
}
