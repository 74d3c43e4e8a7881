//! The thread of a pool: it starts processes, gives them events, and ends those that fail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::{debug, error, info, warn};
use veche_runtime::wire::{
    AppDescription, EventHead, EventName, Frame, FrameKind, FromWorker, HandlerEnd, Limits, encode,
};

use crate::process::{Process, State};
use crate::program::Options;
use crate::queue::Queue;
use crate::shared::{Job, Mail, Order, Outlet, ProcessKey, Shared, Unanswered, bit};

/// The target of log lines of applications.
const LOG: &str = "veche::app";

/// The wait after a process that failed to start, which doubles up to the maximum.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

/// Memory and age of processes are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A process whose socket is closed has so long to end by itself.
const GRACE: Duration = Duration::from_millis(300);

/// The longest wait of the thread.
const NAP: Duration = Duration::from_secs(1);

/// See the module's text.
struct Manager {
    options: Options,
    shared: Arc<Shared>,
    processes: Vec<Process>,
    queue: Queue,
    orders: Vec<Order>,
    buffer: Vec<u8>,
    last_key: u64,
    /// Starts that failed, one after the other.
    failures: u32,
    /// No process is started before.
    again_at: Option<Instant>,
    looked: Instant,
    has_users: bool,
}

/// Starts a pool on a separate thread.
pub(crate) fn start(options: &Options) -> Result<Arc<Shared>, String> {
    let shared = Shared::new().map_err(|error| format!("no pool of processes: {error}"))?;
    let shared = Arc::new(shared);
    let manager = Manager {
        options: options.clone(),
        shared: Arc::clone(&shared),
        processes: Vec::new(),
        queue: Queue::default(),
        orders: Vec::new(),
        buffer: Vec::new(),
        last_key: 0,
        failures: 0,
        again_at: None,
        looked: veche_clock::now(),
        has_users: false,
    };
    let thread = std::thread::Builder::new().name("pool".to_owned());
    let result = thread.spawn(move || manager.run());
    result.map_err(|error| format!("no thread for a pool: {error}"))?;
    Ok(shared)
}

impl Manager {
    fn run(mut self) {
        loop {
            let now = veche_clock::now();
            self.take_orders(now);
            self.tend(now);
            self.fill(now);
            self.dispatch(now);
            for index in 0..self.processes.len() {
                if !self.processes[index].flush() {
                    self.ended(index, String::new(), now);
                }
            }
            if self.is_over() {
                break;
            }
            self.wait(now);
            self.read();
        }
    }

    fn take_orders(&mut self, now: Instant) {
        self.has_users |= self.shared.first_user().is_some();
        let mut orders = std::mem::take(&mut self.orders);
        self.shared.take(&mut orders);
        for order in orders.drain(..) {
            match order {
                Order::Job(job) => self.take_job(job, now),
                Order::Cancel(number, outlet) => self.cancel(number, &outlet),
                Order::Frame(key, frame) => {
                    if let Some(process) = self.processes.iter_mut().find(|one| one.key == key) {
                        process.write_frame(&frame);
                    }
                }
            }
        }
        self.orders = orders;
    }

    fn take_job(&mut self, job: Job, now: Instant) {
        if !self.shared.handles(job.name) {
            return reply(&job, Unanswered::Unhandled, None);
        }
        if let Some(job) = self.queue.push(job, self.options.queue, now) {
            let why = "more events than \"queue\" wait for a process";
            reply(&job, Unanswered::Busy, Some(why.to_owned()));
        }
    }

