//! The results of a run as plain data: the public format of `--json`, and the source of texts, pages and comparisons.
//!
//! Units are part of the names. A figure that was not measured is absent, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of this format; it increases when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 3;

/// The report of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format: 3. It increases when a field changes its meaning or is removed, not when one is added.
    pub schema: u32,
    /// The kind of run: `storm`, `echo`, `broadcast`, `shootout`, `http`, `push`, `script` or `scenario`.
    pub kind: String,
    /// The URL, or the first of several.
    pub target: String,
    /// Start time: RFC 3339, UTC.
    pub started: String,
    /// The machine and the program that measured.
    pub machine: Machine,
    /// The parameters of the run.
    pub settings: Settings,
    /// Length of the measured time, without warm-up.
    pub seconds: f64,
    /// Whether Ctrl-C or SIGTERM ended the run early: all figures are then partial and the exit code is 130.
    pub interrupted: bool,
    /// Whether the run was ended early because an objective could no longer be met (`stop_on_broken` of a scenario):
    /// the figures cover the time until then.
    #[serde(default)]
    pub stopped: bool,
    /// Whether processes of the tester were lost (`generator.lost`): the figures are then those of the remaining
    /// processes and the exit code is 8.
    #[serde(default)]
    pub incomplete: bool,
    /// The numbers of connections by outcome.
    pub connections: ConnectionCounts,
    /// The traffic of the measured time.
    pub messages: Messages,
    /// Errors by cause, over the whole run.
    pub errors: Errors,
    /// Time from the intended (open loop) or actual (closed loop) sending of a message to its
    /// answer or delivery. Error responses are excluded. Absent if there were no answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Why `latency_us` is missing although answers arrived: `settings.stamped` is false, and the
    /// numbers of messages and answers differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_refused: Option<String>,
    /// Time from the start of the connect (or with `--connect-rate` from when it was due) to the
    /// end of the handshake. The fields are those of `latency_us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_us: Option<Latency>,
    /// The distribution of `latency_us`. Each bucket counts the latencies that are above the previous
    /// bucket's bound and at most its own bound. Bounds increase, and empty buckets are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bucket>,
    /// The distribution of `latency_us` with three significant digits, for a file of percentiles.
    /// Not part of the public format.
    #[serde(skip)]
    pub distribution: Option<Distribution>,
    /// Figures over time, for equal steps of the measured time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Interval>,
    /// What happened to each numbered message at each receiver, over the whole run with warm-up.
    /// `expected` is the sum of `delivered`, `lost`, `away` and the `corrupted` messages that are
    /// not copies of delivered ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerCounts>,
    /// The responses of an `http` run. If statuses or lengths differ, averages over all responses
    /// mean little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpTally>,
    /// The sessions and timed actions of a load script's users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptTally>,
    /// The steps of a shootout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The result and the steps of a search for the highest rate. [`Search::rate`] determines which of its runs
    /// the rest of the report describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// Resource use of the server's processes during the measurement, with `--pid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerUse>,
    /// The process id of `--pid`, if the process ended before the measurement did. Its resource use
    /// is then unknown, so `server` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_ended: Option<u32>,
    /// The resources that the tester used, and whether it was the bottleneck.
    pub generator: GeneratorUse,
    /// The phases of a scenario, each a report of this format.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Self>,
    /// The objectives of a scenario or of a phase, with their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Objective>,
}

/// The tester and its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of the tester.
    pub veche: String,
    /// Processor name of the tester's machine.
    pub cpu: String,
    /// Number of cores available to the tester.
    pub cores: usize,
    /// The kernel release of the tester's machine.
    pub kernel: String,
}

