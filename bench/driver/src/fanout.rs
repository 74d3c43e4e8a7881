//! Fan-out: N subscribers of one channel, and a publisher that publishes a burst when everybody has all of the last one.
//! Every subscriber must get every publication, in order, byte by byte.
//!
//! With `--control ticks` the same load drives `send-alone --all`, the yardstick: one `send` for each subscriber of a frame
//! that was prepared before. With `--echo` one more connection plays ping-pong with the same server meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::cpu::{Meter, Usage};
use crate::frame::{self, TEXT};
use crate::poll::Poll;
use crate::push::VARIANTS;
use crate::stream::{self, Cycle, Stream};
use crate::{Target, fleet};

/// So many bursts are measured at least.
const BURSTS_MIN: u64 = 5;

/// How a publication is asked for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Control {
    /// A JSON line on a TCP connection.
    Lines,
    /// A WebSocket message on a connection of its own; its payload is published.
    Frames,
    /// One byte on a TCP connection, for send-alone.
    Ticks,
}

#[derive(Args)]
pub struct Plan {
    /// Where publications are asked for.
    #[arg(long)]
    publish: SocketAddr,
    #[arg(long, value_enum, default_value_t = Control::Lines)]
    control: Control,
    /// Request target of the publisher's WebSocket.
    #[arg(long, default_value = "/control")]
    control_path: String,
    /// The channel of a line.
    #[arg(long, default_value = "news")]
    channel: String,
    #[arg(long, default_value_t = 128)]
    size: usize,
    /// Publications that are asked for at once.
    #[arg(long, default_value_t = 1)]
    burst: usize,
    /// Request target of a connection that echoes meanwhile.
    #[arg(long)]
    echo: Option<String>,
    #[arg(long, default_value_t = 500)]
    warmup_ms: u64,
    #[arg(long, default_value_t = 2000)]
    measure_ms: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub publications: u64,
    pub deliveries: u64,
    pub deliveries_per_second: f64,
    /// Publications that one read of a subscriber brought, on average: how much the server coalesced.
    pub publications_per_read: f64,
    pub cpu_ns_per_delivery: Option<f64>,
    /// From a burst's request to its last byte at the last subscriber, the median.
    pub last_us: u64,
    /// The 99th percentile and the longest of the echo's round trips.
    pub echo_p99_us: Option<u64>,
    pub echo_max_us: Option<u64>,
    #[serde(flatten)]
    pub usage: Usage,
}

/// Publication number `variant`.
pub fn message(variant: usize, size: usize) -> Vec<u8> {
    frame::payload(&format!("{variant:02}."), size)
}

/// A connection that echoes, in a thread of its own: here it would wait behind what subscribers have to read.
struct PingPong {
    thread: JoinHandle<anyhow::Result<Histogram<u64>>>,
    state: Arc<AtomicU8>,
}

/// What the thread does: warm up, measure, end.
const MEASURES: u8 = 1;
const ENDS: u8 = 2;

struct Load {
    poll: Poll,
    subscribers: Vec<Stream>,
    cycles: Vec<Cycle>,
    publisher: Stream,
    /// A burst each, in turn.
    bursts: Vec<Vec<u8>>,
    echo: Option<PingPong>,
    frame_bytes: usize,
    buffer: Vec<u8>,
    reads: u64,
}

pub fn run(target: &Target, plan: &Plan) -> anyhow::Result<Report> {
    ensure!(
        plan.burst >= 1 && VARIANTS.is_multiple_of(plan.burst),
        "burst: a divisor of {VARIANTS}"
    );
    let mut load = open(target, plan)?;
    let mut last_us = Histogram::<u64>::new(3)?;
    let mut meter = None;
    let (mut publications, mut reads_before) = (0, 0);
    let start = Instant::now();
    let warm = Duration::from_millis(plan.warmup_ms);
    let end = warm + Duration::from_millis(plan.measure_ms);
    let mut number = 0;
    // A burst to many may take as long as the interval.
    while start.elapsed() < end || last_us.len() < BURSTS_MIN {
        if meter.is_none() && start.elapsed() >= warm {
            meter = Some(Meter::start(target.pid)?);
            (publications, reads_before) = (0, load.reads);
            last_us.reset();
            if let Some(echo) = &load.echo {
                echo.state.store(MEASURES, Relaxed);
            }
        }
        let took = load.publish(number, plan.burst)?;
        last_us.record(took.as_micros() as u64)?;
        number += 1;
        publications += plan.burst as u64;
    }
    let usage = meter.context("no measured interval")?.stop()?;
    let deliveries = publications * target.connections as u64;
    let echo = load.echo.take().map(PingPong::end).transpose()?;
    Ok(Report {
        publications,
        deliveries,
        deliveries_per_second: deliveries as f64 * 1e3 / usage.wall_ms,
        publications_per_read: deliveries as f64 / (load.reads - reads_before).max(1) as f64,
        cpu_ns_per_delivery: usage.cpu_ns_per(deliveries),
        last_us: last_us.value_at_quantile(0.5),
        echo_p99_us: echo.as_ref().map(|times| times.value_at_quantile(0.99)),
        echo_max_us: echo.as_ref().map(Histogram::max),
        usage,
    })
}

