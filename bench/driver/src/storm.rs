//! The storm of WORKLOADS' first article: N handshakes, one message and its answer on each, nobody may fail.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::cpu::{Meter, Usage};
use crate::frame::{self, BINARY};
use crate::{Target, fleet};

#[derive(Serialize)]
pub struct Report {
    pub opened: usize,
    pub failed: usize,
    pub failures: BTreeMap<String, usize>,
    pub handshake_p50_ms: f64,
    pub handshake_p99_ms: f64,
    pub handshake_max_ms: f64,
    pub answer_p50_ms: f64,
    pub answer_p99_ms: f64,
    pub answer_max_ms: f64,
    /// Server's CPU time per connection that opened: accept, handshake, the one message.
    pub cpu_ns_per_handshake: Option<f64>,
    #[serde(flatten)]
    pub usage: Usage,
}

pub fn run(target: &Target, size: Option<usize>, deadline_ms: u64) -> anyhow::Result<Report> {
    let first = size.map(|size| {
        let data = frame::payload("storm.", size);
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        frame::echo(&mut request, &mut answer, BINARY, &data);
        fleet::FirstMessage {
            frame: request,
            answer,
        }
    });
    let meter = Meter::start(target.pid)?;
    let opened = fleet::attempt(
        target,
        |_| target.path.clone(),
        first.as_ref(),
        Duration::from_millis(deadline_ms),
    )?;
    let usage = meter.stop()?;
    let count = opened.connections.iter().flatten().count();
    let ms = |us: u64| us as f64 / 1e3;
    Ok(Report {
        opened: count,
        failed: target.connections - count,
        failures: opened.failures,
        handshake_p50_ms: ms(opened.handshake_us.value_at_quantile(0.5)),
        handshake_p99_ms: ms(opened.handshake_us.value_at_quantile(0.99)),
        handshake_max_ms: ms(opened.handshake_us.max()),
        answer_p50_ms: ms(opened.answer_us.value_at_quantile(0.5)),
        answer_p99_ms: ms(opened.answer_us.value_at_quantile(0.99)),
        answer_max_ms: ms(opened.answer_us.max()),
        cpu_ns_per_handshake: usage.cpu_ns_per(count as u64),
        usage,
    })
}