/// The parameters of a run. Parameters that do not apply to this kind of run are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The arguments after `bench`. Values of `--header`, `--publish-header` and `--cookie` are
    /// masked as `***`, except the values of headers such as `Origin` and `Content-Type`.
    pub command: Vec<String>,
    /// A name for the run: `compare` treats runs with the same label as samples of one group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Requested number of connections.
    pub connections: u64,
    /// Planned length of the measurement; absent for runs that end by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Time at the beginning that is excluded from the figures.
    pub warmup_s: f64,
    /// Target rate of an open loop: messages, requests or publications per second over all connections. If the rate
    /// changes during the run, this is its average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Bytes of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether messages contain the numbers of their connection and of the message, by which
    /// answers are matched. `echo` and `storm` do this for messages of at least 16 bytes, except
    /// with `--message` and `--file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamped: Option<bool>,
    /// Messages in flight on each connection of a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inflight: Option<u64>,
    /// Number of threads per process.
    pub threads: u64,
    /// Number of processes of the tester.
    pub processes: u64,
}

/// Counts of connections over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Connections attempted, without reconnects. A shootout or an interrupted run may end before it has attempted all
    /// of `settings.connections`.
    pub asked: u64,
    /// Connections whose handshake succeeded.
    pub opened: u64,
    /// Connections whose handshake failed.
    pub failed: u64,
    /// Open connections that ended unexpectedly.
    pub disconnected: u64,
    /// Connections reopened because of `--chaos` or `--churn`, or with `--recover` after an unexpected end.
    #[serde(default)]
    pub reconnected: u64,
    /// With `echo`: connections that were still open at the end, but on which an answer timed out
    /// (`--timeout`) and no answer arrived afterwards. With `http`: connections that were closed and
    /// reopened because a response timed out.
    #[serde(default)]
    pub dead: u64,
    /// With `--connect-rate`: connections started more than a millisecond late, because the maximum number of pending
    /// handshakes (`--opening`) was reached or the tester was busy.
    #[serde(default)]
    pub late: u64,
    /// Time from the first connect until every connection had opened or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_open_s: Option<f64>,
    /// Number of this machine's sockets in TIME_WAIT at the end, to or from the addresses of the
    /// run's URLs, regardless of which process opened them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_wait: Option<u64>,
}

/// Counts of messages and their rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// Messages, requests or publications sent.
    pub sent: u64,
    /// Answers, responses or deliveries received.
    pub received: u64,
    /// Answers or deliveries that arrived in the measured time, regardless of when their messages were
    /// due. Error responses are excluded. In an open loop, `messages.received` counts all answers to
    /// messages due in the measured time instead, even if they arrived later.
    #[serde(default)]
    pub received_in_time: u64,
    /// `messages.received_in_time` per second of the measured time.
    pub per_second: f64,
    /// For an open loop: whether at least 99 % of the messages due in the measured time were
    /// answered in time. The deadline is the end of the measured time, plus the shortest latency,
    /// plus 0.1 s or 1 % of the measured time, whichever is longer. If `false`, the server or the
    /// tester could not keep up with the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_reached: Option<bool>,
    /// Payload bytes sent, without frame headers and HTTP heads.
    pub bytes_sent: u64,
    /// Payload bytes received, without framing.
    pub bytes_received: u64,
    /// Unsolicited messages, such as a greeting; over the whole run, with warm-up.
    #[serde(default)]
    pub unasked: u64,
    /// Server messages matched by `--answer` and answered, over the whole run. No other figure
    /// includes them.
    #[serde(default)]
    pub heartbeats: u64,
    /// Answers received more than once. The fields `duplicated`, `late` and `lost` apply to `echo`, `storm` and
    /// `shootout`, over the whole run, with warm-up.
    #[serde(default)]
    pub duplicated: u64,
    /// Answers that arrived out of order: a message sent later on the same connection was answered before. They count
    /// as answers, and their latency counts.
    #[serde(default)]
    pub late: u64,
    /// Messages without an answer although a later message of the same connection was answered. Each is an error.
    #[serde(default)]
    pub lost: u64,
    /// Messages sent but not answered when the run ended.
    #[serde(default)]
    pub unanswered: u64,
}

