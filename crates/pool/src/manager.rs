//! The thread of a pool: it starts processes, assigns events to them, and ends processes that fail.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;
use tracing::{debug, error, info, warn};
use veche_runtime::LogProcess;
use veche_runtime::wire::{EventName, Frame, FrameLimits, encode};
use veche_spawner::{PoolLink, Spawned, Spawner};

use crate::figures::{GaugeShare, PoolFigures, PoolGauges, RestartReason};
use crate::frames::{Pool, ReadOutcome, hand_own, handle_frame};
use crate::options::Options;
use crate::process::{PoolProcess, PoolProcessState};
use crate::queue::WaitingEvents;
use crate::shared::{
    EventJob, PoolMessage, PoolOrder, ProcessKey, Shared, ThreadOutlet, Unanswered, bit,
};
use crate::watch::{ReadySources, Watch, WatchSource};
use crate::wear::{event_limit, spent, worn};

/// The target of log lines of applications.
pub(crate) const LOG: &str = "veche::app";

/// The delay after a failed start of a process, doubled with each failure up to the maximum.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

/// The interval of checking the processes' memory and age.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The time in which a process has to exit once its socket is closed.
const GRACE: Duration = Duration::from_millis(300);

/// Once the error output of a starting process has this length in bytes, no further lines are shown to developers.
const START_ERRORS_BYTES: usize = 4096;

/// The longest time that the pool thread waits without doing its periodic work.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The state of a pool, behind a lock. The pool thread releases the lock while it waits for its sources. A server
/// thread takes the lock to assign its events if the lock is free, but never waits for it. Only the pool thread starts
/// and ends processes, because starting and ending may wait for the spawner; it alone reads from processes.
struct Manager {
    options: Options,
    spawner: Arc<Spawner>,
    /// The socket to the spawner, from the first start of a process until the spawner ends.
    link: Option<PoolLink>,
    watch: Watch,
    /// The time at which the pool thread's current wait ends if no source becomes ready.
    waits_until: Instant,
    figures: Arc<PoolFigures>,
    gauges: GaugeShare,
    shared: Arc<Shared>,
    processes: Vec<PoolProcess>,
    queue: WaitingEvents,
    orders: Vec<PoolOrder>,
    buffer: Vec<u8>,
    last_key: u64,
    /// The number of consecutive failed starts.
    failures: u32,
    /// After a failed start, the time at which the next process may be started.
    again_at: Option<Instant>,
    checked_at: Instant,
    has_users: bool,
}

/// Starts a pool on a separate thread.
pub(crate) fn start(
    options: &Options,
    spawner: Arc<Spawner>,
    figures: Arc<PoolFigures>,
) -> Result<Arc<Shared>, String> {
    let shared =
        Shared::new().map_err(|error| format!("can't create the process pool: {error}"))?;
    let shared = Arc::new(shared);
    let watch = Watch::new().and_then(|watch| {
        watch.add(shared.waker(), WatchSource::Waker)?;
        Ok(watch)
    });
    let watch = watch.map_err(|error| format!("can't create the process pool: {error}"))?;
    let manager = Manager {
        options: options.clone(),
        spawner,
        link: None,
        watch,
        waits_until: veche_clock::now(),
        gauges: GaugeShare::new(Arc::clone(&figures)),
        figures,
        shared: Arc::clone(&shared),
        processes: Vec::new(),
        queue: WaitingEvents::default(),
        orders: Vec::new(),
        buffer: Vec::new(),
        last_key: 0,
        failures: 0,
        again_at: None,
        checked_at: veche_clock::now(),
        has_users: false,
    };
    let manager = Arc::new(Mutex::new(manager));
    let entrance = Arc::downgrade(&manager);
    shared.set_entrance(Box::new(move || {
        let Some(manager) = entrance.upgrade() else {
            return false;
        };
        let Some(mut manager) = manager.try_lock() else {
            return false;
        };
        manager.hand_over();
        true
    }));
    let thread = std::thread::Builder::new().name("pool".to_owned());
    let result = thread.spawn(move || run(&manager));
    result.map_err(|error| format!("can't start a thread for the pool: {error}"))?;
    Ok(shared)
}

