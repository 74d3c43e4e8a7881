//! Closed-loop echo: an active connection sends `depth` messages in one write and, when the last of them came back
//! byte by byte, passes its turn to the next connection in a ring. With all connections active that is the usual
//! "one in flight each"; with fewer it keeps the load equal while the number of connections grows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::cpu::{Meter, Usage};
use crate::frame::{self, BINARY, TEXT};
use crate::poll::Poll;
use crate::stream::{self, Stream};
use crate::{Target, fleet};

#[derive(Args)]
pub struct Plan {
    /// Bytes of a message.
    #[arg(long, default_value_t = 20)]
    size: usize,
    /// Messages in flight on an active connection, sent in one write.
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Connections active at a time, round robin over all (default: all).
    #[arg(long)]
    active: Option<usize>,
    /// Send text messages instead of binary ones.
    #[arg(long)]
    text: bool,
    #[arg(long, default_value_t = 500)]
    warmup_ms: u64,
    #[arg(long, default_value_t = 2000)]
    measure_ms: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub messages: u64,
    pub messages_per_second: f64,
    pub cpu_ns_per_message: Option<f64>,
    #[serde(flatten)]
    pub usage: Usage,
}

struct Client {
    stream: Stream,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    received: usize,
}

impl Client {
    fn has_unsent(&self) -> bool {
        self.sent < self.request.len() || self.stream.owes()
    }
}

pub fn run(target: &Target, plan: &Plan) -> anyhow::Result<Report> {
    let active = plan.active.unwrap_or(target.connections);
    ensure!(
        active >= 1 && active <= target.connections,
        "active: 1 to the number of connections"
    );
    let mut clients: Vec<Client> = fleet::open(target, |_| target.path.clone())?
        .into_iter()
        .enumerate()
        .map(|(index, stream)| client(index, stream, plan))
        .collect();
    let mut poll = Poll::new()?;
    for (index, client) in clients.iter().enumerate() {
        poll.readable(&client.stream, index)?;
    }
    let mut resting: VecDeque<usize> = (0..clients.len()).collect();
    for _ in 0..active {
        wake_next(&mut resting, &mut clients, &poll)?;
    }
    let mut buffer = vec![0; 256 * 1024];
    drive(
        &mut poll,
        &mut clients,
        &mut resting,
        &mut buffer,
        plan,
        plan.warmup_ms,
    )?;
    let meter = Meter::start(target.pid)?;
    let messages = drive(
        &mut poll,
        &mut clients,
        &mut resting,
        &mut buffer,
        plan,
        plan.measure_ms,
    )?;
    let usage = meter.stop()?;
    ensure!(messages > 0, "no message came back");
    Ok(Report {
        messages,
        messages_per_second: messages as f64 * 1e3 / usage.wall_ms,
        cpu_ns_per_message: usage.cpu_ns_per(messages),
        usage,
    })
}

fn client(index: usize, stream: Stream, plan: &Plan) -> Client {
    let opcode = if plan.text { TEXT } else { BINARY };
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    for turn in 0..plan.depth {
        let data = frame::payload(&format!("{index:05}.{turn}."), plan.size);
        frame::echo(&mut request, &mut answer, opcode, &data);
    }
    Client {
        stream,
        request,
        answer,
        sent: 0,
        received: 0,
    }
}

/// Runs for a while; messages that came back.
fn drive(
    poll: &mut Poll,
    clients: &mut [Client],
    resting: &mut VecDeque<usize>,
    buffer: &mut [u8],
    plan: &Plan,
    duration_ms: u64,
) -> anyhow::Result<u64> {
    let end = Instant::now() + Duration::from_millis(duration_ms);
    let mut messages = 0;
    let mut ready = Vec::new();
    while Instant::now() < end {
        ready.clear();
        ready.extend(poll.wait(Duration::from_millis(10))?.map(|(name, _)| name));
        for &index in &ready {
            let client = &mut clients[index];
            if client.has_unsent() {
                send(client, index, poll)?;
            }
            if receive(client, buffer)? {
                messages += plan.depth as u64;
                resting.push_back(index);
                wake_next(resting, clients, poll)?;
            }
        }
    }
    Ok(messages)
}

fn wake_next(
    resting: &mut VecDeque<usize>,
    clients: &mut [Client],
    poll: &Poll,
) -> anyhow::Result<()> {
    let Some(index) = resting.pop_front() else {
        return Ok(());
    };
    let client = &mut clients[index];
    (client.sent, client.received) = (0, 0);
    send(client, index, poll)
}

fn send(client: &mut Client, index: usize, poll: &Poll) -> anyhow::Result<()> {
    let partly_before = client.sent > 0;
    client.sent += stream::write(&mut client.stream, &client.request[client.sent..])?;
    let partly_now = client.has_unsent();
    if partly_before != partly_now {
        poll.change(&client.stream, index, partly_now)?;
    }
    Ok(())
}

/// True when the last byte of the answer has come.
fn receive(client: &mut Client, buffer: &mut [u8]) -> anyhow::Result<bool> {
    let count = stream::read(&mut client.stream, buffer)?;
    let wanted = &client.answer[client.received..];
    ensure!(
        wanted.starts_with(&buffer[..count]),
        "an answer that is not the message"
    );
    client.received += count;
    Ok(count > 0 && client.received == client.answer.len())
}
