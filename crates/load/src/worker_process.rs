//! A run in several processes. The first process is the coordinator: it starts the worker processes, tells them when to begin
//! and end, and adds up their tallies.
//!
//! The processes exchange lines of JSON. The coordinator sends each worker process its part of the plan, and then
//! orders. The worker process sends reports. All processes share the monotonic clock, so the order to start contains a
//! time.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::control::TotalProgress;
use crate::plan::Plan;
use crate::tally::Tally;
use crate::thread_group::{POLL_INTERVAL, ThreadGroup};

/// The assignment of a worker process.
#[derive(Serialize, Deserialize)]
struct WorkerPlan {
    plan: Plan,
    process: u32,
}

/// A message to a worker process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum CoordinatorMessage {
    Start { at_ns: u64 },
    Stop,
    Hold(bool),
}

/// A message from a worker process.
#[derive(Debug, Serialize, Deserialize)]
enum WorkerReport {
    Live(TotalProgress),
    Tally(Box<Tally>),
    Failed(String),
}

/// Runs a worker process's part of a run: reads orders from `orders` and writes reports to `news`.
/// The program that the coordinator starts must call this.
///
/// # Errors
/// The coordinator has ended, or did not start this process.
pub fn serve(orders: impl io::Read + Send + 'static, mut news: impl Write) -> io::Result<()> {
    let mut orders = BufReader::new(orders);
    let mut line = String::new();
    orders.read_line(&mut line)?;
    let part: WorkerPlan = serde_json::from_str(&line)?;
    let group = ThreadGroup::spawn(&Arc::new(part.plan), part.process)?;
    let control = Arc::clone(&group.control);
    thread::spawn(move || {
        for line in orders.lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(CoordinatorMessage::Start { at_ns }) => control.start_at(at_ns),
                Ok(CoordinatorMessage::Stop) => control.stop(),
                Ok(CoordinatorMessage::Hold(held)) => control.hold(held),
                Err(_) => break,
            }
        }
        // The coordinator has ended. The first `stop` ends the measurement, the second one ends all waits.
        control.stop();
        control.stop();
    });
    while !group.is_finished() {
        send(&mut news, &WorkerReport::Live(group.control.sums()))?;
        thread::sleep(POLL_INTERVAL);
    }
    send(&mut news, &WorkerReport::Live(group.control.sums()))?;
    match group.join() {
        Ok(tally) => send(&mut news, &WorkerReport::Tally(Box::new(tally))),
        Err(error) => send(&mut news, &WorkerReport::Failed(error.to_string())),
    }
}

fn send(out: &mut impl Write, news: &WorkerReport) -> io::Result<()> {
    let mut line = serde_json::to_vec(news)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// A worker process, as seen by the coordinator.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    orders: Option<ChildStdin>,
    state: Arc<Mutex<TotalProgress>>,
    reader: Option<JoinHandle<io::Result<Tally>>>,
}

impl WorkerProcess {
    /// Starts `program` with its arguments. The program must call [`serve`].
    pub(crate) fn start(program: &Command, plan: &Plan, process: u32) -> io::Result<Self> {
        let mut command = Command::new(program.get_program());
        command
            .args(program.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The worker gets its own process group, so that Ctrl-C reaches only the coordinator.
            .process_group(0);
        let mut child = command.spawn()?;
        let (Some(mut orders), Some(news)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other(
                "the load process was started without pipes",
            ));
        };
        let part = WorkerPlan {
            plan: plan.clone(),
            process,
        };
        let mut line = serde_json::to_vec(&part)?;
        line.push(b'\n');
        orders.write_all(&line)?;
        let state = Arc::new(Mutex::new(TotalProgress::default()));
        let shared = Arc::clone(&state);
        let reader = thread::spawn(move || {
            let result = read(BufReader::new(news), &shared);
            // Marks the process as ready, done and finished even if it has failed, so that nothing
            // waits for it.
            let mut sums = shared.lock();
            (sums.ready, sums.done, sums.finished) = (true, true, true);
            result
        });
        Ok(Self {
            child,
            orders: Some(orders),
            state,
            reader: Some(reader),
        })
    }