/// Counts of errors by cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Connection refused: nothing listens at the address.
    pub refused: u64,
    /// The handshake or an answer timed out.
    pub timed_out: u64,
    /// The connection was reset.
    pub reset: u64,
    /// The server closed the connection cleanly but unexpectedly.
    pub closed: u64,
    /// The server did not upgrade the connection.
    pub bad_handshake: u64,
    /// Certificate or TLS handshake failure.
    pub tls: u64,
    /// The server sent bytes that violate the protocol.
    pub bad_protocol: u64,
    /// The answer differed from the expected one.
    pub wrong_answer: u64,
    /// A response had a status of 400 or above, or a body other than that of `--expect`.
    pub bad_response: u64,
    /// Limits or errors of the tester's operating system: descriptors, ports, memory.
    pub system: u64,
    /// Actions and sessions of a load script that raised an error.
    #[serde(default)]
    pub script: u64,
    /// The first error of each cause as text.
    #[serde(default)]
    pub examples: BTreeMap<String, String>,
}

impl Errors {
    /// Returns the total of all causes.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.refused
            + self.timed_out
            + self.reset
            + self.closed
            + self.bad_handshake
            + self.tls
            + self.bad_protocol
            + self.wrong_answer
            + self.bad_response
            + self.system
            + self.script
    }
}

/// Summary of a distribution in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of samples, at least 1.
    pub count: u64,
    /// Minimum of all samples.
    pub min: f64,
    /// Arithmetic mean of all samples.
    pub mean: f64,
    /// Median of all samples.
    pub p50: f64,
    /// 90th percentile of all samples.
    pub p90: f64,
    /// 95th percentile of all samples.
    pub p95: f64,
    /// 99th percentile of all samples.
    pub p99: f64,
    /// 99.9th percentile of all samples.
    pub p999: f64,
    /// Maximum of all samples.
    pub max: f64,
}

/// One bar of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Upper bound of the bar in microseconds. The lower bound is the upper bound of the previous
    /// bar.
    pub to_us: f64,
    /// Number of samples in the bar; empty bars are omitted.
    pub count: u64,
}

/// A distribution of microseconds by percentiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// The number of measured values, at least 1.
    pub count: u64,
    /// The arithmetic mean of all values, not of the points.
    pub mean_us: f64,
    /// The standard deviation of all values.
    pub stdev_us: f64,
    /// The longest latency, rounded to three significant digits.
    pub max_us: f64,
    /// Percentiles in ascending order; the last one is 100 %, the maximum.
    pub points: Vec<Point>,
}

/// One percentile of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The upper bound of the values up to this percentile.
    pub to_us: f64,
    /// The share of all values that are at most `to_us`, from 0 to 1.
    pub quantile: f64,
    /// The number of values that are at most `to_us`.
    pub count: u64,
}

/// One step of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Start of the step in seconds since the beginning of the measured time.
    pub from_s: f64,
    /// Length of the step in seconds.
    pub seconds: f64,
    /// Answers or deliveries that arrived in the step, regardless of when their messages were due.
    pub received: u64,
    /// Errors in the step.
    pub errors: u64,
    /// Median latency of the answers that arrived in the step; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency of the answers that arrived in the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Maximum latency of the answers that arrived in the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_us: Option<f64>,
}

/// What happened to each numbered message at each receiver. `expected` is the sum of `delivered`,
/// `lost`, `away` and the `corrupted` messages that are not copies of delivered ones.
///
/// Also covers the warm-up and the time after the measurement, because a loss counts whenever it
/// happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerCounts {
    /// Number of receivers in the run.
    pub receivers: u64,
    /// Number of publications, including the warm-up. If the server answers publications (those sent
    /// over HTTP, or over TCP with `"ack":true`), refused ones are excluded.
    pub published: u64,
    /// Number of expected deliveries: publications times receivers, or the number of publications
    /// if each goes to one receiver (`push`).
    pub expected: u64,
    /// Expected deliveries that arrived, each counted once.
    pub delivered: u64,
    /// Expected deliveries that did not arrive although the receiver was connected.
    pub lost: u64,
    /// Expected deliveries that did not arrive because the receiver was disconnected, or because
    /// its connection was closed while they were on the way.
    pub away: u64,
    /// Deliveries received more than once.
    pub duplicated: u64,
    /// Deliveries that arrived after the delivery of a later publication by the same publisher.
    pub reordered: u64,
    /// Messages with a wrong checksum or other damage.
    pub corrupted: u64,
    /// Messages that do not belong to the run, such as application pings or messages of other
    /// channels, but not greetings. They do not count as deliveries and are included in
    /// `messages.unasked`.
    #[serde(default)]
    pub foreign: u64,
    /// With `--recover`: results of recovery after reconnects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// The receivers with the most faults, at most ten, in descending order of faults. Receivers
    /// without faults are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<LedgerPage>,
}