    fn cancel(&mut self, number: u64, outlet: &Arc<Outlet>) {
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
                if encode(&mut frame, Limits::default(), &head, &[]).is_ok() {
                    process.write_frame(&frame);
                }
                return;
            }
        }
    }

    /// Ends overdue events and processes, and replaces worn processes.
    fn tend(&mut self, now: Instant) {
        while let Some(job) = self.queue.pop_late(self.options.queue_timeout, now) {
            let timeout = self.options.queue_timeout;
            let why = format!("no process had time for it within {timeout:?}");
            reply(&job, Unanswered::Busy, Some(why));
        }
        let looks = now.saturating_duration_since(self.looked) >= LOOK_EVERY;
        if looks {
            self.looked = now;
        }
        let is_leaving = self.is_leaving();
        for index in (0..self.processes.len()).rev() {
            let process = &mut self.processes[index];
            match process.state {
                State::Starting { until } if now >= until => {
                    let timeout = self.options.start_timeout;
                    let why = format!("it has not begun within {timeout:?}");
                    process.kill();
                    self.ended(index, why, now);
                }
                State::Stopping { until } if now >= until => {
                    process.kill();
                    let timeout = self.options.stop_timeout;
                    self.ended(index, format!("it has not stopped within {timeout:?}"), now);
                }
                State::Over { until } => {
                    if now >= until {
                        process.kill();
                    }
                    self.bury(index);
                }
                State::Ready => {
                    let late = process.oldest().filter(|(since, _)| {
                        now.saturating_duration_since(*since) >= self.options.event_timeout
                    });
                    if let Some((_, name)) = late {
                        let (name, timeout) = (name.name(), self.options.event_timeout);
                        let why = format!("the event {name} took longer than {timeout:?}");
                        process.kill();
                        self.ended(index, why, now);
                        continue;
                    }
                    if looks && process.worn.is_none() {
                        process.worn = worn(process, &self.options, now);
                    }
                    if is_leaving && self.queue.is_empty() && process.in_hand.is_empty() {
                        self.stop(index, now);
                    }
                }
                _ => {}
            }
        }
    }

    /// Logs how a process has ended and forgets it, once it has.
    fn bury(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let Some(status) = process.reap() else { return };
        let (app, instance, pid) = (&self.options.name, process.instance, process.pid());
        show_output(process, &self.options.name, true);
        if process.worn == Some(ASKED) && status.success() {
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

    /// Starts processes where some are missing or worn.
    fn fill(&mut self, now: Instant) {
        if self.is_leaving() && self.queue.is_empty() {
            return;
        }
        if self.again_at.is_some_and(|at| now < at) {
            return;
        }
        let stays = |one: &&Process| matches!(one.state, State::Starting { .. } | State::Ready);
        let living = self.processes.iter().filter(stays);
        let count = living.filter(|one| one.replaces.is_none()).count();
        for _ in count..self.options.workers as usize {
            if !self.begin(None, now) {
                return;
            }
        }
        let at_once = (self.options.workers as usize / 4).max(1);
        let under_way = self.processes.iter().filter(|one| one.replaces.is_some());
        let room = at_once.saturating_sub(under_way.count());
        let is_replaced = |key| self.processes.iter().any(|one| one.replaces == Some(key));
        let worn = self.processes.iter();
        let worn = worn.filter(|one| one.state == State::Ready && one.worn.is_some());
        let worn: Vec<ProcessKey> = worn.map(|one| one.key).collect();
        let worn: Vec<ProcessKey> = worn.into_iter().filter(|key| !is_replaced(*key)).collect();
        for key in worn.into_iter().take(room) {
            if !self.begin(Some(key), now) {
                return;
            }
        }
    }

    /// Starts a process; `false` where that failed.
    fn begin(&mut self, replaces: Option<ProcessKey>, now: Instant) -> bool {
        self.last_key += 1;
        let key = ProcessKey(self.last_key);
        let taken = |number: &u32| !self.processes.iter().any(|one| one.instance == *number);
        let instance = (1..).find(taken).unwrap_or_default();
        match Process::start(&self.options, key, instance, now) {
            Ok(mut process) => {
                process.replaces = replaces;
                let (app, pid) = (&self.options.name, process.pid());
                debug!(target: LOG, app, instance, pid, "a process starts");
                self.processes.push(process);
                true
            }
            Err(why) => {
                let app = &self.options.name;
                error!(target: LOG, app, "no process can be started: {why}");
                self.back_off(now);
                false
            }
        }
    }

    fn back_off(&mut self, now: Instant) {
        let wait = AGAIN_AFTER * 2_u32.saturating_pow(self.failures.min(10));
        self.failures += 1;
        self.again_at = Some(now + wait.min(AGAIN_AFTER_MAX));
    }

    /// Gives events to the processes with the fewest in their hands.
    fn dispatch(&mut self, now: Instant) {
        while !self.queue.is_empty() {
            let free = self.processes.iter_mut().filter(|one| one.room() > 0);
            let Some(process) = free.min_by_key(|one| one.in_hand.len()) else {
                return;
            };
            let Some(mut job) = self.queue.pop() else {
                return;
            };
            if process.events & bit(job.name) == 0 {
                reply(&job, Unanswered::Unhandled, None);
                continue;
            }
            let frame = std::mem::take(&mut job.frame);
            process.hand(job.name, &frame, Some(job), now);
        }
    }

    /// Requests a process to stop.
    fn stop(&mut self, index: usize, now: Instant) {
        let timeout = self.options.stop_timeout;
        let process = &mut self.processes[index];
        process.worn = Some(ASKED);
        process.state = State::Stopping {
            until: now + timeout,
        };
        hand_own(process, EventName::Stop, now);
    }

    /// The socket of a process is at its end, or is to be: its pending events fail.
    fn ended(&mut self, index: usize, why: String, now: Instant) {
        let process = &mut self.processes[index];
        let was_starting = matches!(process.state, State::Starting { .. });
        let was_asked = process.worn == Some(ASKED);
        if matches!(process.state, State::Over { .. }) {
            return;
        }
        process.close(now + GRACE);
        // Its last output may have the reason.
        show_output(process, &self.options.name, false);
        let (app, instance, pid) = (&self.options.name, process.instance, process.pid());
        if !why.is_empty() {
            warn!(target: LOG, app, instance, pid, "a process is ended: {why}");
        }
        let in_hand = std::mem::take(&mut process.in_hand);
        let jobs = in_hand.into_values().filter_map(|one| one.job);
        let why = if why.is_empty() { "it ended" } else { &why };
        for job in jobs {
            let name = job.name.name();
            let text = format!("{name}: process {instance} ({pid}) has not answered: {why}");
            reply(&job, Unanswered::Failed, Some(text));
        }
        if was_starting || (!was_asked && self.processes[index].jobs <= 1) {
            self.back_off(now);
        }
    }

    fn wait(&self, now: Instant) {
        let mut fds = vec![PollFd::new(self.shared.waker(), PollFlags::IN)];
        for process in &self.processes {
            if let Some(socket) = process.socket() {
                let mut wanted = PollFlags::IN;
                if process.has_output() {
                    wanted |= PollFlags::OUT;
                }
                fds.push(PollFd::new(socket, wanted));
            }
            fds.extend(
                process
                    .stdout
                    .pipe()
                    .map(|fd| PollFd::new(fd, PollFlags::IN)),
            );
            fds.extend(
                process
                    .stderr
                    .pipe()
                    .map(|fd| PollFd::new(fd, PollFlags::IN)),
            );
        }
        let due = self.due(now).saturating_duration_since(now).min(NAP);
        // A moment later, so that it is due then.
        let due = due + Duration::from_micros(100);
        let timeout = Timespec::try_from(due).ok();
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Returns when something is to be done next.
    fn due(&self, now: Instant) -> Instant {
        let mut due = now + NAP;
        due = due.min(self.queue.due(self.options.queue_timeout).unwrap_or(due));
        due = due.min(self.again_at.filter(|at| *at > now).unwrap_or(due));
        for process in &self.processes {
            due = due.min(match process.state {
                State::Starting { until } | State::Stopping { until } => until,
                State::Over { .. } => now + Duration::from_millis(5),
                State::Ready => match process.oldest() {
                    Some((since, _)) => since + self.options.event_timeout,
                    None => continue,
                },
            });
        }
        due
    }

    fn read(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(self.shared.waker(), &mut count);
        let now = veche_clock::now();
        let mut buffer = std::mem::take(&mut self.buffer);
        for index in 0..self.processes.len() {
            show_output(&mut self.processes[index], &self.options.name, false);
            let mut news = News::default();
            let (options, shared) = (&self.options, &self.shared);
            let result = self.processes[index].read(&mut buffer, |process, head, payload| {
                frame(process, head, payload, options, shared, &mut news, now)
            });
            if news.is_ready {
                self.failures = 0;
                self.again_at = None;
                if let Some(old) = self.processes[index].replaces.take() {
                    self.retire(old, now);
                }
            }
            if let Err(why) = result {
                if !why.is_empty() {
                    self.processes[index].kill();
                }
                self.ended(index, why, now);
            } else if self.processes[index].worn.is_none() {
                self.processes[index].worn = spent(&self.processes[index], &self.options);
            }
        }
        self.buffer = buffer;
    }

    /// Has a process end whose successor is ready.
    fn retire(&mut self, key: ProcessKey, now: Instant) {
        let index = self.processes.iter().position(|one| one.key == key);
        let Some(index) = index else { return };
        if self.processes[index].state == State::Ready {
            let process = &self.processes[index];
            let (app, instance, pid) = (&self.options.name, process.instance, process.pid());
            let why = process.worn.unwrap_or_default();
            info!(target: LOG, app, instance, pid, "a process is replaced: {why}");
            self.stop(index, now);
        }
    }
}

/// The part of a head that names the server thread of a frame.
#[derive(Debug, Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: FrameKind,
    id: Option<u64>,
    event: Option<Value>,
}

/// The results of the frames of one read.
#[derive(Debug, Default)]
struct News {
    is_ready: bool,
}

/// The reason of a process that was requested to stop.
const ASKED: &str = "asked to end";

/// Returns why a process has to be replaced by the number of its events.
fn spent(process: &Process, options: &Options) -> Option<&'static str> {
    let is_spent = options.jobs_max > 0 && process.jobs > options.jobs_max;
    is_spent.then_some("max_jobs")
}

