//! The watchdog: who has run for too long without waiting is stopped, it alone.
//!
//! A worker only notes when a script begins and ends to run. One thread of the process looks every few milliseconds;
//! where the same run has used up its CPU time, it sends that worker's thread a signal, and the signal's handler, which
//! runs on that very thread, sets Lua's debug hook (what Lua's own interpreter does at Ctrl-C). The hook raises an
//! error unless the run ends very soon: it may have been the collector that took its time. `raw` takes the hook off
//! again. A signal that comes too late finds another run, or none, and does nothing.

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

/// How often the watchdog looks while scripts run: a run ends at most so much after its budget.
pub(crate) const TICK: Duration = Duration::from_millis(4);
/// Looks without a script at work after which the watchdog sleeps until one begins.
const QUIET_TICKS: u32 = 250;
/// While it sleeps it looks so often all the same: who begins just when it falls asleep does not wake it.
const NAP: Duration = Duration::from_millis(100);

/// The signal; ignored by default, so one that goes astray harms nobody.
pub(crate) const SIGNAL: i32 = libc::SIGURG;

/// What one thread that runs scripts tells the watchdog.
#[derive(Debug, Default)]
struct WatchedThread {
    /// The thread's number.
    thread: i32,
    /// Odd while a script runs.
    run: AtomicU64,
    /// The run that is to end.
    doomed: AtomicU64,
    budget_ns: AtomicU64,
    state: AtomicPtr<lua_State>,
}

/// A thread's side of the watch.
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
    /// Looks so far.
    ticks: AtomicU64,
}

static DOG: WatchdogState = WatchdogState {
    all: Mutex::new(Vec::new()),
    asleep: AtomicBool::new(false),
    thread: OnceLock::new(),
    ticks: AtomicU64::new(0),
};

thread_local! {
    /// For the signal's handler: no destructor, no lazy initialization.
    static CURRENT: Cell<*const WatchedThread> = const { Cell::new(ptr::null()) };
}

impl ThreadWatch {
    /// The watch of the calling thread; begins to watch it.
    ///
    /// # Errors
    /// The system gives no thread or no signal.
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
            // The list keeps it for good, so the handler's pointer stays valid; threads that run scripts are few.
            DOG.all.lock().push(Arc::clone(&watched));
            CURRENT.set(Arc::as_ptr(&watched));
            raw::learn_stack();
            watched
        });
        OWN.set(Some(Arc::clone(&watched)));
        Ok(Self { watched, dog: &DOG })
    }

    /// A script begins to run.
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

    /// A clock that costs nothing to read: it goes on every [`TICK`] while scripts run.
    pub(crate) fn ticks(&self) -> u64 {
        self.dog.ticks.load(Relaxed)
    }

    /// It has ended, or waits.
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

    /// Looks until the process ends.
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
                thread::park_timeout(NAP);
                self.asleep.store(false, Relaxed);
            }
        }
    }

    /// Looks at one thread; whether a script ran since the last look.
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

/// A thread as the watchdog saw it last.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedThread {
    run: u64,
    cpu_ns: u64,
}

/// The signal's handler. Nothing here allocates, locks or may panic.
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