fn open(target: &Target, plan: &Plan) -> anyhow::Result<Load> {
    let subscribers = fleet::open(target, |_| target.path.clone())?;
    let mut all = Vec::new();
    for variant in 0..VARIANTS {
        frame::plain(&mut all, TEXT, &message(variant, plan.size));
    }
    let cycles = subscribers.iter().map(|_| Cycle::new(all.clone()));
    let frame_bytes = all.len() / VARIANTS;
    let publisher = match plan.control {
        Control::Frames => alone(target, &plan.control_path)?,
        Control::Lines | Control::Ticks => {
            let stream = TcpStream::connect(plan.publish)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Stream::new(stream, None)?
        }
    };
    let echo = plan.echo.as_ref();
    let echo = echo.map(|path| PingPong::begin(alone(target, path)?));
    let bursts = (0..VARIANTS / plan.burst).map(|turn| burst(turn, plan));
    let load = Load {
        poll: Poll::new()?,
        cycles: cycles.collect(),
        publisher,
        bursts: bursts.collect::<anyhow::Result<_>>()?,
        echo: echo.transpose()?,
        frame_bytes,
        buffer: vec![0; 256 * 1024],
        reads: 0,
        subscribers,
    };
    for (index, subscriber) in load.subscribers.iter().enumerate() {
        load.poll.readable(subscriber, index)?;
    }
    Ok(load)
}

/// One connection to that path.
fn alone(target: &Target, path: &str) -> anyhow::Result<Stream> {
    let one = Target {
        connections: 1,
        ..target.clone()
    };
    let mut opened = fleet::open(&one, |_| path.to_owned())?;
    opened.pop().context("a connection")
}

/// What asks for the publications of one burst.
fn burst(turn: usize, plan: &Plan) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    for variant in turn * plan.burst..(turn + 1) * plan.burst {
        let data = message(variant, plan.size);
        match plan.control {
            Control::Ticks => out.push(b'.'),
            Control::Frames => frame::echo(&mut out, &mut Vec::new(), TEXT, &data),
            Control::Lines => {
                let (channel, data) = (&plan.channel, String::from_utf8(data)?);
                writeln!(out, r#"{{"channel":"{channel}","message":"{data}"}}"#)?;
            }
        }
    }
    Ok(out)
}

impl Load {
    /// Asks for a burst and waits until everybody has all of it.
    fn publish(&mut self, number: usize, size: usize) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let bytes = &self.bursts[number % self.bursts.len()];
        let written = stream::write(&mut self.publisher, bytes)?;
        ensure!(written == bytes.len(), "the publisher's socket is full");
        let due = (self.subscribers.len() * size * self.frame_bytes) as u64;
        let mut came = 0;
        while came < due {
            ensure!(
                began.elapsed() < Duration::from_secs(10),
                "of {due} bytes of a burst only {came} came in ten seconds"
            );
            came += self.turn()?;
        }
        ensure!(came == due, "more came than was published");
        Ok(began.elapsed())
    }

    /// Takes what has come; how many bytes subscribers got.
    fn turn(&mut self) -> anyhow::Result<u64> {
        let mut came = 0;
        for (index, _) in self.poll.wait(Duration::from_millis(100))? {
            let count = stream::read(&mut self.subscribers[index], &mut self.buffer)?;
            if count > 0 {
                self.cycles[index].take(&self.buffer[..count])?;
                came += count as u64;
                self.reads += 1;
            }
        }
        Ok(came)
    }
}

impl PingPong {
    fn begin(stream: Stream) -> anyhow::Result<Self> {
        let mut socket = stream.socket;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        frame::echo(&mut request, &mut answer, TEXT, b"are you there?");
        let state = Arc::new(AtomicU8::new(0));
        let seen = Arc::clone(&state);
        let thread = thread::spawn(move || {
            // Before the other thread, which has its core all the time; who may not is told by the figure.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -15);
            let mut times_us = Histogram::new(3)?;
            let mut came = vec![0; answer.len()];
            while seen.load(Relaxed) != ENDS {
                let began = Instant::now();
                socket.write_all(&request)?;
                socket.read_exact(&mut came)?;
                ensure!(came == answer, "another echo");
                if seen.load(Relaxed) == MEASURES {
                    times_us.record(began.elapsed().as_micros() as u64)?;
                }
                // A bystander, not a load.
                thread::sleep(Duration::from_millis(1));
            }
            Ok(times_us)
        });
        Ok(Self { thread, state })
    }

    fn end(self) -> anyhow::Result<Histogram<u64>> {
        self.state.store(ENDS, Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow!("the echo's thread has panicked"))?
    }
}
