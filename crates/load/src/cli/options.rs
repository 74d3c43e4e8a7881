//! The flags of `veche bench`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::heartbeat::Heartbeat;
use crate::schedule::Arrivals;
use clap::Args;

use veche_terminal::duration;

/// Flags common to all commands.
#[derive(Args, Debug)]
pub(super) struct CommonArgs {
    /// Number of connections to open
    #[arg(short = 'c', visible_short_alias = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) connections: u32,
    /// Time limit for a handshake, and for each answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(super) timeout: Duration,
    /// Threads of each process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) threads: u32,
    /// Processes, for more connections than one process has descriptors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) processes: u32,
    /// Connections being opened at a time; by default 256, or with --connect-rate as many as are due
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) opening: Option<u32>,
    /// Connections started per second, whether they open or not; handshakes are then timed from when they were due. By
    /// default as fast as they open
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) connect_rate: Option<f64>,
    /// A local address to connect from, each with its own ports; may be given several times
    #[arg(long, value_name = "IP")]
    pub(super) source: Vec<IpAddr>,
    /// An additional header line; {i} is the number of the connection, from 0
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(super) header: Vec<String>,
    /// A cookie, as "name=value"; {i} is the number of the connection
    #[arg(long, value_name = "COOKIE")]
    pub(super) cookie: Vec<String>,
    /// A subprotocol to offer
    #[arg(long, value_name = "NAME")]
    pub(super) subprotocol: Vec<String>,
    /// A WebSocket message to answer immediately, as "PING => PONG": application heartbeats, which are counted
    /// separately. A * on each side stands for the same text
    #[arg(long, value_name = "MESSAGE => ANSWER", value_parser = heartbeat)]
    pub(super) answer: Vec<Heartbeat>,
    /// Offer compression (permessage-deflate) in the WebSocket handshake
    #[arg(long)]
    pub(super) deflate: bool,
    /// Accept any certificate of the server, unverified
    #[arg(long, conflicts_with = "ca")]
    pub(super) insecure: bool,
    /// PEM file with certificates to trust instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Make a full TLS handshake for each connection; by default reconnects resume their session
    #[arg(long)]
    pub(super) full_handshakes: bool,
    /// Keep the connections open for this time after the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) hold: Option<Duration>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// The formats of the report and their destinations.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// The server's process: adds CPU time and memory of it and its children
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
    /// A name for this run, for comparisons
    #[arg(long, value_name = "NAME")]
    pub(super) label: Option<String>,
    /// Print the report as one JSON object and nothing else
    #[arg(long)]
    pub(super) json: bool,
    /// Write the report as an HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the latencies as percentiles in the text format of HdrHistogram (.hgrm), in milliseconds
    #[arg(long, value_name = "FILE")]
    pub(super) hgrm: Option<PathBuf>,
    /// Write the timeline as CSV, a line per second
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
}

/// The duration of commands that do not end by themselves.
#[derive(Args, Debug)]
pub(super) struct DurationArgs {
    /// Length of the measurement
    #[arg(short, visible_short_alias = 'z', long, value_name = "DURATION", default_value = "10s", value_parser = measurable)]
    pub(super) duration: Duration,
    /// Warm-up before the measurement
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub(super) warmup: Duration,
}

/// The content of messages.
#[derive(Args, Debug)]
pub(super) struct PayloadArgs {
    /// Length of a message in bytes
    #[arg(short, long, value_name = "SIZE", default_value = "20", value_parser = size, conflicts_with_all = ["message", "file"])]
    pub(super) size: usize,
    /// Send this text instead
    #[arg(short, long, value_name = "TEXT")]
    pub(super) message: Option<String>,
    /// Send this file's content instead
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    pub(super) file: Option<PathBuf>,
    /// Send binary instead of text messages
    #[arg(long)]
    pub(super) binary: bool,
}

/// Flags of `bench storm`.
#[derive(Args, Debug)]
pub(super) struct StormArgs {
    /// The server: ws:// or wss://; {i} is the number of the connection, from 0. Connections are divided among several
    /// URLs
    #[arg(required = true, value_name = "URL")]
    pub(super) urls: Vec<String>,
    #[command(flatten)]
    pub(super) payload: PayloadArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Flags of `bench echo`.
#[derive(Args, Debug)]
pub(super) struct EchoArgs {
    /// The server: ws:// or wss://; {i} is the number of the connection, from 0. Connections are divided among several
    /// URLs
    #[arg(required = true, value_name = "URL")]
    pub(super) urls: Vec<String>,
    #[command(flatten)]
    pub(super) payload: PayloadArgs,
    /// Messages in flight on each connection
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) inflight: u32,
    /// Total messages per second, independent of answers; latency then counts from the due time. N..M: from N to M over
    /// the measured time
    #[arg(short, long, value_name = "N|N..M", value_parser = rate, conflicts_with = "inflight")]
    pub(super) rate: Option<RateRange>,
    /// Spacing of messages at a --rate: even, or random like those of independent users
    #[arg(long, value_enum, default_value_t = Spacing::Even)]
    pub(super) arrivals: Spacing,
    /// Search for the highest rate that meets an objective such as "latency.p99 <= 5ms", without errors; starts at
    /// --rate, and runs each rate for --duration. Figures as in scenarios; may be given several times
    #[arg(long, value_name = "PROMISE", requires = "rate")]
    pub(super) find_rate: Vec<String>,
    /// Pause between an answer and the next message of a connection, without --rate; MIN..MAX: random
    #[arg(long, value_name = "DURATION|MIN..MAX", value_parser = pause, conflicts_with = "rate")]
    pub(super) think: Option<PauseRange>,
    /// Close this many connections per second, each after its answers have arrived, and reopen them
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) churn: Option<f64>,
    #[command(flatten)]
    pub(super) span: DurationArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Flags of `bench http`.