/// Runs the pool thread until the pool has ended. The thread does not hold the lock while it waits.
fn run(manager: &Mutex<Manager>) {
    let mut ready = ReadySources::new();
    let watch = manager.lock().watch.clone();
    loop {
        let timeout = {
            let mut manager = manager.lock();
            let now = veche_clock::now();
            manager.read(ready.sources(), now);
            match manager.work(now) {
                Some(timeout) => timeout,
                None => return,
            }
        };
        watch.wait(timeout, &mut ready);
    }
}

impl Manager {
    /// Does the work that is due. Returns the time that the thread may wait; `None` once the pool
    /// has ended.
    fn work(&mut self, now: Instant) -> Option<Duration> {
        self.take_orders(now);
        self.tend(now);
        self.fill(now);
        self.dispatch(now);
        for index in 0..self.processes.len() {
            // A failed write is ignored: the process has closed its socket, and its end is handled once its last
            // answers are read.
            self.processes[index].flush();
            self.processes[index].watch_writes(&self.watch);
        }
        self.shared.announce_mail();
        self.set_gauges();
        if self.is_over() {
            return None;
        }
        self.waits_until = self.due(now);
        // The added time ensures that the deadline has passed when the wait ends.
        Some(self.waits_until.saturating_duration_since(now) + Duration::from_micros(100))
    }

    /// Assigns and writes events on a server thread, which saves a switch to the pool thread. Never waits. The pool
    /// thread is woken if a socket is full or broken, or if its current wait would end after the next deadline.
    fn hand_over(&mut self) {
        let now = veche_clock::now();
        self.take_orders(now);
        self.dispatch(now);
        let mut is_done = true;
        // The pool thread already waits for the sockets that were full.
        let open = self.processes.iter_mut();
        for process in open.filter(|one| !one.is_write_watched()) {
            is_done &= process.flush() && !process.has_output();
        }
        self.shared.announce_mail();
        self.set_gauges();
        if !is_done || self.due(now) < self.waits_until {
            self.shared.wake();
        }
    }

    fn set_gauges(&mut self) {
        let mut gauges = PoolGauges {
            queued: self.queue.len() as u64,
            ..PoolGauges::default()
        };
        for process in &self.processes {
            gauges.memory_bytes += process.rss_bytes;
            *match process.state {
                PoolProcessState::Starting { .. } => &mut gauges.starting,
                PoolProcessState::Ready if process.in_hand.is_empty() => &mut gauges.idle,
                PoolProcessState::Ready => &mut gauges.busy,
                PoolProcessState::Stopping { .. } | PoolProcessState::Over { .. } => {
                    &mut gauges.stopping
                }
            } += 1;
        }
        self.gauges.set(gauges);
    }

    fn take_orders(&mut self, now: Instant) {
        self.has_users |= self.shared.first_user().is_some();
        let mut orders = std::mem::take(&mut self.orders);
        self.shared.orders.take(&mut orders);
        for order in orders.drain(..) {
            match order {
                PoolOrder::Job(job) => self.take_job(job, now),
                PoolOrder::Cancel(number, outlet) => self.cancel(number, &outlet),
                PoolOrder::Frame(key, frame) => {
                    if let Some(process) = self.processes.iter_mut().find(|one| one.key == key) {
                        process.write_frame(frame);
                    }
                }
            }
        }
        self.orders = orders;
    }

    fn take_job(&mut self, job: EventJob, now: Instant) {
        if !self.shared.handles(job.name) {
            return reply(&job, Unanswered::Unhandled, None);
        }
        if let Some(job) = self.queue.push(job, self.options.queue, now) {
            let why = "the queue of events that wait for a process is full; the option queue of the app limits it";
            self.figures.add_refused();
            reply(&job, Unanswered::Busy, Some(why.to_owned()));
        }
    }