/// Results of recovery after reconnects, and the outcome of unacknowledged publications.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Reconnects in which the client sent its position and the server reported whether recovery was complete.
    pub returned: u64,
    /// Reconnects in `returned` after which recovery was incomplete. Publications that were missed
    /// until then count as `ledger.away`.
    pub refused: u64,
    /// Connections of receivers and publishers that ended unexpectedly and were reopened.
    pub ended: u64,
    /// Attempts to reopen a connection that failed and were repeated.
    pub retried: u64,
    /// The first unexpected end or failed attempt, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// Publications that were refused or never acknowledged. Their outcome is unknown, so the
    /// ledger counts them only in `duplicated` and `reordered`.
    pub unanswered: u64,
    /// Deliveries of the publications in `unanswered`, each counted once.
    pub unanswered_delivered: u64,
}

/// The ledger of one receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerPage {
    /// The receiver's number, which replaces `{i}` in command-line arguments.
    pub receiver: u64,
    /// This receiver's part of [`LedgerCounts::lost`].
    pub lost: u64,
    /// This receiver's part of [`LedgerCounts::duplicated`].
    pub duplicated: u64,
    /// This receiver's part of [`LedgerCounts::reordered`].
    pub reordered: u64,
    /// This receiver's part of [`LedgerCounts::corrupted`].
    pub corrupted: u64,
    /// The receiver's first fault as text.
    pub first: String,
}

/// Counts of HTTP responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HttpTally {
    /// Number of responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Number of responses by body length in bytes, for at most 16 lengths.
    pub body_bytes: BTreeMap<u64, u64>,
    /// Number of responses whose body length is not counted in `body_bytes`.
    #[serde(default)]
    pub other_body_bytes: u64,
    /// Number of bodies that differ from that of `--expect`; absent without `--expect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexpected_bodies: Option<u64>,
}

/// Maximum number of body lengths that are counted separately. Responses with further lengths are
/// counted in [`HttpTally::other_body_bytes`].
const BODY_LENGTHS_MAX: usize = 16;

impl HttpTally {
    /// Adds `count` responses whose body has this length.
    pub(crate) fn add_length(&mut self, bytes: u64, count: u64) {
        if let Some(known) = self.body_bytes.get_mut(&bytes) {
            *known += count;
        } else if self.body_bytes.len() < BODY_LENGTHS_MAX {
            self.body_bytes.insert(bytes, count);
        } else {
            self.other_body_bytes += count;
        }
    }

    /// Adds the counts of another part of the run.
    pub fn add(&mut self, other: &Self) {
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (bytes, count) in &other.body_bytes {
            self.add_length(*bytes, *count);
        }
        self.other_body_bytes += other.other_body_bytes;
        if let Some(count) = other.unexpected_bodies {
            *self.unexpected_bodies.get_or_insert_default() += count;
        }
    }

    /// Returns the number of redirects, which are not followed.
    #[must_use]
    pub fn redirects(&self) -> u64 {
        let is_one = |status: &u16| (300..400).contains(status) && *status != 304;
        let all = self.statuses.iter().filter(|(status, _)| is_one(status));
        all.map(|(_, count)| count).sum()
    }

    /// Returns whether there was more than one status or length, so that averages mean little.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.statuses.len() > 1 || self.body_bytes.len() > 1 || self.other_body_bytes > 0
    }
}

/// Sessions and timed actions of a load script's users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptTally {
    /// User sessions of a load script that ended successfully in the measured time.
    pub sessions: u64,
    /// Sessions that ended with an error, over the whole run.
    pub sessions_failed: u64,
    /// The figures of the script's timed actions, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionFigures>,
}

