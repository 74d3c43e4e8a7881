//! TLS handshakes and nothing else: a slot connects, shakes hands, waits for its tickets, goes away and comes again.
//! Each slot keeps its own tickets, so with `--resume` every handshake but its first goes on from the one before.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::Args;
use rustls::{ClientConfig, HandshakeKind};
use serde::Serialize;

use crate::cpu::{Meter, Usage};
use crate::poll::Poll;
use crate::stream::Stream;
use crate::{Target, fleet, tls};

/// How long the first handshakes may take.
const FIRST_WAIT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct Plan {
    /// Go on from the connection before, by its ticket.
    #[arg(long)]
    resume: bool,
    #[arg(long, default_value_t = 500)]
    warmup_ms: u64,
    #[arg(long, default_value_t = 2000)]
    measure_ms: u64,
}

#[derive(Serialize)]
pub struct Report {
    pub handshakes: u64,
    pub handshakes_per_second: f64,
    pub cpu_ns_per_handshake: Option<f64>,
    #[serde(flatten)]
    pub usage: Usage,
}

struct Slot {
    config: Arc<ClientConfig>,
    stream: Stream,
    has_connected: bool,
    /// Handshakes that it has finished.
    done: u64,
}

pub fn run(target: &Target, plan: &Plan) -> anyhow::Result<Report> {
    let mut poll = Poll::new()?;
    let mut slots = Vec::with_capacity(target.connections);
    for index in 0..target.connections {
        let config = tls::config()?;
        let stream = begin(target, index, &config, &poll)?;
        slots.push(Slot {
            config,
            stream,
            has_connected: false,
            done: 0,
        });
    }
    drive(target, plan, &mut poll, &mut slots, plan.warmup_ms)?;
    // Each has its ticket before anything is measured, however slow the server is.
    let patience_ends = Instant::now() + FIRST_WAIT;
    while slots.iter().any(|slot| slot.done == 0) {
        ensure!(
            Instant::now() < patience_ends,
            "a slot has not had its first handshake yet"
        );
        drive(target, plan, &mut poll, &mut slots, 20)?;
    }
    let meter = Meter::start(target.pid)?;
    let handshakes = drive(target, plan, &mut poll, &mut slots, plan.measure_ms)?;
    let usage = meter.stop()?;
    ensure!(handshakes > 0, "no handshake came to its end");
    Ok(Report {
        handshakes,
        handshakes_per_second: handshakes as f64 * 1e3 / usage.wall_ms,
        cpu_ns_per_handshake: usage.cpu_ns_per(handshakes),
        usage,
    })
}

fn begin(
    target: &Target,
    index: usize,
    config: &Arc<ClientConfig>,
    poll: &Poll,
) -> anyhow::Result<Stream> {
    let stream = Stream::new(fleet::connect(target.address, index)?, Some(config))?;
    poll.writable(&stream, index)?;
    Ok(stream)
}

/// Runs for a while; handshakes that came to their end.
fn drive(
    target: &Target,
    plan: &Plan,
    poll: &mut Poll,
    slots: &mut [Slot],
    duration_ms: u64,
) -> anyhow::Result<u64> {
    let end = Instant::now() + Duration::from_millis(duration_ms);
    let mut finished = 0;
    while Instant::now() < end {
        let ready: Vec<usize> = poll
            .wait(Duration::from_millis(10))?
            .map(|(name, _)| name)
            .collect();
        for index in ready {
            let slot = &mut slots[index];
            if !slot.has_connected {
                if let Some(error) = slot.stream.socket.take_error()? {
                    bail!("connect: {error}");
                }
                slot.has_connected = true;
                poll.change(&slot.stream, index, false)?;
            }
            slot.stream.shake()?;
            if !is_over(slot, plan)? {
                continue;
            }
            finished += 1;
            slot.done += 1;
            poll.remove(&slot.stream)?;
            // In good order, as a client does; the reset behind it only spares the port its wait.
            slot.stream.say_goodbye()?;
            slot.stream.socket.shutdown(Shutdown::Write)?;
            if !plan.resume {
                slot.config = tls::config()?;
            }
            slot.stream = begin(target, index, &slot.config, poll)?;
            slot.has_connected = false;
        }
    }
    Ok(finished)
}

/// Whether the handshake is over and, where the next one needs it, a ticket has come.
fn is_over(slot: &Slot, plan: &Plan) -> anyhow::Result<bool> {
    let Some(tls) = slot.stream.tls() else {
        bail!("handshakes without TLS");
    };
    if tls.is_handshaking() || tls.tls13_tickets_received() == 0 {
        return Ok(false);
    }
    let wanted = match plan.resume && slot.done > 0 {
        true => HandshakeKind::Resumed,
        false => HandshakeKind::Full,
    };
    ensure!(
        tls.handshake_kind() == Some(wanted),
        "a handshake of another kind: {:?}",
        tls.handshake_kind()
    );
    Ok(true)
}