    fn cancel(&mut self, number: u64, outlet: &Arc<ThreadOutlet>) {
        if self.queue.cancel(number, outlet) {
            return;
        }
        for process in &mut self.processes {
            let found = process.in_hand.iter().find(|(_, one)| {
                let job = one.job.as_ref();
                job.is_some_and(|job| job.number == number && Arc::ptr_eq(&job.outlet, outlet))
            });
            if let Some((&id, _)) = found {
                let head = serde_json::json!({"type": "cancel", "id": id});
                let mut frame = Vec::new();
                if encode(&mut frame, FrameLimits::default(), &head, &[]).is_ok() {
                    process.write_frame(frame);
                }
                return;
            }
        }
    }

    /// Ends overdue events and processes, and replaces processes that are too old, too large or idle for too long.
    fn tend(&mut self, now: Instant) {
        while let Some(job) = self.queue.pop_late(self.options.queue_timeout, now) {
            let timeout = self.options.queue_timeout;
            let why = format!("no process was free for the event within {timeout:?}");
            self.figures.add_refused();
            reply(&job, Unanswered::Busy, Some(why));
        }
        let is_check_due = now.saturating_duration_since(self.checked_at) >= CHECK_INTERVAL;
        if is_check_due {
            self.checked_at = now;
        }
        let is_leaving = self.is_leaving();
        for index in (0..self.processes.len()).rev() {
            let process = &mut self.processes[index];
            let timeout = self.options.event_timeout;
            let limit = event_limit(process, timeout).filter(|(until, _)| now >= *until);
            if let Some((_, name)) = limit {
                let why = format!("the event {} took longer than {timeout:?}", name.name());
                process.kill(&mut self.link);
                self.ended(index, RestartReason::EventTimeout, why, now);
                continue;
            }
            match process.state {
                PoolProcessState::Starting { until } if now >= until => {
                    let timeout = self.options.start_timeout;
                    let why = format!("the process was not ready within {timeout:?}");
                    process.kill(&mut self.link);
                    self.ended(index, RestartReason::Start, why, now);
                }
                // No event waits for the start of this process any more, and the application is ending.
                PoolProcessState::Starting { .. } if is_leaving && self.queue.is_empty() => {
                    process.is_asked = true;
                    self.ended(index, RestartReason::Start, String::new(), now);
                }
                PoolProcessState::Stopping { until } if now >= until => {
                    process.kill(&mut self.link);
                    let timeout = self.options.stop_timeout;
                    let why = format!("the process has not stopped within {timeout:?}");
                    self.ended(index, RestartReason::Failed, why, now);
                }
                PoolProcessState::Over { until } => {
                    if now >= until {
                        process.kill(&mut self.link);
                        let until = now + GRACE;
                        process.state = PoolProcessState::Over { until };
                    }
                    self.bury(index);
                }
                PoolProcessState::Ready => {
                    if is_check_due {
                        process.rss_bytes = process.read_rss_bytes().unwrap_or_default();
                        process.worn = process.worn.or(worn(process, &self.options, now));
                    }
                    if is_leaving && self.queue.is_empty() && process.in_hand.is_empty() {
                        self.stop(index, now);
                    }
                }
                _ => {}
            }
        }
    }

    /// Logs how a process has ended, and removes the process.
    fn bury(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let Some(status) = process.status else {
            return;
        };
        let (app, instance, pid) = (&self.options.name, process.instance, process.pid());
        show_output(process, &self.options.name, true);
        if process.is_asked && status.success() {
            debug!(target: LOG, app, instance, pid, "a process has ended");
        } else {
            warn!(target: LOG, app, instance, pid, "a process has ended: {status}");
        }
        self.processes.remove(index);
    }

    fn is_leaving(&self) -> bool {
        self.has_users && self.shared.first_user().is_none()
    }

    fn is_over(&self) -> bool {
        self.is_leaving() && self.queue.is_empty() && self.processes.is_empty()
    }