/// Returns why a process has to be replaced by its age or memory.
fn worn(process: &Process, options: &Options, now: Instant) -> Option<&'static str> {
    let age = now.saturating_duration_since(process.started);
    if options.ttl.is_some_and(|ttl| age >= ttl) {
        return Some("ttl");
    }
    let max = options.rss_bytes_max?;
    let bytes = process.rss_bytes()?;
    (bytes > max).then_some("rss_max")
}

fn show_output(process: &mut Process, app: &str, is_over: bool) {
    let (instance, pid) = (process.instance, process.pid());
    let out = |line: &str| info!(target: LOG, app, instance, pid, "{line}");
    let err = |line: &str| warn!(target: LOG, app, instance, pid, "{line}");
    process.stdout.read(out);
    process.stderr.read(err);
    if is_over {
        process.stdout.flush(out);
        process.stderr.flush(err);
    }
}

fn reply(job: &Job, why: Unanswered, text: Option<String>) {
    job.outlet.put(Mail::Unanswered(job.number, why, text));
}

/// Hands over one of the events of the process itself.
fn hand_own(process: &mut Process, name: EventName, now: Instant) {
    let mut frame = Vec::new();
    if encode(&mut frame, Limits::default(), &EventHead::new(0, name), &[]).is_ok() {
        process.hand(name, &frame, None, now);
    }
}

