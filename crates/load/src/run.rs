//! A run from its first connect to its report.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use crate::clock::{SECOND, now_ns};
use crate::control::TotalProgress;
use crate::ledger::DeliveryLedger;
use crate::loads::LoadPlan;
use crate::plan::Plan;
use crate::report::model::{
    ConnectionCounts, GeneratorUse, LostProcess, Machine, Messages, Report, SCHEMA, ServerUse,
};
use crate::report::units::time;
use crate::resource_usage::{self, ProcessUsage};
use crate::script::ScriptRun;
use crate::tally::Tally;
use crate::thread_group::{Generators, POLL_INTERVAL, RunProgress, RunStage, ThreadGroup};

/// The means by which a caller controls and observes a run.
pub struct RunControl<'a> {
    /// The id of the server's process, if known.
    pub pid: Option<u32>,
    /// The number of interrupts so far. The first ends the measurement, the second ends all waits.
    pub interrupts: &'a AtomicUsize,
    /// Set by the caller to end the measurement early. The report states this.
    pub stop: &'a AtomicBool,
    /// How long connections stay open after the measurement, in nanoseconds.
    pub hold_ns: u64,
    /// The command that starts a worker process of the tester. Its program must call the `serve`
    /// function of this crate's worker process module.
    pub worker_args: Option<Command>,
    /// Called regularly with the progress.
    pub progress: &'a mut dyn FnMut(RunProgress),
}

/// Returns whether this process exists and has not ended. The `pid` of a run must meet this
/// condition.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    resource_usage::is_running(pid)
}

