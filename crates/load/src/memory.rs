//! Checks before a run whether its messages fit into memory. When memory runs out, the kernel kills
//! processes, and possibly the server under test first.

use std::fs;

use crate::loads::LoadPlan;
use crate::payload::{PayloadContent, PayloadPlan};
use crate::plan::Plan;
use crate::report::units::{bytes, count};

/// The memory for messages of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageMemory {
    /// Bytes of the messages that all processes of the tester queue or receive at the same time. A high
    /// estimate for the messages alone: it excludes connections and frame headers.
    pub bytes: u64,
    /// A description of how `bytes` was computed.
    pub words: String,
}

impl MessageMemory {
    /// Estimates the memory for a plan's messages. In an open loop the messages of one second are assumed to be in flight.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let clients = u64::from(plan.clients());
        let second = |rate: f64, to: Option<f64>| rate.max(to.unwrap_or(rate)).ceil() as u64;
        match &plan.load {
            LoadPlan::Storm(storm) => Self::on_each(size(&storm.payload), clients, 1),
            LoadPlan::Echo(echo) => match echo.rate {
                Some(rate) => Self::in_a_second(size(&echo.payload), second(rate, echo.rate_to)),
                None => Self::on_each(size(&echo.payload), clients, echo.inflight),
            },
            LoadPlan::Http(http) => match http.rate {
                Some(rate) => Self::in_a_second(http.body.len(), second(rate, http.rate_to)),
                None => Self::on_each(http.body.len(), clients, http.inflight),
            },
            LoadPlan::Fanout(fanout) if fanout.to_one => {
                Self::in_a_second(fanout.size, second(fanout.rate, fanout.rate_to))
            }
            LoadPlan::Fanout(fanout) => Self::on_each(fanout.size, clients, 1),
            // The messages of a shootout are short, and few are in flight.
            LoadPlan::Shootout(_) => Self::on_each(0, clients, 1),
        }
    }

    fn on_each(size: usize, clients: u64, inflight: u32) -> Self {
        let words = format!(
            "messages of {1}, {0} in flight on each of {2} connections",
            count(inflight.into()),
            bytes(size as f64),
            count(clients)
        );
        Self::both_ways(size, clients.saturating_mul(inflight.into()), words)
    }

    fn in_a_second(size: usize, messages: u64) -> Self {
        let words = format!(
            "messages of {1}, {0} a second",
            count(messages),
            bytes(size as f64)
        );
        Self::both_ways(size, messages, words)
    }

    fn both_ways(size: usize, messages: u64, words: String) -> Self {
        Self {
            bytes: messages.saturating_mul(size as u64).saturating_mul(2),
            words,
        }
    }
}

fn size(payload: &PayloadPlan) -> usize {
    match &payload.content {
        PayloadContent::Size(size) => *size,
        PayloadContent::Fixed(bytes) => bytes.len(),
    }
}

/// Checks that the messages of concurrent runs fit into the available memory. Succeeds if the system does not report
/// the available memory.
///
/// # Errors
/// The messages do not fit. The text contains the needed and the available memory.
pub fn check(weights: &[MessageMemory]) -> Result<(), String> {
    match available_bytes() {
        Some(available) => compare(weights, available),
        None => Ok(()),
    }
}

fn compare(weights: &[MessageMemory], available: u64) -> Result<(), String> {
    let needed = weights
        .iter()
        .fold(0u64, |sum, weight| sum.saturating_add(weight.bytes));
    if needed <= available {
        return Ok(());
    }
    let words: Vec<&str> = weights.iter().map(|weight| weight.words.as_str()).collect();
    Err(format!(
        "messages may need {} of memory, but only {} is available: {}, in both directions; use fewer or smaller messages",
        bytes(needed as f64),
        bytes(available as f64),
        words.join(", and ")
    ))
}

/// Returns the kernel's estimate of memory available without swapping.
fn available_bytes() -> Option<u64> {
    available_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::echo::EchoPlan;
    use crate::plan::Endpoint;
    use crate::target::Target;

    const MIB: u64 = 1024 * 1024;

    fn echo(mib: u64, clients: u32, inflight: u32, rate: Option<f64>) -> MessageMemory {
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        MessageMemory::of(&Plan {
            endpoints: vec![Endpoint::new(target, clients)],
            load: LoadPlan::Echo(EchoPlan {
                payload: PayloadPlan {
                    binary: false,
                    content: PayloadContent::Size((mib * MIB) as usize),
                },
                inflight,
                rate,
                rate_to: rate.map(|rate| rate / 2.0),
                ..EchoPlan::default()
            }),
            duration_ns: None,
            warmup_ns: 0,
            timeout_ns: 1,
            opening_max: 1,
            connect_rate: None,
            sources: Vec::new(),
            seed: 0,
            threads: 2,
            processes: 2,
        })
    }

    #[test]
    fn a_weight_is_size_times_messages_both_ways() {
        let closed = echo(4, 1000, 3, None);
        assert_eq!(closed.bytes, 2 * 3 * 1000 * 4 * MIB);
        assert_eq!(
            closed.words,
            "messages of 4 MiB, 3 in flight on each of 1,000 connections"
        );
        // Not every connection has a message in flight.
        let open = echo(4, 1000, 1, Some(20.0));
        assert_eq!(open.bytes, 2 * 20 * 4 * MIB);
        assert_eq!(open.words, "messages of 4 MiB, 20 a second");
        assert_eq!(echo(u64::MAX / MIB, u32::MAX, 9, None).bytes, u64::MAX);
    }

    #[test]
    fn insufficient_memory_is_reported_with_both_sizes() {
        let weights = [echo(4, 10, 1, None), echo(1, 20, 1, None)];
        assert_eq!(compare(&weights, 120 * MIB), Ok(()));
        assert_eq!(
            compare(&weights, 119 * MIB).unwrap_err(),
            "messages may need 120 MiB of memory, but only 119 MiB is available: messages of 4 MiB, 1 in flight on each of 10 \
             connections, and messages of 1 MiB, 1 in flight on each of 20 connections, in both directions; use fewer or smaller messages"
        );
    }

    #[test]
    fn what_the_kernel_says() {
        let text = "MemTotal:       24623564 kB\nMemFree:    1 kB\nMemAvailable:   23068672 kB\n";
        assert_eq!(available_in(text), Some(22 * 1024 * MIB));
        assert_eq!(available_in("MemTotal: 5 kB\n"), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > MIB));
    }
}
