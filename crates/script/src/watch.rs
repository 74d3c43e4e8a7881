//! The watchdog: ends a run that has used up its CPU time without waiting, and never ends another
//! run by mistake.
//!
//! A worker only records when a script's run starts and ends. One thread of the process checks every few milliseconds
//! whether a run has used up its CPU time. If so, it sends a signal to the worker's thread, where the signal handler
//! sets Lua's debug hook (as Lua's own interpreter does at Ctrl-C). The hook raises an error only after a short grace
//! period, because the garbage collector may have used the time. The module `raw` removes the hook when the run has
//! ended. A signal that arrives too late finds another run, or none, and does nothing.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use mlua::ffi::lua_State;
use parking_lot::Mutex;

use crate::raw;

/// The watchdog's interval while scripts run. A run may exceed its budget by up to two intervals before it gets the
/// signal: the watchdog measures a run from the first check that finds it.
pub(crate) const TICK: Duration = Duration::from_millis(4);
/// The number of idle checks after which the watchdog sleeps until a run starts.
const QUIET_TICKS: u32 = 250;
/// The watchdog's interval while it sleeps. It is needed because a run that starts just as the watchdog falls asleep
/// does not wake it.
const SLEEP_INTERVAL: Duration = Duration::from_millis(100);

/// The signal that ends a run. It is ignored by default, so a stray signal is harmless.
pub(crate) const SIGNAL: i32 = libc::SIGURG;

/// The state that the watchdog shares with a thread that runs scripts.
#[derive(Debug, Default)]
struct WatchedThread {
    thread: i32,
    /// The number of the run. It is odd while a script runs, and even between two runs.
    run: AtomicU64,
    /// The number of the run that has to end.
    doomed: AtomicU64,
    budget_ns: AtomicU64,
    state: AtomicPtr<lua_State>,
}

/// What a watched thread needs to report its runs to the watchdog.
#[derive(Clone, Debug)]
pub(crate) struct ThreadWatch {
    watched: Arc<WatchedThread>,
    dog: &'static WatchdogState,
}

#[derive(Debug)]
struct WatchdogState {
    all: Mutex<Vec<Arc<WatchedThread>>>,
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    /// The number of checks so far.
    ticks: AtomicU64,
}

static DOG: WatchdogState = WatchdogState {
    all: Mutex::new(Vec::new()),
    asleep: AtomicBool::new(false),
    thread: OnceLock::new(),
    ticks: AtomicU64::new(0),
};

thread_local! {
    /// The state that the signal's handler reads. It has no destructor and no lazy initialization, so that reading it is safe
    /// in a signal handler.
    static CURRENT: Cell<*const WatchedThread> = const { Cell::new(ptr::null()) };
}

impl ThreadWatch {
    /// Returns the watch of the calling thread and starts watching it.
    ///
    /// # Errors
    /// The system can't provide a thread or a signal.
    pub(crate) fn this_thread() -> std::io::Result<Self> {
        thread_local! {
            static OWN: Cell<Option<Arc<WatchedThread>>> = const { Cell::new(None) };
        }
        DOG.wake_up()?;
        let known = OWN.take();
        let watched = known.unwrap_or_else(|| {
            let watched = Arc::new(WatchedThread {
                thread: rustix::thread::gettid().as_raw_nonzero().get(),
                ..WatchedThread::default()
            });
            // Entries are never removed, so the signal handler's pointer stays valid. The list stays short, since few
            // threads run scripts.
            DOG.all.lock().push(Arc::clone(&watched));
            CURRENT.set(Arc::as_ptr(&watched));
            raw::learn_stack();
            watched
        });
        OWN.set(Some(Arc::clone(&watched)));
        Ok(Self { watched, dog: &DOG })
    }

    /// Starts watching a run.
    pub(crate) fn enter(&self, state: *mut lua_State, budget_ns: u64) {
        raw::note_stack();
        let watched = &*self.watched;
        watched.state.store(state, Relaxed);
        watched.budget_ns.store(budget_ns, Relaxed);
        watched.run.store(watched.run.load(Relaxed) + 1, Release);
        if self.dog.asleep.load(Relaxed)
            && let Some(thread) = self.dog.thread.get()
        {
            thread.unpark();
        }
    }

    /// Returns a clock that is cheap to read: it advances every [`TICK`] while scripts run.
    pub(crate) fn ticks(&self) -> u64 {
        self.dog.ticks.load(Relaxed)
    }

    /// Ends the watch of the run.
    pub(crate) fn leave(&self) {
        let watched = &*self.watched;
        watched.run.store(watched.run.load(Relaxed) + 1, Release);
    }
}

impl WatchdogState {
    fn wake_up(&'static self) -> std::io::Result<()> {
        let mut all = self.all.lock();
        if self.thread.get().is_none() {
            raw::on_signal(SIGNAL, on_signal)?;
            let handle = thread::Builder::new()
                .name("watchdog".into())
                .spawn(|| self.watch())?;
            let _ = self.thread.set(handle.thread().clone());
        }
        all.reserve(1);
        Ok(())
    }

    /// Runs the watchdog until the process ends.
    fn watch(&self) {
        let mut seen: Vec<ObservedThread> = Vec::new();
        let mut quiet = 0;
        loop {
            self.ticks.fetch_add(1, Relaxed);
            let all = self.all.lock().clone();
            seen.resize_with(all.len(), ObservedThread::default);
            let busy = all
                .iter()
                .zip(&mut seen)
                .fold(false, |busy, (watched, seen)| {
                    self.look(watched, seen) | busy
                });
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet < QUIET_TICKS {
                thread::sleep(TICK);
            } else {
                self.asleep.store(true, Relaxed);
                thread::park_timeout(SLEEP_INTERVAL);
                self.asleep.store(false, Relaxed);
            }
        }
    }

    /// Checks one thread; returns whether a script has run since the last check.
    fn look(&self, watched: &WatchedThread, seen: &mut ObservedThread) -> bool {
        let run = watched.run.load(Acquire);
        let changed = run != seen.run;
        if run.is_multiple_of(2) {
            seen.run = run;
            return changed;
        }
        if changed {
            *seen = ObservedThread {
                run,
                cpu_ns: raw::cpu_ns(watched.thread),
            };
            return true;
        }
        let used = raw::cpu_ns(watched.thread).saturating_sub(seen.cpu_ns);
        if used >= watched.budget_ns.load(Relaxed) {
            watched.doomed.store(run, Relaxed);
            raw::signal(watched.thread, SIGNAL);
        }
        true
    }
}

/// The last observed state of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedThread {
    run: u64,
    cpu_ns: u64,
}

/// The signal's handler. Must not allocate, lock or panic.
fn on_signal() {
    let current = CURRENT.try_with(Cell::get).unwrap_or(ptr::null());
    let Some((run, doomed, state)) = raw::peek(current, |watched: &WatchedThread| {
        (
            watched.run.load(Relaxed),
            watched.doomed.load(Relaxed),
            watched.state.load(Relaxed),
        )
    }) else {
        return;
    };
    if !run.is_multiple_of(2) && run == doomed {
        raw::kill_run(state, raw::KillReason::Budget);
    }
}