/// The reason why a run has no report.
#[derive(Debug)]
pub enum RunError {
    /// No process has this id.
    NoProcess(u32),
    /// Any other error: of the system, of a file named in the plan, or of the tester's own threads
    /// or processes.
    System(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess(pid) => write!(f, "--pid {pid}: no such process"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Runs a plan. The caller must fill in `kind`, `settings` and `started` of the report.
///
/// # Errors
/// See [`RunError`]. Server faults are part of the report.
pub fn run(plan: Plan, mut run_control: RunControl<'_>) -> Result<Report, RunError> {
    let plan = Arc::new(plan);
    let own_before = resource_usage::own_rss_bytes();
    let (pid, member) = (run_control.pid, run_control.worker_args.take());
    let finished = FinishedRun::follow(run_control, plan.warmup_ns, || {
        Generators::spawn(&plan, member.as_ref())
    })?;
    let tally = &finished.tally;
    let seconds = measured_seconds(&plan, &finished);
    let target = &plan.endpoints[0].target;
    let endpoints = plan.endpoints.iter();
    let addresses: Vec<SocketAddr> = endpoints
        .flat_map(|endpoint| endpoint.target.addresses.iter().copied())
        .collect();
    let mut report = finished.report(pid, seconds);
    report.target = format!(
        "{}://{}{}",
        target.scheme,
        target.authority,
        target.path.as_str()
    );
    report.connections.time_wait = Some(resource_usage::time_wait(&addresses));
    report.messages.rate_reached = rate_reached(&plan, tally);
    let is_unstamped_echo =
        matches!(plan.load, LoadPlan::Echo(_)) && plan.load.is_stamped() == Some(false);
    if is_unstamped_echo && tally.unpaired + tally.unanswered > 0 {
        refuse_latencies(&mut report, tally);
    }
    let grown = finished.own_open_bytes.saturating_sub(own_before) as f64;
    // With fewer connections, the tester's fixed memory would dominate the bytes per connection.
    if tally.opened >= 1000 && plan.processes <= 1 {
        report.generator.bytes_per_connection = Some(grown / tally.opened as f64);
    }
    note_bottlenecks(&mut report, tally);
    Ok(report)
}

/// Measures a run whose users execute a script. The caller simulates these users on its own threads, which must already
/// be running (see [`ScriptRun`]). The caller must also fill in `settings` and `started` of the report.
///
/// # Errors
/// See [`RunError`].
pub fn run_script(run: &Arc<ScriptRun>, run_control: RunControl<'_>) -> Result<Report, RunError> {
    let pid = run_control.pid;
    let finished = FinishedRun::follow(run_control, run.plan().warmup_ns, || {
        Ok(Generators::Script(Arc::clone(run)))
    })?;
    let length_ns = finished.ended_ns.saturating_sub(finished.from_ns);
    let length_ns = length_ns.clamp(1, run.plan().duration_ns);
    let seconds = length_ns as f64 / SECOND as f64;
    let mut report = finished.report(pid, seconds);
    "script".clone_into(&mut report.kind);
    report.target.clone_from(&run.plan().url);
    report.script = Some(run.actions(seconds));
    note_bottlenecks(&mut report, &finished.tally);
    Ok(report)
}

struct FinishedRun {
    tally: Tally,
    lost: Vec<LostProcess>,
    interrupted: bool,
    stopped: bool,
    /// The start of the measured time in nanoseconds; `ended_ns` is its end.
    from_ns: u64,
    ended_ns: u64,
    /// The server's resource use before the run, and at the start and end of the measured time.
    server: Option<[ProcessUsage; 3]>,
    /// The tester's resident memory with all connections open.
    own_open_bytes: u64,
}

impl FinishedRun {
    /// Follows a run from its first connect to its end.
    fn follow(
        run_control: RunControl<'_>,
        warmup_ns: u64,
        muster: impl FnOnce() -> io::Result<Generators>,
    ) -> Result<Self, RunError> {
        let usage = |pid: u32| ProcessUsage::of(pid).ok_or(RunError::NoProcess(pid));
        let before = run_control.pid.map(usage).transpose()?;
        let mut watcher = Watcher {
            run_control,
            party: muster()?,
            stops: 0,
            is_stopped: false,
            since_ns: now_ns(),
            began_ns: now_ns(),
            stage: RunStage::Connecting,
        };
        if watcher.run_control.hold_ns > 0 {
            watcher.party.hold(true);
        }
        watcher.wait_until(|sums, _| sums.ready);
        let sums = watcher.party.sums();
        if sums.opened == 0 && sums.failed > 0 {
            // No connection could be opened, so there is nothing to measure.
            watcher.party.stop();
        }
        let start = ThreadGroup::soon();
        watcher.party.start_at(start);
        let from_ns = start + warmup_ns;
        watcher.enter(RunStage::WarmingUp);
        watcher.wait_until(|sums, now| sums.done || now >= from_ns);
        let began = watcher.run_control.pid.and_then(ProcessUsage::of);
        let own_began = watcher.own_usage();
        watcher.enter(RunStage::Measuring);
        watcher.wait_until(|sums, _| sums.done);
        let ended_ns = now_ns();
        let mut ended = watcher.run_control.pid.and_then(ProcessUsage::of);
        let own_ended = watcher.own_usage();
        let own_open_bytes = resource_usage::own_rss_bytes();
        watcher.enter(RunStage::Finishing);
        if watcher.run_control.hold_ns > 0 {
            let until = ended_ns.saturating_add(watcher.run_control.hold_ns);
            let stops = watcher.stops;
            watcher.wait_until(|_, now| now >= until);
            // An interrupt while connections are held open does not count as an interrupt of the measurement.
            watcher.stops = watcher.stops.min(stops);
            watcher.party.hold(false);
            // The server's resident memory is read again after the hold time, when all connections are open and idle.
            let held = watcher.run_control.pid.and_then(ProcessUsage::of);
            ended = ended.zip(held).map(|(ended, held)| ProcessUsage {
                rss_bytes: held.rss_bytes,
                ..ended
            });
        }
        let interrupted = watcher.stops > 0;
        let stopped = watcher.is_stopped;
        watcher.wait_until(|sums, _| sums.finished);
        let (mut tally, lost) = watcher.party.join()?;
        if let (Some(began), Some(ended)) = (own_began, own_ended) {
            tally.cpu_ns = ended.cpu_ns.saturating_sub(began.cpu_ns);
            tally.cpu_ns_max = ended.busiest_ns(&began);
        }
        let server = before.zip(began).zip(ended);
        Ok(Self {
            tally,
            lost,
            interrupted,
            stopped,
            from_ns,
            ended_ns,
            server: server.map(|((before, began), ended)| [before, began, ended]),
            own_open_bytes,
        })
    }

    /// Creates a report with the parts that are common to all kinds of runs.
    fn report(&self, pid: Option<u32>, seconds: f64) -> Report {
        let mut report = assemble(&self.tally, seconds);
        report.interrupted = self.interrupted;
        report.stopped = self.stopped;
        report.incomplete = !self.lost.is_empty();
        report.generator.lost.clone_from(&self.lost);
        match (pid, &self.server) {
            (Some(pid), Some(usage)) => {
                report.server = Some(server_use(pid, &self.tally, seconds, usage));
            }
            _ => report.server_ended = pid,
        }
        report
    }
}

struct Watcher<'a> {
    run_control: RunControl<'a>,
    party: Generators,
    stops: usize,
    is_stopped: bool,
    stage: RunStage,
    since_ns: u64,
    began_ns: u64,
}

impl Watcher<'_> {
    /// Returns this process's resource use; `None` if the resource use of its threads is measured
    /// separately.
    fn own_usage(&self) -> Option<ProcessUsage> {
        let is_script = matches!(self.party, Generators::Script(_));
        is_script
            .then(|| ProcessUsage::of(std::process::id()))
            .flatten()
    }

    fn enter(&mut self, stage: RunStage) {
        self.stage = stage;
        self.since_ns = now_ns();
    }

    /// Waits until `is` returns `true`. Meanwhile forwards interrupts and reports progress. An interrupt also ends the
    /// wait for connections, and the time for which connections are held open after the measurement.
    fn wait_until(&mut self, is: impl Fn(TotalProgress, u64) -> bool) {
        loop {
            let sums = self.party.sums();
            if is(sums, now_ns()) {
                return;
            }
            let before = self.stops;
            while self.stops < self.run_control.interrupts.load(Relaxed) {
                self.stops += 1;
                self.party.stop();
            }
            if !self.is_stopped && self.run_control.stop.load(Relaxed) {
                self.is_stopped = true;
                self.party.stop();
            }
            let is_held = self.stage == RunStage::Finishing && !sums.finished;
            if self.stops > before && (self.stage == RunStage::Connecting || is_held) {
                return;
            }
            (self.run_control.progress)(RunProgress {
                asked: sums.asked,
                opened: sums.opened,
                failed: sums.failed,
                received: sums.received,
                errors: sums.errors,
                p99_ns: (sums.p99_ns > 0).then_some(sums.p99_ns),
                stage: self.stage,
                for_ns: now_ns() - self.since_ns,
                elapsed_ns: now_ns() - self.began_ns,
            });
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the duration of the measurement in seconds, at most the planned one.
fn measured_seconds(plan: &Plan, finished: &FinishedRun) -> f64 {
    let from_ns = finished.from_ns;
    let from = match plan.duration_ns {
        Some(_) => from_ns,
        None => {
            let first_connect_ns = finished.tally.first_connect_ns;
            first_connect_ns.unwrap_or(from_ns).max(from_ns)
        }
    };
    let length = finished.ended_ns.saturating_sub(from);
    let length = plan
        .duration_ns
        .map_or(length, |planned| planned.min(length));
    length.max(1) as f64 / SECOND as f64
}

/// Removes the latencies from a report and states the reason. Without stamps, answers are matched
/// by their order, so after a lost or duplicated message all later answers are matched with wrong
/// messages.
fn refuse_latencies(report: &mut Report, tally: &Tally) {
    report.latency_us = None;
    report.histogram.clear();
    report.distribution = None;
    for step in &mut report.timeline {
        (step.p50_us, step.p99_us, step.max_us) = (None, None, None);
    }
    let unpaired = tally.unpaired + tally.unanswered;
    report.latency_refused = Some(format!(
        "messages are not numbered, and {unpaired} messages and answers can't be matched"
    ));
}

fn assemble(tally: &Tally, seconds: f64) -> Report {
    let (cpu, kernel) = resource_usage::machine();
    let all_open_ns = tally
        .first_connect_ns
        .zip(tally.settled_ns)
        .map(|(first, settled)| settled.saturating_sub(first));
    Report {
        schema: SCHEMA,
        machine: Machine {
            veche: env!("CARGO_PKG_VERSION").to_owned(),
            cpu,
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel,
        },
        seconds,
        connections: ConnectionCounts {
            asked: tally.asked,
            opened: tally.opened,
            failed: tally.failed,
            disconnected: tally.disconnected,
            reconnected: tally.reconnected,
            dead: tally.dead,
            late: tally.late_connects,
            all_open_s: all_open_ns.map(|ns| ns as f64 / SECOND as f64),
            ..ConnectionCounts::default()
        },
        messages: Messages {
            sent: tally.sent,
            received: tally.received,
            received_in_time: tally.came,
            per_second: tally.came as f64 / seconds,
            bytes_sent: tally.bytes_sent,
            bytes_received: tally.bytes_received,
            unasked: tally.unasked,
            heartbeats: tally.heartbeats,
            duplicated: tally.duplicated,
            late: tally.late,
            lost: tally.lost,
            unanswered: tally.unanswered,
            ..Messages::default()
        },
        errors: tally.errors(),
        latency_us: tally.latency.times.summary(),
        handshake_us: tally.handshake.summary(),
        histogram: tally.latency.times.buckets(),
        distribution: tally.latency.times.distribution(),
        timeline: tally.latency.timeline(seconds),
        ledger: tally
            .delivery_ledger
            .as_ref()
            .map(DeliveryLedger::reconcile),
        http: tally.http.clone(),
        steps: tally.steps.clone(),
        generator: GeneratorUse {
            cpu: tally.cpu_ns_max as f64 / SECOND as f64 / seconds,
            cpu_s: tally.cpu_ns as f64 / SECOND as f64,
            cpu_us_per_message: (tally.came > 0)
                .then(|| tally.cpu_ns as f64 / 1000.0 / tally.came as f64),
            waited: tally.waited_ns_max as f64 / SECOND as f64 / seconds,
            lag_us_max: tally.lag_ns_max as f64 / 1000.0,
            pause_us_max: tally.pause_ns_max as f64 / 1000.0,
            unsent_bytes_max: tally.unsent_bytes_max,
            late_sends: tally.late_sends,
            ..GeneratorUse::default()
        },
        ..Report::default()
    }
}

/// The share of due messages that must be answered in time for the rate of an open loop to count as reached.
const IN_TIME: f64 = 0.99;

/// Returns whether the rate of an open loop was reached; `None` for a closed loop, or if nothing
/// was due.
fn rate_reached(plan: &Plan, tally: &Tally) -> Option<bool> {
    plan.load.rate()?;
    let due = match &plan.load {
        // The ledger counts lost deliveries, so they do not count here.
        LoadPlan::Fanout(_) => tally.received,
        _ => tally.received + tally.unanswered,
    };
    (due > 0).then_some(tally.in_time as f64 >= due as f64 * IN_TIME)
}

fn server_use(
    pid: u32,
    tally: &Tally,
    seconds: f64,
    [before, began, ended]: &[ProcessUsage; 3],
) -> ServerUse {
    let cpu_ns = ended.cpu_ns.saturating_sub(began.cpu_ns);
    let grown = ended.rss_bytes.saturating_sub(before.rss_bytes);
    ServerUse {
        pid,
        processes: ended.processes,
        cpu_busiest: ended.busiest_ns(began) as f64 / SECOND as f64 / seconds,
        cpu_s: cpu_ns as f64 / SECOND as f64,
        cpu_us_per_message: (tally.came > 0).then(|| cpu_ns as f64 / 1000.0 / tally.came as f64),
        rss_before_bytes: before.rss_bytes,
        rss_open_bytes: ended.rss_bytes,
        bytes_per_connection: (tally.opened > 0).then(|| grown as f64 / tally.opened as f64),
    }
}

/// The share of a core above which a thread of the tester counts as a bottleneck.
const BUSY: f64 = 0.9;
/// Shares of the time in which a thread waited for a core. Above the first value the report has a
/// remark; above the second the tester counts as the bottleneck.
const WAITED: [f64; 2] = [0.05, 0.25];
/// Shares of messages sent late. Above the first value the report has a remark; above the second
/// the tester counts as the bottleneck.
const LATE: [f64; 2] = [0.01, 0.1];

/// Up to this number, late sends are ignored.
const LATE_MIN: u64 = 10;

/// Determines whether the tester was the bottleneck.
fn note_bottlenecks(report: &mut Report, tally: &Tally) {
    // The busiest threads are compared, since the sum of several half-idle server threads could
    // exceed one busy thread.
    let server_cpu = report.server.as_ref().map(|server| server.cpu_busiest);
    let generator = &mut report.generator;
    if generator.cpu >= BUSY && server_cpu.is_none_or(|cpu| cpu < generator.cpu) {
        generator.reasons.push(format!(
            "a thread of the tester used {:.0} % of a core: increase --threads",
            generator.cpu * 100.0
        ));
    }
    let late = tally.late_sends as f64 / tally.sent.max(1) as f64;
    for (share, [reported, decisive], words) in [
        (
            generator.waited,
            WAITED,
            format!(
                "a thread of the tester waited for a core {:.0} % of the time: it shares one with the server or other programs",
                generator.waited * 100.0
            ),
        ),
        (
            if tally.late_sends > LATE_MIN {
                late
            } else {
                0.0
            },
            LATE,
            format!(
                "{} of {} messages were sent more than a millisecond late",
                tally.late_sends, tally.sent
            ),
        ),
    ] {
        if share >= decisive {
            generator.reasons.push(words);
        } else if share >= reported {
            generator.remarks.push(words);
        }
    }
    if generator.pause_us_max > 0.0 {
        generator.reasons.push(format!(
            "the tester did not run for {}: it was stopped or had no core",
            time(generator.pause_us_max)
        ));
    }
    generator.bottleneck = !generator.reasons.is_empty();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If eight server threads use a sixth of a core each, the server is not busier than one tester
    /// thread that uses a whole core.
    #[test]
    fn a_thread_is_compared_with_a_thread() {
        for (busiest, is_bottleneck) in [(0.17, true), (0.99, false)] {
            let mut report = Report {
                seconds: 10.0,
                server: Some(ServerUse {
                    cpu_busiest: busiest,
                    cpu_s: 13.6,
                    ..ServerUse::default()
                }),
                generator: GeneratorUse {
                    cpu: 0.97,
                    ..GeneratorUse::default()
                },
                ..Report::default()
            };
            note_bottlenecks(&mut report, &Tally::default());
            assert_eq!(report.generator.bottleneck, is_bottleneck, "{busiest}");
        }
    }

    #[test]
    fn what_did_not_set_the_pace_is_a_remark() {
        for (waited, late_sends, reasons, remarks) in [
            (0.04, 9, 0, 0),
            (0.06, 20, 0, 2),
            (0.3, 20, 1, 1),
            (0.3, 200, 2, 0),
        ] {
            let mut report = Report {
                generator: GeneratorUse {
                    waited,
                    ..GeneratorUse::default()
                },
                ..Report::default()
            };
            let tally = Tally {
                sent: 1000,
                late_sends,
                ..Tally::default()
            };
            note_bottlenecks(&mut report, &tally);
            let generator = &report.generator;
            assert_eq!(generator.reasons.len(), reasons, "{generator:?}");
            assert_eq!(generator.remarks.len(), remarks, "{generator:?}");
            assert_eq!(generator.bottleneck, reasons > 0);
        }
    }
}
