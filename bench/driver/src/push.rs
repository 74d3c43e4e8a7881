//! Pushes: N users hold a connection each, one TCP connection writes a JSON object a line, and every user must get
//! exactly the lines written for it, in order. The lines form a cycle that is prepared once; so do the bytes that
//! each user must receive, which makes a lost, doubled, swapped or strayed message a failed comparison.
//!
//! A window bounds the messages on their way, so the server is neither starved nor drowned. With
//! `--control ticks` the same load drives `send-alone`, the yardstick, by one byte per message.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cpu::{Meter, Usage};
use crate::frame::{self, TEXT};
use crate::idle::{user_name, user_path};
use crate::poll::Poll;
use crate::stream::{self, Cycle, Stream};
use crate::{Target, fleet};

/// Different messages to a user before they repeat; a burst that is longer has as many.
pub const VARIANTS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Control {
    Lines,
    Ticks,
}

#[derive(Args)]
pub struct Plan {
    /// Address of the push listener (or of send-alone's control port).
    #[arg(long)]
    push: SocketAddr,
    /// What is written there: JSON lines, or one byte per message for send-alone.
    #[arg(long, value_enum, default_value_t = Control::Lines)]
    control: Control,
    #[arg(long, default_value_t = 20)]
    size: usize,
    #[arg(long, default_value_t = 16)]
    user_bytes: usize,
    /// Consecutive messages to one user before the next user's turn.
    #[arg(long, default_value_t = 1)]
    burst: usize,
    /// Messages on their way at most (default: one burst per user).
    #[arg(long)]
    window: Option<usize>,
    #[arg(long, default_value_t = 500)]
    warmup_ms: u64,
    #[arg(long, default_value_t = 2000)]
    measure_ms: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub messages: u64,
    pub messages_per_second: f64,
    /// Messages that one read of a receiver brought, on average: how much the server coalesced.
    pub messages_per_read: f64,
    pub cpu_ns_per_message: Option<f64>,
    #[serde(flatten)]
    pub usage: Usage,
}

/// Message number `variant` of a user.
pub fn message(user: &str, variant: usize, size: usize) -> Vec<u8> {
    frame::payload(&format!("{variant:02}.{user}."), size)
}

struct Receiver {
    stream: Stream,
    /// The frames of all variants.
    cycle: Cycle,
    frame_bytes: usize,
}

/// The writer's side: a cycle of lines, written in whole lines as the window allows.
struct Writer {
    stream: Stream,
    cycle: Vec<u8>,
    /// End of each line within the cycle.
    ends: Vec<usize>,
    /// Bytes written in all, and lines allowed in all.
    written: u64,
    allowed: u64,
    waiting: bool,
}

pub fn run(target: &Target, plan: &Plan) -> anyhow::Result<Report> {
    let window = plan.window.unwrap_or(target.connections * plan.burst);
    ensure!(
        plan.burst >= 1 && window >= plan.burst,
        "window: at least a burst"
    );
    let streams = fleet::open(target, |index| {
        user_path(&target.path, index, plan.user_bytes)
    })?;
    let mut receivers: Vec<Receiver> = streams
        .into_iter()
        .enumerate()
        .map(|(index, stream)| receiver(index, stream, plan))
        .collect();
    let mut poll = Poll::new()?;
    for (index, receiver) in receivers.iter().enumerate() {
        poll.readable(&receiver.stream, index)?;
    }
    let mut writer = writer(target.connections, plan)?;
    let writer_name = receivers.len();
    poll.readable(&writer.stream, writer_name)?;

    let mut buffer = vec![0; 256 * 1024];
    let mut tally = Tally::default();
    let mut meter = None;
    let (mut before, mut reads_before) = (0, 0);
    let start = Instant::now();
    let warm = Duration::from_millis(plan.warmup_ms);
    let end = warm + Duration::from_millis(plan.measure_ms);
    while start.elapsed() < end {
        if meter.is_none() && start.elapsed() >= warm {
            meter = Some(Meter::start(target.pid)?);
            (before, reads_before) = (tally.messages, tally.reads);
        }
        let room = tally.messages + window as u64;
        writer.allowed = writer.allowed.max(room - room % plan.burst as u64);
        writer.write(&poll, writer_name)?;
        turn(
            &mut poll,
            &mut receivers,
            writer_name,
            &mut writer,
            &mut buffer,
            &mut tally,
        )?;
    }
    let usage = meter.context("no measured interval")?.stop()?;
    let (messages, reads) = (tally.messages - before, tally.reads - reads_before);
    // What was written whole must still arrive, and nothing beyond it.
    let written = writer.whole_lines();
    let patience = Instant::now() + Duration::from_secs(5);
    while tally.messages < written && Instant::now() < patience {
        turn(
            &mut poll,
            &mut receivers,
            writer_name,
            &mut writer,
            &mut buffer,
            &mut tally,
        )?;
    }
    ensure!(
        tally.messages == written,
        "{written} lines written, {} messages arrived",
        tally.messages
    );
    Ok(Report {
        messages,
        messages_per_second: messages as f64 * 1e3 / usage.wall_ms,
        messages_per_read: messages as f64 / reads.max(1) as f64,
        cpu_ns_per_message: usage.cpu_ns_per(messages),
        usage,
    })
}