    pub(crate) fn sums(&self) -> TotalProgress {
        *self.state.lock()
    }

    pub(crate) fn start_at(&mut self, at_ns: u64) {
        self.order(CoordinatorMessage::Start { at_ns });
    }

    pub(crate) fn stop(&mut self) {
        self.order(CoordinatorMessage::Stop);
    }

    pub(crate) fn hold(&mut self, held: bool) {
        self.order(CoordinatorMessage::Hold(held));
    }

    /// Sends an order. Errors are ignored: if the process has ended, the thread that reads its
    /// output notices.
    fn order(&mut self, order: CoordinatorMessage) {
        if let (Some(orders), Ok(mut line)) = (&mut self.orders, serde_json::to_vec(&order)) {
            line.push(b'\n');
            let _ = orders.write_all(&line);
        }
    }

    /// Waits for the worker process to end. Returns its tally, or a description of how the process was lost.
    pub(crate) fn dismiss(mut self) -> Result<Tally, String> {
        let reader = self.reader.take();
        let tally = reader.map(JoinHandle::join);
        self.orders = None;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        match tally {
            Some(Ok(Ok(tally))) => Ok(tally),
            Some(Ok(Err(error))) => Err(exit_description(status, &error)),
            _ => Err("the thread that reads the output of the process has panicked".to_owned()),
        }
    }
}

/// Describes how a worker process ended without a tally: by a signal, or with an error.
fn exit_description(status: ExitStatus, error: &io::Error) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("killed by signal {signal}"),
        (None, Some(code)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("ended early with exit code {code}")
        }
        _ => error.to_string(),
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Closing the pipe makes the worker process end.
        self.orders = None;
    }
}

fn read(news: impl BufRead, state: &Mutex<TotalProgress>) -> io::Result<Tally> {
    for line in news.lines() {
        match serde_json::from_str(&line?)? {
            WorkerReport::Live(sums) => {
                *state.lock() = sums;
            }
            WorkerReport::Tally(tally) => return Ok(*tally),
            WorkerReport::Failed(words) => return Err(io::Error::other(words)),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::LoadPlan;
    use crate::loads::storm::StormPlan;
    use crate::payload::PayloadPlan;
    use crate::plan::Endpoint;
    use crate::target::Target;

    /// Starts a worker process that reads its plan and then executes a shell script.
    fn member(script: &str) -> WorkerProcess {
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        let plan = Plan {
            endpoints: vec![Endpoint::new(target, 2)],
            load: LoadPlan::Storm(StormPlan {
                payload: PayloadPlan::default(),
            }),
            duration_ns: None,
            warmup_ns: 0,
            timeout_ns: 1,
            opening_max: 1,
            connect_rate: None,
            sources: Vec::new(),
            seed: 0,
            threads: 1,
            processes: 2,
        };
        let mut program = Command::new("sh");
        program.args(["-c", &format!("read part; {script}")]);
        WorkerProcess::start(&program, &plan, 0).unwrap()
    }

    #[test]
    fn the_cause_of_a_lost_process_is_reported() {
        for (script, how) in [
            ("kill -9 $$", "killed by signal 9"),
            // The process ends in the middle of a line.
            ("printf '{\"Live\":'; kill -15 $$", "killed by signal 15"),
            ("exit 3", "ended early with exit code 3"),
            ("echo '{\"Failed\":\"no descriptors\"}'", "no descriptors"),
        ] {
            assert_eq!(member(script).dismiss().unwrap_err(), how, "{script}");
        }
    }

    #[test]
    fn a_lost_process_is_not_waited_for() {
        let member = member("kill -9 $$");
        while !member.sums().finished {
            thread::yield_now();
        }
        let sums = member.sums();
        assert!(sums.ready && sums.done, "{sums:?}");
        assert!(member.dismiss().is_err());
    }
}