    /// Starts processes if some are missing or have to be replaced.
    fn fill(&mut self, now: Instant) {
        if self.is_leaving() && self.queue.is_empty() {
            return;
        }
        if self.again_at.is_some_and(|at| now < at) {
            return;
        }
        let stays = |one: &&PoolProcess| {
            matches!(
                one.state,
                PoolProcessState::Starting { .. } | PoolProcessState::Ready
            )
        };
        let living = self.processes.iter().filter(stays);
        let count = living.filter(|one| one.replaces.is_none()).count();
        let workers = self.options.workers as usize;
        // Up to `workers` ending processes do not count, so that they are replaced at once; any further ones count.
        // This limits a pool whose processes end slowly to twice `workers`.
        let leaving = self.processes.iter().filter(|one| one.is_leaving());
        let leaving = leaving.count().saturating_sub(workers);
        for _ in count + leaving..workers {
            if !self.begin(None, now) {
                return;
            }
        }
        let at_once = (workers / 4).max(1);
        let under_way = self.processes.iter().filter(|one| one.replaces.is_some());
        let room = at_once.saturating_sub(under_way.count());
        let is_replaced = |key| self.processes.iter().any(|one| one.replaces == Some(key));
        let worn = self.processes.iter();
        let worn = worn.filter(|one| one.state == PoolProcessState::Ready && one.worn.is_some());
        let worn: Vec<ProcessKey> = worn.map(|one| one.key).collect();
        let worn: Vec<ProcessKey> = worn.into_iter().filter(|key| !is_replaced(*key)).collect();
        for key in worn.into_iter().take(room) {
            if !self.begin(Some(key), now) {
                return;
            }
        }
    }

    /// Starts a process; returns `false` on failure.
    fn begin(&mut self, replaces: Option<ProcessKey>, now: Instant) -> bool {
        self.last_key += 1;
        let key = ProcessKey(self.last_key);
        let taken = |number: &u32| !self.processes.iter().any(|one| one.instance == *number);
        let instance = (1..).find(taken).unwrap_or_default();
        match self.spawn(key, instance) {
            Ok(spawned) => {
                let mut process = PoolProcess::new(spawned, &self.options, key, instance, now);
                process.replaces = replaces;
                let (app, pid) = (&self.options.name, process.pid());
                debug!(target: LOG, app, instance, pid, "started a process");
                let watched = process.watch(&self.watch);
                self.processes.push(process);
                if let Err(error) = watched {
                    let index = self.processes.len() - 1;
                    let why = format!("can't wait for output of the process: {error}");
                    self.processes[index].kill(&mut self.link);
                    self.ended(index, RestartReason::Start, why, now);
                    return false;
                }
                true
            }
            Err(why) => {
                let app = &self.options.name;
                error!(target: LOG, app, "can't start a process: {why}");
                self.figures.add_restart(RestartReason::Start);
                self.back_off(now);
                false
            }
        }
    }

    fn spawn(&mut self, key: ProcessKey, instance: u32) -> io::Result<Spawned> {
        let link = match &mut self.link {
            Some(link) => link,
            none => {
                let link = self.spawner.connect()?;
                self.watch.add(&link, WatchSource::Spawner)?;
                none.insert(link)
            }
        };
        link.start(key.0, &self.options.name, instance)
    }

    /// Reads the spawner's reports of ended processes and records them. If the spawner itself has ended, all its
    /// processes have ended, too.
    fn note_ends(&mut self) {
        let Some(link) = &mut self.link else { return };
        let processes = &mut self.processes;
        let is_alive = link.take_ended(|key, status| {
            if let Some(process) = processes.iter_mut().find(|one| one.key.0 == key) {
                process.status = Some(status);
            }
        });
        if !is_alive {
            self.link = None;
            let killed = ExitStatus::from_raw(Signal::KILL.as_raw());
            let left = self.processes.iter_mut();
            left.for_each(|one| one.status = one.status.or(Some(killed)));
        }
    }

    fn back_off(&mut self, now: Instant) {
        let wait = AGAIN_AFTER * 2_u32.saturating_pow(self.failures.min(10));
        self.failures += 1;
        self.again_at = Some(now + wait.min(AGAIN_AFTER_MAX));
    }