#[derive(Args, Debug)]
pub(super) struct HttpArgs {
    /// The server: http:// or https://; {i} is the number of the connection, from 0
    pub(super) url: String,
    /// The method of each request
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub(super) method: String,
    /// The body of each request; {i} is the number of the connection
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub(super) body: Option<String>,
    /// A file with the body of each request; {i} is the number of the connection
    #[arg(long, value_name = "FILE")]
    pub(super) body_file: Option<PathBuf>,
    /// A file with one request per line, sent in turn: ["GET", "/path?query", null], or with a body in place of null.
    /// The URL gives only the server. Answers below 500 count as successful
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body", "body_file", "expect", "expect_file"])]
    pub(super) requests: Option<PathBuf>,
    /// Requests in flight on each connection: pipelining, if more than 1. With --rate the maximum, used when no
    /// connection is idle
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) inflight: u32,
    /// Total requests per second, independent of responses; latency then counts from the due time. N..M: from N to M
    /// over the measured time
    #[arg(short, long, value_name = "N|N..M", value_parser = rate)]
    pub(super) rate: Option<RateRange>,
    /// Spacing of requests at a --rate: even, or random like those of independent users
    #[arg(long, value_enum, default_value_t = Spacing::Even)]
    pub(super) arrivals: Spacing,
    /// Search for the highest rate that meets an objective such as "latency.p99 <= 5ms", without errors; starts at
    /// --rate, and runs each rate for --duration. Figures as in scenarios; may be given several times
    #[arg(long, value_name = "PROMISE", requires = "rate")]
    pub(super) find_rate: Vec<String>,
    /// Pause between a response and the next request of a connection, without --rate; MIN..MAX: random
    #[arg(long, value_name = "DURATION|MIN..MAX", value_parser = pause, conflicts_with = "rate")]
    pub(super) think: Option<PauseRange>,
    /// Use HTTP/1.0 with keep-alive
    #[arg(long)]
    pub(super) http10: bool,
    /// The expected body of each response
    #[arg(long, value_name = "TEXT", conflicts_with = "expect_file")]
    pub(super) expect: Option<String>,
    /// A file with the expected body of each response
    #[arg(long, value_name = "FILE")]
    pub(super) expect_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) span: DurationArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// The source and number of publications.
#[derive(Args, Debug)]
pub(super) struct PublishArgs {
    /// Where publishers publish: tcp:// (lines), http:// or https:// (POST), ws:// or wss:// (a client's messages)
    #[arg(short, long, value_name = "URL")]
    pub(super) publish: String,
    /// Number of publishers, each with its own connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) publishers: u32,
    /// Total publications per second; N..M: from N to M over the measured time
    #[arg(short, long, value_name = "N|N..M", default_value = "100", value_parser = rate)]
    pub(super) rate: RateRange,
    /// Publications due at a time; with push they all go to one receiver
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "recover")]
    pub(super) burst: u32,
    /// Spacing of publications: even, or random like those of independent users
    #[arg(long, value_enum, default_value_t = Spacing::Even)]
    pub(super) arrivals: Spacing,
    /// Search for the highest rate that meets an objective such as "latency.p99 <= 5ms", without errors; starts at
    /// --rate, and runs each rate for --duration. Figures as in scenarios; may be given several times
    #[arg(long, value_name = "PROMISE")]
    pub(super) find_rate: Vec<String>,
    /// Length of a message in bytes; at least 57, since it contains its publisher and number
    #[arg(short, long, value_name = "SIZE", default_value = "64", value_parser = size)]
    pub(super) size: usize,
    /// Sent by a receiver when it is open, to subscribe; {i} is its number
    #[arg(long, value_name = "TEXT")]
    pub(super) hello: Option<String>,
    /// A header line of publishers, instead of those of --header
    #[arg(long, value_name = "NAME: VALUE")]
    pub(super) publish_header: Vec<String>,
    /// Disconnect this many receivers per second; each reconnects after 50 to 100 ms, or later after failures, and the
    /// ledger must still balance
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) chaos: Option<f64>,
    /// Receivers reconnect with the position of the last message received (?since=…, for routes of Veche with
    /// "positions"), so missed messages are expected, once and in order. A publication counts once it is acknowledged,
    /// and connections lost by the server are reopened without counting as errors
    #[arg(long)]
    pub(super) recover: bool,
}

