//! The threads of a run, and the one that waits for them: start together, end together, one tally.

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

/// How often the one that waits looks.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Between "start" and the start, so that all hear of it before.
const START_NS: u64 = 50 * MILLISECOND;

/// The threads of one process.
pub(crate) struct ThreadGroup {
    pub(crate) control: Arc<Control>,
    threads: Vec<JoinHandle<io::Result<Tally>>>,
}

impl ThreadGroup {
    /// Starts the threads of process `process`; they connect, if their load does so first, and wait for the start.
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
                        // Nobody is to wait for a thread that has failed.
                        control.thread(index).ready.store(true, Relaxed);
                        control.thread(index).done.store(true, Relaxed);
                        control.thread(index).finished.store(true, Relaxed);
                        result
                    })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { control, threads })
    }

    /// Whether all threads have nothing more to do.
    pub(crate) fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// The time of a start that everybody can keep.
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

/// All who take part in a run: the threads of this process, or of several.
pub(crate) enum Generators {
    Threads(ThreadGroup),
    Processes(Vec<WorkerProcess>),
    /// Users of a script, which the caller's threads play.
    Script(Arc<ScriptRun>),
}

impl Generators {
    /// `member` is the program that becomes a member; without it there is but one process.
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
            Self::Threads(crew) => crew.control.start_at(at_ns),
            Self::Processes(members) => members.iter_mut().for_each(|one| one.start_at(at_ns)),
            Self::Script(run) => run.start_at(at_ns),
        }
    }

    pub(crate) fn stop(&mut self) {
        match self {
            Self::Threads(crew) => crew.control.stop(),
            Self::Processes(members) => members.iter_mut().for_each(WorkerProcess::stop),
            Self::Script(run) => run.stop(),
        }
    }

    pub(crate) fn hold(&mut self, held: bool) {
        match self {
            Self::Threads(crew) => crew.control.hold(held),
            Self::Processes(members) => members.iter_mut().for_each(|one| one.hold(held)),
            // Connections are the script's.
            Self::Script(_) => {}
        }
    }

    pub(crate) fn sums(&self) -> TotalProgress {
        match self {
            Self::Threads(crew) => crew.control.sums(),
            Self::Processes(members) => {
                let mut members = members.iter().map(WorkerProcess::sums);
                let mut sums = members.next().unwrap_or_default();
                members.for_each(|one| sums.add(one));
                sums
            }
            Self::Script(run) => run.sums(now_ns()),
        }
    }

    /// Waits for all, and adds up what they have counted. Processes that were lost are named instead.
    ///
    /// # Errors
    /// Nobody is left who could have counted anything.
    pub(crate) fn join(self) -> io::Result<(Tally, Vec<LostProcess>)> {
        match self {
            Self::Threads(crew) => crew.join().map(|tally| (tally, Vec::new())),
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
                        "all {count} processes of the tester are lost, the first: {}",
                        first.how
                    ))),
                    _ => Ok((all, lost)),
                }
            }
        }
    }
}

/// How a run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// Connections asked for.
    pub asked: u64,
    /// Of them, open.
    pub opened: u64,
    /// Of them, failed.
    pub failed: u64,
    /// Answers or deliveries received in the measured time so far.
    pub received: u64,
    /// Errors so far.
    pub errors: u64,
    /// Of the answers of the last second, in nanoseconds: of the thread where it is longest.
    pub p99_ns: Option<u64>,
    /// What it is doing.
    pub stage: RunStage,
    /// Since the beginning of that, in nanoseconds.
    pub for_ns: u64,
    /// Since the beginning of the run, in nanoseconds.
    pub elapsed_ns: u64,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunStage {
    /// Opening connections.
    #[default]
    Connecting,
    /// Sending, not measuring.
    WarmingUp,
    /// Measuring.
    Measuring,
    /// Waiting for last answers and good-byes.
    Finishing,
}