/// Takes a frame of a process.
fn frame(
    process: &mut Process,
    head: &[u8],
    payload: &[u8],
    options: &Options,
    shared: &Arc<Shared>,
    news: &mut News,
    now: Instant,
) -> Result<(), String> {
    let read = Frame { head, payload };
    let envelope: Envelope = serde_json::from_slice(head).map_err(|error| error.to_string())?;
    let is_begun = process.events != 0 || process.state == State::Ready;
    match (envelope.kind, is_begun) {
        (FrameKind::Hello, false) => hello(process, read, options, news, shared, now),
        (FrameKind::Answer, true) => {
            let id = envelope.id.unwrap_or_default();
            let Some(in_hand) = process.answered(id, now) else {
                return Err(format!("it answered event {id}, which is not in its hands"));
            };
            match (in_hand.name, in_hand.job) {
                (_, Some(job)) => put(process.key, &job.outlet, Some((job.number, id)), read),
                (EventName::Start, None) => {
                    own_failure(read, id, EventName::Start)?;
                    ready(process, news, shared);
                }
                (_, None) => return Err(String::new()),
            }
            Ok(())
        }
        (FrameKind::Effects | FrameKind::Call, true) => {
            let is_call = envelope.kind == FrameKind::Call;
            let id = match is_call {
                true => envelope.event.as_ref().and_then(Value::as_u64),
                false => envelope.id,
            };
            let in_hand = id.and_then(|id| Some((id, process.in_hand.get(&id)?)));
            match in_hand {
                Some((id, in_hand)) => {
                    if let Some(job) = &in_hand.job {
                        put(process.key, &job.outlet, Some((job.number, id)), read);
                    }
                }
                None if id.is_some() && !is_call => {
                    return Err("it names an event that is not in its hands".to_owned());
                }
                None => {
                    if let Some(outlet) = shared.first_user() {
                        put(process.key, &outlet, None, read);
                    }
                }
            }
            Ok(())
        }
        // The result of the call goes to a process that passes it over.
        (FrameKind::Cancel, true) => Ok(()),
        _ => Err("a frame that has no place there".to_owned()),
    }
}