/// Flags of `bench broadcast`.
#[derive(Args, Debug)]
pub(super) struct BroadcastArgs {
    /// Where receivers connect: ws:// or wss://; {i} is the number of the connection, from 0
    pub(super) url: String,
    #[command(flatten)]
    pub(super) publish: PublishArgs,
    /// Body of a publication; {data} is the message
    #[arg(
        long,
        value_name = "TEXT",
        default_value = r#"{"channel":"bench","message":"{data}"}"#
    )]
    pub(super) body: String,
    #[command(flatten)]
    pub(super) span: DurationArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Flags of `bench push`.
#[derive(Args, Debug)]
pub(super) struct PushLoadArgs {
    /// Where receivers connect: ws:// or wss://, with a user of their own, such as ws://host/ws?user=bench{i}
    pub(super) url: String,
    #[command(flatten)]
    pub(super) publish: PublishArgs,
    /// Body of a push; {data} is the message, {i} the number of the receiver
    #[arg(
        long,
        value_name = "TEXT",
        default_value = r#"{"user":"bench{i}","message":"{data}"}"#
    )]
    pub(super) body: String,
    #[command(flatten)]
    pub(super) span: DurationArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Flags of `bench shootout`. `connections` is the maximum.
#[derive(Args, Debug)]
pub(super) struct ShootoutArgs {
    /// The server: ws:// or wss://, with the protocol of "websocket-shootout"
    pub(super) url: String,
    /// The message type to time
    #[arg(value_enum, default_value_t = ShootoutKind::Echo)]
    pub(super) kind: ShootoutKind,
    /// Clients added per step
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) step: u32,
    /// Round trips in flight, over all clients
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) concurrent: u32,
    /// Round trips per step
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) samples: u32,
    /// The 95th percentile that ends the run
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    pub(super) limit: Duration,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// The message types of a shootout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ShootoutKind {
    /// An echo to the sender
    Echo,
    /// A broadcast to all clients
    Broadcast,
}

/// Flags of `bench script`.
#[derive(Args, Debug)]
pub(super) struct ScriptArgs {
    /// A Lua script with the actions of a user
    pub(super) script: PathBuf,
    /// The address of the server, passed to the script as user.url
    pub(super) url: String,
    /// Number of users that run the script
    #[arg(short = 'c', visible_short_alias = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) users: u32,
    /// Users started per second; by default all start at once
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) user_rate: Option<f64>,
    /// Threads that simulate the users, each with its own VM
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) threads: u32,
    /// Time for running actions to end after the measurement
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(super) timeout: Duration,
    /// Memory of each VM
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub(super) memory: usize,
    #[command(flatten)]
    pub(super) span: DurationArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Flags of `bench compare`.
#[derive(Args, Debug)]
pub(super) struct CompareArgs {
    /// Reports printed by --json; those with the same label, or each file without one, form a group. Give each group
    /// several alternating runs to distinguish noise
    #[arg(required = true, num_args = 2.., value_name = "REPORT")]
    pub(super) reports: Vec<PathBuf>,
    /// Print the comparison as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Spacing of an open loop's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Spacing {
    /// Equal gaps between messages
    Even,
    /// A Poisson process: exponentially distributed gaps
    Random,
}

impl From<Spacing> for Arrivals {
    fn from(spacing: Spacing) -> Self {
        match spacing {
            Spacing::Even => Self::Even,
            Spacing::Random => Self::Random,
        }
    }
}

/// Bounds of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PauseRange {
    pub(super) min: Duration,
    pub(super) max: Duration,
}

fn pause(text: &str) -> Result<PauseRange, String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (min, max) = (duration(min)?, duration(max)?);
    if min > max {
        return Err("expected the shorter pause first, as in 1s..5s".to_owned());
    }
    Ok(PauseRange { min, max })
}

/// A rate per second, constant or changing linearly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateRange {
    pub(super) from: f64,
    pub(super) to: Option<f64>,
}

fn rate(text: &str) -> Result<RateRange, String> {
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (from, Some(positive(to)?)),
        None => (text, None),
    };
    Ok(RateRange {
        from: positive(from)?,
        to,
    })
}

fn measurable(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|duration| {
        if duration < Duration::from_millis(1) {
            return Err("expected 1 ms or more".to_owned());
        }
        Ok(duration)
    })
}

fn heartbeat(text: &str) -> Result<Heartbeat, String> {
    let (received, answer) = text
        .split_once("=>")
        .ok_or("expected a message and its answer, such as \"2 => 3\"")?;
    Ok(Heartbeat::new(received.trim(), answer.trim())?)
}

fn positive(text: &str) -> Result<f64, String> {
    text.replace('_', "")
        .parse()
        .ok()
        .filter(|number: &f64| (0.001..=1e9).contains(number))
        .ok_or_else(|| "expected a number from 0.001 to 1,000,000,000".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    veche_terminal::parse_size(text)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| "expected a size such as \"20\" or \"8KiB\"".to_owned())
}
