//! The threads of a run, which start and end together, and the thread that waits for them and adds
//! up their tallies.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::{MILLISECOND, now_ns};
use crate::control::{Control, TotalProgress};
use crate::engine;
use crate::plan::Plan;
use crate::report::model::LostProcess;
use crate::script::ScriptRun;
use crate::tally::Tally;
use crate::worker_process::WorkerProcess;

/// The interval at which a thread that waits for other threads checks their progress.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Delay between the choice of a start time and the start, so that all threads learn of it in time.
const START_NS: u64 = 50 * MILLISECOND;

/// The threads of one process.
pub(crate) struct ThreadGroup {
    pub(crate) control: Arc<Control>,
    threads: Vec<JoinHandle<io::Result<Tally>>>,
}

impl ThreadGroup {
    /// Starts the threads of process number `process`. Each opens its connections, unless opening
    /// is part of the load, and waits for the start.
    pub(crate) fn spawn(plan: &Arc<Plan>, process: u32) -> io::Result<Self> {
        let first = process * plan.threads;
        let control = Arc::new(Control::new(first, plan.threads));
        let threads = (first..first + plan.threads)
            .map(|index| {
                let share = plan.share(index);
                let control = Arc::clone(&control);
                thread::Builder::new()
                    .name(format!("load-{index}"))
                    .spawn(move || {
                        let mut load = share.plan.load.load(&share);
                        let result = engine::run(&share, &mut *load, &control);
                        // Marks the thread as ready, done and finished even if it has failed, so
                        // that nothing waits for it.
                        control.thread(index).ready.store(true, Relaxed);
                        control.thread(index).done.store(true, Relaxed);
                        control.thread(index).finished.store(true, Relaxed);
                        result
                    })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { control, threads })
    }

    /// Returns whether all threads have finished.
    pub(crate) fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Returns a start time that is far enough ahead for all threads to learn of it.
    pub(crate) fn soon() -> u64 {
        now_ns() + START_NS
    }

    /// Waits for the end of all threads.
    pub(crate) fn join(self) -> io::Result<Tally> {
        let mut all = Tally::default();
        for thread in self.threads {
            let tally = thread
                .join()
                .map_err(|_| io::Error::other("a thread of the tester has panicked"))??;
            all.add(tally);
        }
        Ok(all)
    }
}

/// What generates the load of a run: threads of this process, several processes, or users of a
/// script.
pub(crate) enum Generators {
    Threads(ThreadGroup),
    Processes(Vec<WorkerProcess>),
    /// Users of a script, simulated by the caller's threads.
    Script(Arc<ScriptRun>),
}

impl Generators {
    /// Starts the threads or processes of a run. `member` is the program of worker processes.
    /// Without it, all threads run in this process.
    pub(crate) fn spawn(plan: &Arc<Plan>, member: Option<&Command>) -> io::Result<Self> {
        match member {
            Some(program) if plan.processes > 1 => (0..plan.processes)
                .map(|process| WorkerProcess::start(program, plan, process))
                .collect::<io::Result<_>>()
                .map(Self::Processes),
            _ => ThreadGroup::spawn(plan, 0).map(Self::Threads),
        }
    }

    pub(crate) fn start_at(&mut self, at_ns: u64) {
        match self {
            Self::Threads(group) => group.control.start_at(at_ns),
            Self::Processes(members) => members.iter_mut().for_each(|one| one.start_at(at_ns)),
            Self::Script(run) => run.start_at(at_ns),
        }
    }

    pub(crate) fn stop(&mut self) {
        match self {
            Self::Threads(group) => group.control.stop(),
            Self::Processes(members) => members.iter_mut().for_each(WorkerProcess::stop),
            Self::Script(run) => run.stop(),
        }
    }

    pub(crate) fn hold(&mut self, held: bool) {
        match self {
            Self::Threads(group) => group.control.hold(held),
            Self::Processes(members) => members.iter_mut().for_each(|one| one.hold(held)),
            // A hold has no effect on a script, because the script opens and closes its own
            // connections.
            Self::Script(_) => {}
        }
    }

    pub(crate) fn sums(&self) -> TotalProgress {
        match self {
            Self::Threads(group) => group.control.sums(),
            Self::Processes(members) => {
                let mut members = members.iter().map(WorkerProcess::sums);
                let mut sums = members.next().unwrap_or_default();
                members.for_each(|one| sums.add(one));
                sums
            }
            Self::Script(run) => run.sums(now_ns()),
        }
    }

    /// Waits for all threads or processes and adds up their tallies. Lost processes have no tally
    /// and are returned separately.
    ///
    /// # Errors
    /// No tally is available: all processes were lost, or a thread failed.
    pub(crate) fn join(self) -> io::Result<(Tally, Vec<LostProcess>)> {
        match self {
            Self::Threads(group) => group.join().map(|tally| (tally, Vec::new())),
            Self::Script(run) => Ok((run.tally(), Vec::new())),
            Self::Processes(members) => {
                let count = members.len();
                let mut all = Tally::default();
                let mut lost = Vec::new();
                for (process, member) in (1..).zip(members) {
                    match member.dismiss() {
                        Ok(tally) => all.add(tally),
                        Err(how) => lost.push(LostProcess { process, how }),
                    }
                }
                match lost.first() {
                    Some(first) if lost.len() == count => Err(io::Error::other(format!(
                        "all {count} processes of the tester were lost; the first one: {}",
                        first.how
                    ))),
                    _ => Ok((all, lost)),
                }
            }
        }
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// Number of requested connections.
    pub asked: u64,
    /// Number of opened connections.
    pub opened: u64,
    /// Number of failed connections.
    pub failed: u64,
    /// Number of answers or deliveries received so far in the measured time.
    pub received: u64,
    /// Number of errors so far.
    pub errors: u64,
    /// The 99th percentile of the last second's latencies in nanoseconds, in the thread where it is
    /// highest; `None` if there were no answers.
    pub p99_ns: Option<u64>,
    /// The current stage of the run.
    pub stage: RunStage,
    /// Nanoseconds since the start of the stage.
    pub for_ns: u64,
    /// Nanoseconds since the start of the run.
    pub elapsed_ns: u64,
}

/// A stage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunStage {
    /// Connections are being opened.
    #[default]
    Connecting,
    /// The load runs without measuring.
    WarmingUp,
    /// The load is being measured.
    Measuring,
    /// The run waits for the last answers and closing handshakes.
    Finishing,
}
