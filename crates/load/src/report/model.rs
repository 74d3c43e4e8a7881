//! What a run found, as plain data: the published form of `--json`, which texts, pages and comparisons are made of.
//!
//! Units stand in the names. A figure that was not measured is absent, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of this form; it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 3;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Which question was asked: `storm`, `echo`, `broadcast`, `shootout`, `http`, `push`, `script` or `scenario`.
    pub kind: String,
    /// The URL, or the first of them.
    pub target: String,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// The machine and the program that measured.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Settings,
    /// The time that was measured, without warm-up.
    pub seconds: f64,
    /// Whether a signal ended the run early: all figures are partial then.
    pub interrupted: bool,
    /// Whether the run was ended early because a promise was broken for good: all figures are of the time until then.
    #[serde(default)]
    pub stopped: bool,
    /// Whether processes of the tester were lost, and with them their part of all figures: [`GeneratorUse::lost`].
    #[serde(default)]
    pub incomplete: bool,
    /// How the connections fared.
    pub connections: Connections,
    /// What went to and fro while it was measured.
    pub messages: Messages,
    /// What went wrong, by cause, over the whole run.
    pub errors: Errors,
    /// From the intended (open loop) or actual (closed loop) send to the answer or delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Why there is no `latency_us` although answers came, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_refused: Option<String>,
    /// From the beginning of connect, or from when it was due by a rate of connects, to the end of the handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_us: Option<Latency>,
    /// The distribution behind `latency_us`: counts of latencies up to each bound, bounds rising, none empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bucket>,
    /// The same distribution with three digits, for a file of percentiles. Not part of the published form.
    #[serde(skip)]
    pub distribution: Option<Distribution>,
    /// The measured time in equal steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Interval>,
    /// What became of each message of the whole run, where they were numbered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// What the responses were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpTally>,
    /// The users of a load script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptTally>,
    /// The steps of a shootout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The steps of a search for the highest rate; the report is that of the run at this rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// What the server used, with `--pid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerUse>,
    /// The process of `--pid`, if it ended before the measurement was over: what it used is not known then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_ended: Option<u32>,
    /// What the tester itself used, and whether it was the bottleneck.
    pub generator: GeneratorUse,
    /// The phases of a scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Self>,
    /// The promises of a scenario, or of a phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// Where and with what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of the tester.
    pub veche: String,
    /// Name of the processor.
    pub cpu: String,
    /// How many of them this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
}

/// What was asked for. What a kind of run does not have is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The arguments after `bench`, as given.
    pub command: Vec<String>,
    /// A name for this run, for comparisons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Connections.
    pub connections: u64,
    /// Planned length of the measurement; absent where the run ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Left out of the figures at the beginning.
    pub warmup_s: f64,
    /// Messages or requests a second in all, if an open loop was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Bytes of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether messages carry a stamp, by which their answers are known: echoes and storms of 16 bytes or more, but no
    /// messages that were given. Without, answers are matched by their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamped: Option<bool>,
    /// Messages in flight on each connection (closed loop).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inflight: Option<u64>,
    /// Threads of each process.
    pub threads: u64,
    /// Processes.
    pub processes: u64,
}

/// How the connections fared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Tried, reconnects not counted.
    pub asked: u64,
    /// Had a handshake that succeeded.
    pub opened: u64,
    /// Had none.
    pub failed: u64,
    /// Were opened, and ended although nobody wanted it.
    pub disconnected: u64,
    /// Were opened again, by `--chaos` or a churn, or with `--recover` after an end that nobody wanted.
    #[serde(default)]
    pub reconnected: u64,
    /// Echoes: were open at the end, and had answered nothing since a message's time was over. HTTP: were cut off because a
    /// request's time was over, and opened again.
    #[serde(default)]
    pub dead: u64,
    /// Begun more than a millisecond after they were due, with a rate of connects: the limit of those that are opened at a
    /// time was reached, or the tester was busy. `handshake_us` counts from when they were due.
    #[serde(default)]
    pub late: u64,
    /// From the first connect until the last connection was open or had failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_open_s: Option<f64>,
    /// This machine's sockets in TIME_WAIT to or from the addresses of the run's URLs when it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_wait: Option<u64>,
}