#[derive(Default)]
struct Tally {
    messages: u64,
    reads: u64,
}

fn turn(
    poll: &mut Poll,
    receivers: &mut [Receiver],
    writer_name: usize,
    writer: &mut Writer,
    buffer: &mut [u8],
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let mut writer_ready = false;
    for (index, _) in poll.wait(Duration::from_millis(10))? {
        if index == writer_name {
            writer_ready = true;
            continue;
        }
        let receiver = &mut receivers[index];
        let count = stream::read(&mut receiver.stream, buffer)?;
        if count == 0 {
            continue;
        }
        tally.messages += receiver.take(&buffer[..count])?;
        tally.reads += 1;
    }
    if writer_ready {
        let count = stream::read(&mut writer.stream, buffer)?;
        ensure!(
            count == 0,
            "an answer on the push connection: {}",
            String::from_utf8_lossy(&buffer[..count])
        );
    }
    Ok(())
}

impl Receiver {
    /// Compares what came with what must come; whole messages in it.
    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<u64> {
        let before = self.cycle.at / self.frame_bytes;
        let ends = self.cycle.take(bytes)?;
        let whole = ends * VARIANTS + self.cycle.at / self.frame_bytes - before;
        Ok(whole as u64)
    }
}

impl Writer {
    fn write(&mut self, poll: &Poll, name: usize) -> anyhow::Result<()> {
        let limit = self.position(self.allowed);
        let mut blocked = false;
        while self.written < limit && !blocked {
            let from = (self.written % self.cycle.len() as u64) as usize;
            let upto = self.cycle.len().min(from + (limit - self.written) as usize);
            let count = stream::write(&mut self.stream, &self.cycle[from..upto])?;
            self.written += count as u64;
            blocked = count == 0;
        }
        if blocked != self.waiting {
            poll.change(&self.stream, name, blocked)?;
            self.waiting = blocked;
        }
        Ok(())
    }

    /// The byte at which line number `lines` ends, counted over all cycles.
    fn position(&self, lines: u64) -> u64 {
        let per_cycle = self.ends.len() as u64;
        let within = lines % per_cycle;
        let part = if within == 0 {
            0
        } else {
            self.ends[within as usize - 1] as u64
        };
        lines / per_cycle * self.cycle.len() as u64 + part
    }

    fn whole_lines(&self) -> u64 {
        let within = (self.written % self.cycle.len() as u64) as usize;
        let whole = self.ends.partition_point(|&end| end <= within);
        self.written / self.cycle.len() as u64 * self.ends.len() as u64 + whole as u64
    }
}

fn receiver(index: usize, stream: Stream, plan: &Plan) -> Receiver {
    let user = user_name(index, plan.user_bytes);
    let mut cycle = Vec::new();
    for variant in 0..VARIANTS {
        frame::plain(&mut cycle, TEXT, &message(&user, variant, plan.size));
    }
    let frame_bytes = cycle.len() / VARIANTS;
    Receiver {
        stream,
        cycle: Cycle::new(cycle),
        frame_bytes,
    }
}

fn writer(users: usize, plan: &Plan) -> anyhow::Result<Writer> {
    ensure!(
        VARIANTS.is_multiple_of(plan.burst),
        "burst: a divisor of {VARIANTS}"
    );
    let (mut cycle, mut ends) = (Vec::new(), Vec::new());
    for turn in 0..VARIANTS / plan.burst {
        for index in 0..users {
            let user = user_name(index, plan.user_bytes);
            for variant in turn * plan.burst..(turn + 1) * plan.burst {
                match plan.control {
                    Control::Ticks => cycle.push(b'.'),
                    Control::Lines => {
                        let data = message(&user, variant, plan.size);
                        let data = String::from_utf8(data)?;
                        writeln!(cycle, r#"{{"user":"{user}","message":"{data}"}}"#)?;
                    }
                }
                ends.push(cycle.len());
            }
        }
    }
    let stream = TcpStream::connect(plan.push)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(Writer {
        stream: Stream::new(stream, None)?,
        cycle,
        ends,
        written: 0,
        allowed: 0,
        waiting: false,
    })
}