    /// Assigns events to the processes with the fewest current events.
    fn dispatch(&mut self, now: Instant) {
        while !self.queue.is_empty() {
            let free = self.processes.iter_mut().filter(|one| one.room() > 0);
            let Some(process) = free.min_by_key(|one| one.in_hand.len()) else {
                return;
            };
            let Some((at, mut job)) = self.queue.pop() else {
                return;
            };
            self.figures.add_wait(now.saturating_duration_since(at));
            if process.events & bit(job.name) == 0 {
                reply(&job, Unanswered::Unhandled, None);
                continue;
            }
            let frame = std::mem::take(&mut job.frame);
            process.hand(job.name, frame, Some(job), now);
        }
    }

    /// Requests a process to stop.
    fn stop(&mut self, index: usize, now: Instant) {
        let timeout = self.options.stop_timeout;
        let process = &mut self.processes[index];
        process.is_asked = true;
        process.state = PoolProcessState::Stopping {
            until: now + timeout,
        };
        hand_own(process, EventName::Stop, now);
    }

    /// Handles a process's announcement that it will end: the process gets no further events, and another one is
    /// started in its place.
    fn leave(&mut self, index: usize, has_failed: bool, now: Instant) {
        let timeout = self.options.stop_timeout;
        let process = &mut self.processes[index];
        if process.state != PoolProcessState::Ready {
            return;
        }
        process.state = PoolProcessState::Stopping {
            until: now + timeout,
        };
        self.lose(index, RestartReason::Failed);
        if has_failed && self.processes[index].jobs <= 1 {
            self.back_off(now);
        }
    }

    /// Records the unexpected end of a process that was ready. If its successor is already starting, no other process
    /// is started in its place.
    fn lose(&mut self, index: usize, reason: RestartReason) {
        let key = self.processes[index].key;
        for successor in &mut self.processes {
            if successor.replaces == Some(key) {
                successor.replaces = None;
            }
        }
        self.figures.add_restart(reason);
    }

    /// Handles a process whose socket has ended or has to be closed: its current events fail.
    fn ended(&mut self, index: usize, reason: RestartReason, why: String, now: Instant) {
        let process = &mut self.processes[index];
        let until = match process.state {
            // The process was asked to stop and has closed its socket. It may use the rest of `stop_timeout` to exit.
            PoolProcessState::Stopping { until } if why.is_empty() && process.is_asked => {
                until.max(now + GRACE)
            }
            _ => now + GRACE,
        };
        let was_starting = matches!(process.state, PoolProcessState::Starting { .. });
        let is_expected = process.is_asked || process.is_leaving();
        if matches!(process.state, PoolProcessState::Over { .. }) {
            return;
        }
        // The last output of the process may contain the reason.
        show_output(process, &self.options.name, false);
        process.close(until);
        let (app, instance, pid) = (&self.options.name, process.instance, process.pid());
        if !why.is_empty() {
            warn!(target: LOG, app, instance, pid, "ending a process: {why}");
        }
        let in_hand = std::mem::take(&mut process.in_hand);
        let jobs = in_hand.into_values().filter_map(|one| one.job);
        let why = if why.is_empty() {
            "the process ended"
        } else {
            &why
        };
        for job in jobs {
            self.figures.add_failed();
            let name = job.name.name();
            let text = format!("{name}: no response from process {instance} ({pid}): {why}");
            let process = Some(LogProcess { instance, pid });
            put_unanswered(&job, Unanswered::Failed, Some(text), process);
        }
        match was_starting {
            true if !is_expected => self.figures.add_restart(RestartReason::Start),
            false if !is_expected => self.lose(index, reason),
            _ => {}
        }
        if was_starting {
            let process = &mut self.processes[index];
            let errors = std::mem::take(&mut process.start_errors);
            let text = format!("process {instance} ({pid}) failed to start: {why}\n{errors}");
            if let Some(user) = self.shared.first_user() {
                user.messages
                    .push(PoolMessage::NotStarted(text.trim_end().to_owned()));
            }
        }
        if was_starting || (!is_expected && self.processes[index].jobs <= 1) {
            self.back_off(now);
        }
    }