/// What went to and fro.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// Messages, requests or publications sent.
    pub sent: u64,
    /// Answers, responses or deliveries received.
    pub received: u64,
    /// Answers or deliveries that came in the measured time, whenever they were due: with an open loop `received` has also
    /// those that came after it. Responses that are errors are not among them.
    #[serde(default)]
    pub received_in_time: u64,
    /// `received_in_time` a second.
    pub per_second: f64,
    /// Of an open loop: whether 99 % of what was due in the measured time was answered by its end, or within the shortest
    /// latency and 0.1 s (1 % of a run of more than 10 s) of it. Otherwise the server, or the tester, was slower than the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_reached: Option<bool>,
    /// Payload bytes sent. On the wire there are frame headers and HTTP heads beside.
    pub bytes_sent: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Messages that nobody had asked for, such as a greeting; over the whole run, with warm-up.
    #[serde(default)]
    pub unasked: u64,
    /// Messages of the server that were answered as heartbeats; over the whole run. They are in no other figure.
    #[serde(default)]
    pub heartbeats: u64,
    /// Answers that came again. This and the next two: of echoes, storms and shootouts, over the whole run, with warm-up.
    #[serde(default)]
    pub duplicated: u64,
    /// Answers that came behind the answer to a later message of their connection.
    #[serde(default)]
    pub late: u64,
    /// Messages whose answer never came, though that to a later message of their connection did.
    #[serde(default)]
    pub lost: u64,
    /// Sent, and without an answer when the run was over; where publications are requests, over the whole run.
    #[serde(default)]
    pub unanswered: u64,
}

/// What went wrong, by cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Nobody listened at the address.
    pub refused: u64,
    /// No handshake or no answer in time.
    pub timed_out: u64,
    /// The connection was reset.
    pub reset: u64,
    /// The server ended the connection in good order, but unasked.
    pub closed: u64,
    /// The answer to the handshake was no upgrade.
    pub bad_handshake: u64,
    /// The certificate or the TLS handshake.
    pub tls: u64,
    /// Bytes that break the protocol.
    pub bad_protocol: u64,
    /// An answer other than the one that was due.
    pub wrong_answer: u64,
    /// A response with a status of 400 or above, or a body other than the one of `--expect`.
    pub bad_response: u64,
    /// The operating system: descriptors, ports, memory.
    pub system: u64,
    /// Actions and sessions of a load script that raised an error.
    #[serde(default)]
    pub script: u64,
    /// The first of each cause, in words.
    #[serde(default)]
    pub examples: BTreeMap<String, String>,
}

impl Errors {
    /// All of them.
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

/// A distribution of microseconds in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured, at least 1.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// Half were at most this.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// One bar of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Latencies above the bound before and up to this one.
    pub to_us: f64,
    /// How many.
    pub count: u64,
}

/// A distribution of microseconds by percentiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// How many were measured, at least 1.
    pub count: u64,
    /// The arithmetic mean of all values, not of the points.
    pub mean_us: f64,
    /// The standard deviation of all values.
    pub stdev_us: f64,
    /// The longest, with three digits.
    pub max_us: f64,
    /// Percentiles, rising, the last that of all.
    pub points: Vec<Point>,
}

/// One percentile of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The upper bound of its values.
    pub to_us: f64,
    /// Share of values up to it, from 0 to 1.
    pub quantile: f64,
    /// How many they are.
    pub count: u64,
}

