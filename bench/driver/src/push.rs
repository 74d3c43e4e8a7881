//! Pushes: N users hold a connection each, one TCP connection writes a JSON object a line, and every user must get
//! exactly the lines written for it, in order. The lines form a cycle that is prepared once; so do the bytes that
//! each user must receive, which makes a lost, doubled, swapped or strayed message a failed comparison.
//!
//! A window bounds the messages on their way, so the server is neither starved nor drowned. With
//! `--control ticks` the same load drives `send-alone`, the yardstick, by one byte per message.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::ValueEnum;
use serde::Serialize;

use crate::cpu::{Meter, Usage};
use crate::frame::{self, TEXT};
use crate::idle::{user_name, user_path};
use crate::poll::Poll;
use crate::{Target, fleet};

/// Different messages to a user before they repeat; a burst that is longer has as many.
pub const VARIANTS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Control {
    Lines,
    Ticks,
}

pub struct Plan {
    pub push: SocketAddr,
    pub control: Control,
    pub size: usize,
    pub user_bytes: usize,
    pub burst: usize,
    pub window: usize,
    pub warmup_ms: u64,
    pub measure_ms: u64,
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
    stream: TcpStream,
    /// The frames of one cycle, and how far into it the receiver is.
    cycle: Vec<u8>,
    received: usize,
    frame_bytes: usize,
}

/// The writer's side: a cycle of lines, written in whole lines as the window allows.
struct Writer {
    stream: TcpStream,
    cycle: Vec<u8>,
    /// End of each line within the cycle.
    ends: Vec<usize>,
    /// Bytes written in all, and lines allowed in all.
    written: u64,
    allowed: u64,
    waiting: bool,
}

pub fn run(target: &Target, plan: &Plan) -> anyhow::Result<Report> {
    ensure!(
        plan.burst >= 1 && plan.window >= plan.burst,
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
        let room = tally.messages + plan.window as u64;
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
    let usage = meter
        .ok_or_else(|| anyhow::anyhow!("no measured interval"))?
        .stop()?;
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
        cpu_ns_per_message: usage
            .server_cpu_ns
            .map(|cpu| cpu as f64 / messages.max(1) as f64),
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
        match receiver.stream.read(buffer) {
            Ok(0) => bail!("the server closed a user's connection"),
            Ok(count) => tally.messages += receiver.take(&buffer[..count])?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        tally.reads += 1;
    }
    if writer_ready {
        match writer.stream.read(buffer) {
            Ok(0) => bail!("the push connection was closed"),
            Ok(count) => bail!(
                "an answer on the push connection: {}",
                String::from_utf8_lossy(&buffer[..count])
            ),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Receiver {
    /// Compares what came with what must come; whole messages in it.
    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<u64> {
        let before = self.received / self.frame_bytes;
        let mut rest = bytes;
        let mut wrapped = 0;
        while !rest.is_empty() {
            let take = rest.len().min(self.cycle.len() - self.received);
            let (piece, behind) = rest.split_at(take);
            ensure!(
                &self.cycle[self.received..self.received + take] == piece,
                "a user got {:?}, not the next message",
                String::from_utf8_lossy(piece)
            );
            self.received += take;
            if self.received == self.cycle.len() {
                self.received = 0;
                wrapped += 1;
            }
            rest = behind;
        }
        let per_cycle = self.cycle.len() / self.frame_bytes;
        Ok((wrapped * per_cycle + self.received / self.frame_bytes - before) as u64)
    }
}

impl Writer {
    fn write(&mut self, poll: &Poll, name: usize) -> anyhow::Result<()> {
        let limit = self.position(self.allowed);
        let mut blocked = false;
        while self.written < limit && !blocked {
            let from = (self.written % self.cycle.len() as u64) as usize;
            let upto = self.cycle.len().min(from + (limit - self.written) as usize);
            match self.stream.write(&self.cycle[from..upto]) {
                Ok(count) => self.written += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => blocked = true,
                Err(error) => return Err(error.into()),
            }
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

fn receiver(index: usize, stream: TcpStream, plan: &Plan) -> Receiver {
    let user = user_name(index, plan.user_bytes);
    let mut cycle = Vec::new();
    for variant in 0..VARIANTS {
        frame::plain(&mut cycle, TEXT, &message(&user, variant, plan.size));
    }
    let frame_bytes = cycle.len() / VARIANTS;
    Receiver {
        stream,
        cycle,
        received: 0,
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
        stream,
        cycle,
        ends,
        written: 0,
        allowed: 0,
        waiting: false,
    })
}
