//! Open-loop echo: message `i` is due at `start + i / rate` whatever the server does, and its latency counts from
//! then, so a stall is seen by every message it delays and not only by the one it caught.

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde::Serialize;

use crate::cpu::{Meter, Usage};
use crate::frame::{self, BINARY};
use crate::poll::Poll;
use crate::stream::{self, Cycle, Stream};
use crate::{Target, fleet};

/// How often the schedule is looked at; messages that became due in between leave together, whoever serves them.
const TICK: Duration = Duration::from_micros(50);

#[derive(Args)]
pub struct Plan {
    #[arg(long, default_value_t = 20)]
    size: usize,
    /// Messages a second over all connections.
    #[arg(long)]
    rate: u64,
    #[arg(long, default_value_t = 500)]
    warmup_ms: u64,
    #[arg(long, default_value_t = 3000)]
    measure_ms: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub messages: u64,
    pub messages_per_second: f64,
    pub cpu_ns_per_message: Option<f64>,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    #[serde(flatten)]
    pub usage: Usage,
}

struct Client {
    stream: Stream,
    request: Vec<u8>,
    answer: Cycle,
    /// Intended times of the messages that have not come back, in nanoseconds since the start.
    due_ns: VecDeque<u64>,
}

pub fn run(target: &Target, plan: &Plan) -> anyhow::Result<Report> {
    ensure!(plan.rate > 0, "rate: at least 1");
    let mut clients: Vec<Client> = fleet::open(target, |_| target.path.clone())?
        .into_iter()
        .enumerate()
        .map(|(index, stream)| client(index, stream, plan.size))
        .collect();
    let mut poll = Poll::new()?;
    for (index, client) in clients.iter().enumerate() {
        poll.readable(&client.stream, index)?;
    }
    let timer_name = clients.len();
    let timer = timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )?;
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.as_nanos() as i64,
    };
    timerfd_settime(
        &timer,
        TimerfdTimerFlags::empty(),
        &Itimerspec {
            it_interval: tick,
            it_value: tick,
        },
    )?;
    poll.readable(&timer, timer_name)?;

    let start = Instant::now();
    let step_ns = 1e9 / plan.rate as f64;
    let warm_ns = plan.warmup_ms * 1_000_000;
    let end_ns = warm_ns + plan.measure_ms * 1_000_000;
    let mut latency_ns = Histogram::<u64>::new(3)?;
    let (mut sent, mut meter) = (0_u64, None);
    let mut buffer = vec![0; 64 * 1024];
    let mut ready = Vec::new();
    loop {
        ready.clear();
        ready.extend(poll.wait(Duration::from_millis(10))?.map(|(name, _)| name));
        for &index in &ready {
            if index == timer_name {
                // The count of ticks missed is of no interest: the clock says what is due.
                rustix::io::read(&timer, &mut [0; 8]).ok();
                continue;
            }
            receive(
                &mut clients[index],
                &mut buffer,
                start,
                warm_ns,
                &mut latency_ns,
            )?;
        }
        let now_ns = start.elapsed().as_nanos() as u64;
        if now_ns >= warm_ns && meter.is_none() {
            meter = Some(Meter::start(target.pid)?);
        }
        if now_ns >= end_ns {
            break;
        }
        while (sent as f64 * step_ns) as u64 <= now_ns {
            let count = clients.len();
            let client = &mut clients[sent as usize % count];
            client.due_ns.push_back((sent as f64 * step_ns) as u64);
            ensure!(
                client.stream.write(&client.request)? == client.request.len(),
                "the server does not keep up"
            );
            sent += 1;
        }
    }
    let usage = meter.context("no measured interval")?.stop()?;
    let us = |quantile| latency_ns.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Report {
        messages: latency_ns.len(),
        messages_per_second: latency_ns.len() as f64 * 1e3 / usage.wall_ms,
        cpu_ns_per_message: usage.cpu_ns_per(latency_ns.len()),
        p50_us: us(0.5),
        p90_us: us(0.9),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: latency_ns.max() as f64 / 1e3,
        usage,
    })
}

fn client(index: usize, stream: Stream, size: usize) -> Client {
    let data = frame::payload(&format!("{index:05}."), size);
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    frame::echo(&mut request, &mut answer, BINARY, &data);
    Client {
        stream,
        request,
        answer: Cycle::new(answer),
        due_ns: VecDeque::new(),
    }
}

fn receive(
    client: &mut Client,
    buffer: &mut [u8],
    start: Instant,
    warm_ns: u64,
    latency_ns: &mut Histogram<u64>,
) -> anyhow::Result<()> {
    let count = stream::read(&mut client.stream, buffer)?;
    let now_ns = start.elapsed().as_nanos() as u64;
    for _ in 0..client.answer.take(&buffer[..count])? {
        let due = client.due_ns.pop_front().context("an answer to nothing")?;
        if due >= warm_ns {
            latency_ns.record((now_ns - due).max(1))?;
        }
    }
    Ok(())
}