/// One step of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its beginning, since the beginning of the measurement.
    pub from_s: f64,
    /// Its length.
    pub seconds: f64,
    /// Answers or deliveries that came in it.
    pub received: u64,
    /// Errors that came in it.
    pub errors: u64,
    /// Percentiles of the latencies that ended in it; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// As `p50_us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// As `p50_us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_us: Option<f64>,
}

/// What became of each message to each receiver: `expected` = `delivered` + `lost` + `away` and those that came
/// `corrupted`, copies not counted.
///
/// It is of the whole run, with warm-up and what came behind the end: a loss is a loss whenever it happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Receivers.
    pub receivers: u64,
    /// Publications, with those of the warm-up; where each is answered, without those that were refused.
    pub published: u64,
    /// Publications times receivers.
    pub expected: u64,
    /// Of these, those that came, each counted once.
    pub delivered: u64,
    /// Of these, those that did not come though the receiver was there.
    pub lost: u64,
    /// Of these, those that were sent while the receiver was disconnected, or cut off on their way.
    pub away: u64,
    /// Came again.
    pub duplicated: u64,
    /// Came behind a later one of the same publisher.
    pub reordered: u64,
    /// Came with a wrong checksum, or damaged otherwise.
    pub corrupted: u64,
    /// Messages that are none of the run's, but for greetings: pings of an application, other channels. They stand for no
    /// delivery, and are among [`Messages::unasked`].
    #[serde(default)]
    pub foreign: u64,
    /// With `--recover`: how receivers came back to where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// The receivers that fared worst, at most ten, none without a fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<LedgerPage>,
}

/// How receivers came back to where they were, and what became of publications that nobody answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Times that a receiver came back with a position and was told whether what it missed is there.
    pub returned: u64,
    /// Of these, those in which something was gone. What was published up to then and did not come is `away`.
    pub refused: u64,
    /// Connections of receivers and publishers that ended unasked; they were opened again.
    pub ended: u64,
    /// Attempts to open one again that failed, and were made again.
    pub retried: u64,
    /// The first of these ends and failures, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// Publications that were sent and never answered, or refused. They may have happened or not, so they are in no
    /// other figure of the ledger but `duplicated` and `reordered`.
    pub unanswered: u64,
    /// Deliveries of these, each counted once.
    pub unanswered_delivered: u64,
}

/// One receiver's page of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerPage {
    /// Which: its `{i}`.
    pub receiver: u64,
    /// As in [`Ledger`].
    pub lost: u64,
    /// As in [`Ledger`].
    pub duplicated: u64,
    /// As in [`Ledger`].
    pub reordered: u64,
    /// As in [`Ledger`].
    pub corrupted: u64,
    /// The first fault, in words.
    pub first: String,
}

/// What the responses were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HttpTally {
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses by length of the body in bytes, at most 16 different ones.
    pub body_bytes: BTreeMap<u64, u64>,
    /// Responses of further lengths.
    #[serde(default)]
    pub other_body_bytes: u64,
    /// Bodies other than the one of `--expect`; absent if none was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexpected_bodies: Option<u64>,
}

/// Lengths of bodies that are told apart.
const BODY_LENGTHS_MAX: usize = 16;

impl HttpTally {
    /// Counts responses of one length.
    pub(crate) fn add_length(&mut self, bytes: u64, count: u64) {
        if let Some(known) = self.body_bytes.get_mut(&bytes) {
            *known += count;
        } else if self.body_bytes.len() < BODY_LENGTHS_MAX {
            self.body_bytes.insert(bytes, count);
        } else {
            self.other_body_bytes += count;
        }
    }

    /// Adds the responses of another part of the run.
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

    /// Redirects, which are not followed.
    #[must_use]
    pub fn redirects(&self) -> u64 {
        let is_one = |status: &u16| (300..400).contains(status) && *status != 304;
        let all = self.statuses.iter().filter(|(status, _)| is_one(status));
        all.map(|(_, count)| count).sum()
    }

    /// Whether there was more than one status or length: then an average over them means little.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.statuses.len() > 1 || self.body_bytes.len() > 1 || self.other_body_bytes > 0
    }
}