    /// Returns the time of the next work.
    fn due(&self, now: Instant) -> Instant {
        let mut due = now + WAIT_MAX;
        due = due.min(self.queue.due(self.options.queue_timeout).unwrap_or(due));
        due = due.min(self.again_at.filter(|at| *at > now).unwrap_or(due));
        for process in &self.processes {
            let until = match process.state {
                PoolProcessState::Starting { until }
                | PoolProcessState::Stopping { until }
                | PoolProcessState::Over { until } => Some(until),
                PoolProcessState::Ready => None,
            };
            let limit = event_limit(process, self.options.event_timeout);
            let times = [until, limit.map(|(until, _)| until)];
            due = times.into_iter().flatten().fold(due, Instant::min);
        }
        due
    }

    fn read(&mut self, ready: &[WatchSource], now: Instant) {
        let has_spawner_news = ready.contains(&WatchSource::Spawner);
        if has_spawner_news || self.link.as_ref().is_some_and(PoolLink::has_ends) {
            self.note_ends();
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        for source in ready {
            let key = match *source {
                WatchSource::Output(key) | WatchSource::Socket(key) => key,
                WatchSource::Waker => {
                    self.shared.clear_waker();
                    continue;
                }
                WatchSource::Spawner => continue,
            };
            let Some(index) = self.processes.iter().position(|one| one.key == key) else {
                continue;
            };
            if *source == WatchSource::Output(key) {
                show_output(&mut self.processes[index], &self.options.name, false);
                continue;
            }
            let mut outcome = ReadOutcome::default();
            let pool = Pool {
                options: &self.options,
                shared: &self.shared,
                figures: &self.figures,
            };
            let result = self.processes[index].read(&mut buffer, |process, head, payload| {
                handle_frame(process, Frame { head, payload }, pool, &mut outcome, now)
            });
            outcome.deliver();
            if outcome.is_ready {
                self.failures = 0;
                self.again_at = None;
                if let Some(old) = self.processes[index].replaces.take() {
                    self.retire(old, now);
                }
            }
            if let Some(has_failed) = outcome.leaves {
                self.leave(index, has_failed, now);
            }
            if let Err(why) = result {
                if !why.is_empty() {
                    self.processes[index].kill(&mut self.link);
                }
                self.ended(index, RestartReason::Failed, why, now);
            } else if self.processes[index].worn.is_none() {
                self.processes[index].worn = spent(&self.processes[index], &self.options);
            }
        }
        self.buffer = buffer;
    }

    /// Ends a process whose successor is ready.
    fn retire(&mut self, key: ProcessKey, now: Instant) {
        let index = self.processes.iter().position(|one| one.key == key);
        let Some(index) = index else { return };
        if self.processes[index].state == PoolProcessState::Ready {
            let process = &self.processes[index];
            let (app, instance, pid) = (&self.options.name, process.instance, process.pid());
            if let Some(reason) = process.worn {
                let why = reason.name();
                info!(target: LOG, app, instance, pid, "replacing a process: {why}");
                self.figures.add_restart(reason);
            }
            self.stop(index, now);
        }
    }
}

fn show_output(process: &mut PoolProcess, app: &str, is_over: bool) {
    let (instance, pid) = (process.instance, process.pid());
    let out = |line: &str| info!(target: LOG, app, instance, pid, "{line}");
    let err = |line: &str| warn!(target: LOG, app, instance, pid, "{line}");
    let is_starting = matches!(process.state, PoolProcessState::Starting { .. });
    let errors = &mut process.start_errors;
    let mut err = |line: &str| {
        err(line);
        if is_starting && errors.len() < START_ERRORS_BYTES {
            errors.push_str(line);
            errors.push('\n');
        }
    };
    process.stdout.read(out);
    process.stderr.read(&mut err);
    if is_over {
        process.stdout.flush(out);
        process.stderr.flush(&mut err);
    }
}

fn reply(job: &EventJob, why: Unanswered, text: Option<String>) {
    put_unanswered(job, why, text, None);
}

fn put_unanswered(
    job: &EventJob,
    why: Unanswered,
    text: Option<String>,
    process: Option<LogProcess>,
) {
    let number = job.number;
    job.outlet.messages.push(PoolMessage::Unanswered {
        number,
        why,
        text,
        process,
    });
}