/// The figures of all actions with the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionFigures {
    /// The name of the actions, as given by the script.
    pub name: String,
    /// Actions of this name that ended successfully in the measured time.
    pub count: u64,
    /// `count` divided by the measured seconds.
    pub per_second: f64,
    /// Actions that raised an error, over the whole run.
    pub failed: u64,
    /// Duration of the actions that started in the measured time and succeeded. The fields are
    /// those of the report's `latency_us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Text of the first error of an action with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
}

/// One step of a shootout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of connected clients in this step.
    pub clients: u64,
    /// Number of round trips measured in this step.
    pub samples: u64,
    /// Median of the round trips.
    pub p50_us: f64,
    /// 95th percentile of all samples.
    pub p95_us: f64,
    /// Maximum of all samples.
    pub max_us: f64,
    /// Number of failed round trips.
    pub errors: u64,
}

/// A search for the highest rate that meets all objectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The highest rate that met all objectives; absent if none did. The rest of the report describes
    /// the run at this rate, or the last run if the rate is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The lowest rate that missed an objective; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<f64>,
    /// The runs of the search, in order.
    pub steps: Vec<SearchStep>,
}

/// One run of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchStep {
    /// Target rate of the run.
    pub rate: f64,
    /// The rate that the run reached.
    pub per_second: f64,
    /// 99th percentile of the run's latencies; absent if there were no answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Whether the run met all objectives.
    pub held: bool,
    /// The objectives that the run missed, with the measured figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
}

/// Resource use of the server's processes during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// The process id given by `--pid`.
    pub pid: u32,
    /// Number of processes: the process of `--pid` and its descendants.
    pub processes: u64,
    /// CPU time of the busiest thread of the server's processes, as a share of the measured time: 1
    /// is a whole core.
    #[serde(default)]
    pub cpu_busiest: f64,
    /// Total CPU time of the server's processes.
    pub cpu_s: f64,
    /// CPU time per message of `messages.received_in_time`; absent without messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_message: Option<f64>,
    /// Resident memory before the first connect.
    pub rss_before_bytes: u64,
    /// Resident memory with all connections open.
    pub rss_open_bytes: u64,
    /// The growth of resident memory per opened connection, without the kernel's socket memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_connection: Option<f64>,
}

/// Resource use of the tester during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUse {
    /// CPU time of the busiest thread, as a share of the measured time: 1 is a whole core.
    pub cpu: f64,
    /// Total CPU time of the tester's threads.
    pub cpu_s: f64,
    /// CPU time of the tester per message of `messages.received_in_time`; absent without messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_message: Option<f64>,
    /// The largest share of the measured time in which a thread was ready to run but had no core.
    pub waited: f64,
    /// Longest iteration of a thread's event loop. Events that occur during an iteration wait for the
    /// next iteration.
    pub lag_us_max: f64,
    /// The longest delay of a thread beyond its intended wait, because it was stopped or had no core.
    /// Only delays of at least 250 ms count; 0 if there was none.
    #[serde(default)]
    pub pause_us_max: f64,
    /// Maximum number of bytes queued for sending in one thread.
    #[serde(default)]
    pub unsent_bytes_max: u64,
    /// Messages sent more than a millisecond after their intended time (open loop).
    pub late_sends: u64,
    /// Growth of the tester's resident memory per opened connection. Absent with fewer than 1,000 connections or
    /// several processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_connection: Option<f64>,
    /// Whether the tester, not the server, limited the run. The figures then describe the tester.
    pub bottleneck: bool,
    /// Why the tester was the bottleneck, as text; absent if it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Conditions that made the figures less precise but did not limit the run: threads had no core
    /// for 5 to 25 % of the time, or 1 to 10 % of the messages were sent late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The tester's processes that ended without delivering their counts. No figure includes these counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostProcess>,
}

/// A process of the tester that ended without delivering its counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostProcess {
    /// Number of the process, starting at 1.
    pub process: u64,
    /// How the process ended, as text, for example `killed by signal 9`.
    pub how: String,
}

/// An objective of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The text of the objective, as in the scenario file.
    pub promise: String,
    /// The measured value with its unit.
    pub measured: String,
    /// Whether the objective was met.
    pub passed: bool,
}