/// The users of a load script: their sessions, and their actions, which are timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptTally {
    /// Sessions that ended well in the measured time.
    pub sessions: u64,
    /// Sessions that ended with an error, over the whole run.
    pub sessions_failed: u64,
    /// The actions by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
}

/// The actions of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// As in the script.
    pub name: String,
    /// Those that ended well in the measured time.
    pub count: u64,
    /// `count` divided by the measured seconds.
    pub per_second: f64,
    /// Those that raised an error, over the whole run.
    pub failed: u64,
    /// From their beginning to their end; of those that began in the measured time and did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// The first error, with the script's line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
}

/// One step of a shootout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Clients connected.
    pub clients: u64,
    /// Round trips at this step.
    pub samples: u64,
    /// Round trips of them.
    pub p50_us: f64,
    /// As above.
    pub p95_us: f64,
    /// As above.
    pub max_us: f64,
    /// Failed ones.
    pub errors: u64,
}

/// A search for the highest rate at which a server holds its promises.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The highest rate that held, in messages a second; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The lowest rate that did not hold; absent if all did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<f64>,
    /// The runs, in their order.
    pub steps: Vec<SearchStep>,
}

/// One run of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchStep {
    /// Messages a second that were asked for.
    pub rate: f64,
    /// Messages a second that came.
    pub per_second: f64,
    /// 99 % of the latencies were at most this; absent if no answer came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Whether all promises were kept.
    pub held: bool,
    /// Those that were not, each with the figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
}

/// What the server's processes used while it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// The process of `--pid`.
    pub pid: u32,
    /// It and its descendants.
    pub processes: u64,
    /// CPU time of the busiest thread, as a share of the measured time: 1 is a whole core.
    #[serde(default)]
    pub cpu_busiest: f64,
    /// CPU time, all of them.
    pub cpu_s: f64,
    /// CPU time for each of [`Messages::received_in_time`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_message: Option<f64>,
    /// Resident memory before the first connect.
    pub rss_before_bytes: u64,
    /// Resident memory with all connections open.
    pub rss_open_bytes: u64,
    /// The difference for each connection that was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_connection: Option<f64>,
}

/// What the tester itself used while it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUse {
    /// CPU time of the busiest thread, as a share of the measured time: 1 is a whole core.
    pub cpu: f64,
    /// CPU time of all threads.
    pub cpu_s: f64,
    /// CPU time for each of [`Messages::received_in_time`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_message: Option<f64>,
    /// Share of the measured time that the thread with the worst luck was ready to run and had no core.
    pub waited: f64,
    /// Longest turn of a thread's loop: for so long nothing was sent or received.
    pub lag_us_max: f64,
    /// Longest time beyond what it was to wait in which a thread did not run, from 250 ms on; 0 if there was none.
    #[serde(default)]
    pub pause_us_max: f64,
    /// Most bytes that waited to be sent at a time, of the thread that had most.
    #[serde(default)]
    pub unsent_bytes_max: u64,
    /// Sends that left more than a millisecond after their intended time (open loop).
    pub late_sends: u64,
    /// Resident memory of the tester for each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_connection: Option<f64>,
    /// Whether the tester, not the server, set the pace: figures then are the tester's.
    pub bottleneck: bool,
    /// Why so, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// What made the figures less exact without setting the pace, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Its processes that were lost; what they had counted is in no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostProcess>,
}

/// A process of the tester that did not live to say what it had counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostProcess {
    /// Which of `settings.processes`, from 1.
    pub process: u64,
    /// How it was lost, in words: `killed by signal 9`.
    pub how: String,
}

/// One promise that a scenario holds the service to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The promise, as in the file: `latency.p99 <= 50ms`.
    pub promise: String,
    /// What was measured, with its unit.
    pub measured: String,
    /// Whether it was kept.
    pub passed: bool,
}