/// Leaves a frame with a server thread.
fn put(process: ProcessKey, outlet: &Outlet, event: Option<(u64, u64)>, frame: Frame<'_>) {
    outlet.put(Mail::Frame {
        process,
        event,
        bytes: [frame.head, frame.payload].concat(),
        head_bytes: frame.head.len(),
    });
}

/// Returns an error where the handler of the process's own event has failed.
fn own_failure(frame: Frame<'_>, id: u64, name: EventName) -> Result<(), String> {
    let read = FromWorker::read(frame, |one| (one == id).then_some(name));
    match read.map_err(|error| error.message)? {
        FromWorker::Handled(handled) => match handled.end {
            Some(HandlerEnd::Failed(text)) => Err(format!("start: {text}")),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn hello(
    process: &mut Process,
    frame: Frame<'_>,
    options: &Options,
    news: &mut News,
    shared: &Arc<Shared>,
    now: Instant,
) -> Result<(), String> {
    let read = FromWorker::read(frame, |_| None).map_err(|error| error.message)?;
    let FromWorker::Hello(hello) = read else {
        return Err("its first frame is no hello".to_owned());
    };
    let own = RawValue::from_string(options.options.clone()).ok();
    let offer = AppDescription {
        app: &options.name,
        instance: process.instance,
        limits: Limits::default(),
        options: own.as_deref(),
    };
    let mut bytes = Vec::new();
    let (is_written, refused) = match offer.answer(&hello) {
        Ok(welcome) => (encode(&mut bytes, Limits::default(), &welcome, &[]), None),
        Err(refuse) => {
            let why = refuse.message.to_string();
            (
                encode(&mut bytes, Limits::default(), &refuse, &[]),
                Some(why),
            )
        }
    };
    is_written.map_err(|error| error.to_string())?;
    process.write_frame(&bytes);
    if let Some(why) = refused {
        process.flush();
        return Err(format!("it is refused: {why}"));
    }
    let names = EventName::ALL.iter();
    let handled = names.filter(|name| hello.events.iter().any(|one| one == name.name()));
    process.events = handled.map(|name| bit(*name)).sum();
    process.concurrency = hello.concurrency as usize;
    let (app, pid, sdk) = (&options.name, process.pid(), &hello.sdk);
    debug!(target: LOG, app, pid, %sdk, concurrency = process.concurrency, "a process says hello");
    if process.events & bit(EventName::Start) != 0 {
        hand_own(process, EventName::Start, now);
    } else {
        ready(process, news, shared);
    }
    Ok(())
}

fn ready(process: &mut Process, news: &mut News, shared: &Arc<Shared>) {
    process.state = State::Ready;
    news.is_ready = true;
    shared.set_ready(process.events);
}
