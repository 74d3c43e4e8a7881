//! The counts of one thread. They are added up over all threads of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use veche_net::CloseReason;

use crate::latency::{Recorder, Times};
use crate::ledger::DeliveryLedger;
use crate::report::model::{Errors, HttpTally, Step};

/// A cause of errors that reports count separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCause {
    Refused,
    TimedOut,
    Reset,
    Closed,
    BadHandshake,
    Tls,
    BadProtocol,
    WrongAnswer,
    BadResponse,
    System,
    Script,
}

impl ErrorCause {
    /// Returns the cause's name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::BadHandshake => "bad_handshake",
            Self::Tls => "tls",
            Self::BadProtocol => "bad_protocol",
            Self::WrongAnswer => "wrong_answer",
            Self::BadResponse => "bad_response",
            Self::System => "system",
            Self::Script => "script",
        }
    }
}

/// An error with its cause and description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorCase {
    pub(crate) cause: ErrorCause,
    pub(crate) words: String,
}

impl ErrorCase {
    pub(crate) fn new(cause: ErrorCause, words: impl Into<String>) -> Self {
        Self {
            cause,
            words: words.into(),
        }
    }
}

impl From<CloseReason> for ErrorCase {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Requested => Self::new(ErrorCause::Closed, "the connection was closed"),
            CloseReason::Reset => Self::new(ErrorCause::Reset, "the connection was reset"),
            CloseReason::Refused => Self::new(ErrorCause::Refused, "connection refused"),
            CloseReason::TimedOut => Self::new(ErrorCause::TimedOut, "the network timed out"),
            CloseReason::Error(errno) => Self::new(
                ErrorCause::System,
                std::io::Error::from_raw_os_error(errno).to_string(),
            ),
        }
    }
}

/// The counts of one thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) asked: u64,
    pub(crate) opened: u64,
    pub(crate) failed: u64,
    pub(crate) disconnected: u64,
    pub(crate) reconnected: u64,
    pub(crate) dead: u64,
    pub(crate) sent: u64,
    /// The number of answers to messages due in the measured time, whenever the answers arrived.
    pub(crate) received: u64,
    /// The number of `received` answers that arrived in the measured time, or so soon after it that
    /// the server counts as keeping up.
    pub(crate) in_time: u64,
    /// The number of answers that arrived in the measured time, regardless of when their messages were due.
    pub(crate) came: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) unasked: u64,
    pub(crate) heartbeats: u64,
    /// For echoes without a stamp: the number of lost or surplus messages, which show that answers can't be matched.
    pub(crate) unpaired: u64,
    pub(crate) duplicated: u64,
    pub(crate) late: u64,
    pub(crate) lost: u64,
    pub(crate) unanswered: u64,
    pub(crate) faults: BTreeMap<ErrorCause, u64>,
    pub(crate) examples: BTreeMap<ErrorCause, String>,
    pub(crate) latency: Recorder,
    pub(crate) handshake: Times,
    /// The time of the first attempt to connect.
    pub(crate) first_connect_ns: Option<u64>,
    /// The time at which the last connection had opened or failed.
    pub(crate) settled_ns: Option<u64>,
    pub(crate) http: Option<HttpTally>,
    pub(crate) delivery_ledger: Option<DeliveryLedger>,
    pub(crate) steps: Vec<Step>,
    /// The CPU time of the busiest thread.
    pub(crate) cpu_ns_max: u64,
    /// The CPU time of all threads together.
    pub(crate) cpu_ns: u64,
    /// The longest time that any thread was ready to run without having a core.
    pub(crate) waited_ns_max: u64,
    pub(crate) lag_ns_max: u64,
    /// The longest time that any thread did not run, in addition to its intended wait.
    pub(crate) pause_ns_max: u64,
    pub(crate) unsent_bytes_max: u64,
    pub(crate) late_sends: u64,
    pub(crate) late_connects: u64,
}

impl Tally {
    pub(crate) fn fault(&mut self, fault: &ErrorCase) {
        self.faults(fault, 1);
    }

    /// Counts an error `count` times; 0 has no effect.
    pub(crate) fn faults(&mut self, fault: &ErrorCase, count: u64) {
        if count == 0 {
            return;
        }
        *self.faults.entry(fault.cause).or_default() += count;
        self.examples
            .entry(fault.cause)
            .or_insert_with(|| fault.words.clone());
    }

    pub(crate) fn response(&mut self, status: u16, body_bytes: u64) {
        let http = self.http.get_or_insert_default();
        *http.statuses.entry(status).or_default() += 1;
        http.add_length(body_bytes, 1);
    }

    pub(crate) fn fault_count(&self) -> u64 {
        self.faults.values().sum()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.opened += other.opened;
        self.failed += other.failed;
        self.disconnected += other.disconnected;
        self.reconnected += other.reconnected;
        self.dead += other.dead;
        self.sent += other.sent;
        self.received += other.received;
        self.in_time += other.in_time;
        self.came += other.came;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.unasked += other.unasked;
        self.heartbeats += other.heartbeats;
        self.unpaired += other.unpaired;
        self.duplicated += other.duplicated;
        self.late += other.late;
        self.lost += other.lost;
        self.unanswered += other.unanswered;
        for (cause, count) in other.faults {
            *self.faults.entry(cause).or_default() += count;
        }
        for (cause, words) in other.examples {
            self.examples.entry(cause).or_insert(words);
        }
        self.latency.add(other.latency);
        self.handshake.add(&other.handshake);
        self.first_connect_ns = [self.first_connect_ns, other.first_connect_ns]
            .into_iter()
            .flatten()
            .min();
        self.settled_ns = self.settled_ns.max(other.settled_ns);
        if let Some(http) = &other.http {
            self.http.get_or_insert_default().add(http);
        }
        if let Some(delivery_ledger) = other.delivery_ledger {
            self.delivery_ledger
                .get_or_insert_default()
                .add(delivery_ledger);
        }
        self.steps.extend(other.steps);
        self.cpu_ns_max = self.cpu_ns_max.max(other.cpu_ns_max);
        self.cpu_ns += other.cpu_ns;
        self.waited_ns_max = self.waited_ns_max.max(other.waited_ns_max);
        self.lag_ns_max = self.lag_ns_max.max(other.lag_ns_max);
        self.pause_ns_max = self.pause_ns_max.max(other.pause_ns_max);
        self.unsent_bytes_max = self.unsent_bytes_max.max(other.unsent_bytes_max);
        self.late_sends += other.late_sends;
        self.late_connects += other.late_connects;
    }

    pub(crate) fn errors(&self) -> Errors {
        let count = |cause| self.faults.get(&cause).copied().unwrap_or_default();
        Errors {
            refused: count(ErrorCause::Refused),
            timed_out: count(ErrorCause::TimedOut),
            reset: count(ErrorCause::Reset),
            closed: count(ErrorCause::Closed),
            bad_handshake: count(ErrorCause::BadHandshake),
            tls: count(ErrorCause::Tls),
            bad_protocol: count(ErrorCause::BadProtocol),
            wrong_answer: count(ErrorCause::WrongAnswer),
            bad_response: count(ErrorCause::BadResponse),
            system: count(ErrorCause::System),
            script: count(ErrorCause::Script),
            examples: self
                .examples
                .iter()
                .map(|(cause, words)| (cause.name().to_owned(), words.clone()))
                .collect(),
        }
    }
}
