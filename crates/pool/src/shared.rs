//! The queues between the server threads and the thread of a pool.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use veche_runtime::wire::{EventName, Frame};
use veche_runtime::{LogProcess, WorkerWaker};

use crate::inbox::Inbox;

/// An event on its way to a process.
#[derive(Debug)]
pub(crate) struct EventJob {
    /// The queue to which the outcome of the event is sent.
    pub(crate) outlet: Arc<ThreadOutlet>,
    /// The number by which the server thread identifies the event.
    pub(crate) number: u64,
    pub(crate) name: EventName,
    /// The encoded event. Its id is 0 until a process takes the event.
    pub(crate) frame: Vec<u8>,
}

/// A request of a server thread to the pool.
#[derive(Debug)]
pub(crate) enum PoolOrder {
    /// Requests the handling of an event.
    Job(EventJob),
    /// The answer to an event is no longer needed.
    Cancel(u64, Arc<ThreadOutlet>),
    /// A complete frame for a process, ignored if the process has ended.
    Frame(ProcessKey, Vec<u8>),
}

/// Identifies a process of a pool. A number is never used for a second process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProcessKey(pub(crate) u64);

/// The reason why an event has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The process ended or was killed.
    Failed,
    /// The queue was full, or no process was free in time.
    Busy,
    /// The application has no handler for the event.
    Unhandled,
}

/// A message of a pool for a server thread.
#[derive(Debug)]
pub(crate) enum PoolMessage {
    /// Frames of a process, in the order in which they arrived.
    Frames(FrameBatch),
    /// An event has ended without an answer.
    Unanswered {
        /// The event's number.
        number: u64,
        why: Unanswered,
        /// A description of the cause, for the log.
        text: Option<String>,
        /// The process that was handling the event, if any.
        process: Option<LogProcess>,
    },
    /// The first process of the pool accepts events, and the set of handled events is known from now on.
    Ready,
    /// A process has ended before it was ready to accept events; the text is for the log.
    NotStarted(String),
}

/// The frames of one read that concern one server thread. They share one allocation, because the server thread frees
/// memory that the pool thread has allocated, which is expensive.
#[derive(Debug)]
pub(crate) struct FrameBatch {
    pub(crate) process: ProcessKey,
    bytes: Vec<u8>,
    frames: Vec<BatchedFrame>,
}

/// The position of a frame in the bytes of its batch.
#[derive(Clone, Copy, Debug)]
struct BatchedFrame {
    /// The event's number and id, if the frame belongs to an event.
    event: Option<(u64, u64)>,
    /// The index in the batch's bytes at which the frame's head ends and its payload begins.
    payload: usize,
    /// The index in the batch's bytes at which the frame's payload ends.
    end: usize,
}

impl FrameBatch {
    pub(crate) fn new(process: ProcessKey) -> Self {
        Self {
            process,
            bytes: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Appends a copy of a frame.
    pub(crate) fn push(&mut self, event: Option<(u64, u64)>, frame: Frame<'_>) {
        self.bytes.extend_from_slice(frame.head);
        let payload = self.bytes.len();
        self.bytes.extend_from_slice(frame.payload);
        let end = self.bytes.len();
        self.frames.push(BatchedFrame {
            event,
            payload,
            end,
        });
    }

    /// Returns the frames, each with its event's number and id, if any.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (Option<(u64, u64)>, Frame<'_>)> {
        let mut begin = 0;
        self.frames.iter().map(move |frame| {
            let head = &self.bytes[begin..frame.payload];
            let payload = &self.bytes[frame.payload..frame.end];
            begin = frame.end;
            (frame.event, Frame { head, payload })
        })
    }
}

/// The queue of messages for one server thread.
pub(crate) struct ThreadOutlet {
    pub(crate) messages: Inbox<PoolMessage>,
    wake: Mutex<Option<WorkerWaker>>,
}

impl std::fmt::Debug for ThreadOutlet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ThreadOutlet")
    }
}

impl ThreadOutlet {
    pub(crate) fn new(wake: Option<WorkerWaker>) -> Self {
        Self {
            messages: Inbox::new(),
            wake: Mutex::new(wake),
        }
    }

    pub(crate) fn set_wake(&self, wake: WorkerWaker) {
        *self.wake.lock() = Some(wake);
    }

    /// Wakes the server thread if there are messages that were not announced to it.
    fn announce(&self) {
        if self.messages.announce() {
            let wake = self.wake.lock().clone();
            if let Some(wake) = wake {
                wake();
            }
        }
    }
}

/// A function with which a server thread carries out all queued orders itself. It returns `false` if another thread
/// holds the pool's lock.
#[derive(Default)]
struct Entrance(OnceLock<Box<dyn Fn() -> bool + Send + Sync>>);

impl std::fmt::Debug for Entrance {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Entrance")
    }
}

/// A pool as seen by the server threads that use it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) orders: Inbox<PoolOrder>,
    entrance: Entrance,
    /// An eventfd, incremented when orders are announced.
    waker: OwnedFd,
    /// The queues of all server threads that use the pool.
    users: Mutex<Vec<Arc<ThreadOutlet>>>,
    /// Bit `n` stands for the event `EventName::ALL[n]`; meaningful once a process is ready.
    events: AtomicU32,
    is_ready: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            orders: Inbox::new(),
            entrance: Entrance::default(),
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            users: Mutex::default(),
            events: AtomicU32::new(0),
            is_ready: AtomicBool::new(false),
        })
    }

    pub(crate) fn waker(&self) -> &OwnedFd {
        &self.waker
    }

    /// Sets the function with which server threads carry out the queued orders.
    pub(crate) fn set_entrance(&self, entrance: Box<dyn Fn() -> bool + Send + Sync>) {
        let is_first = self.entrance.0.set(entrance).is_ok();
        debug_assert!(is_first, "the entrance of a pool can be set only once");
    }

    /// Carries out all queued orders on the calling thread. If another thread holds the pool's lock, wakes the pool
    /// thread instead, unless the same orders have already woken it. Never waits.
    pub(crate) fn announce_orders(&self) {
        let entrance = self.entrance.0.get();
        if !entrance.is_some_and(|enter| enter()) && self.orders.announce() {
            self.wake();
        }
    }

    /// Resets the counter that wakes the pool thread.
    pub(crate) fn clear_waker(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.waker, &mut count);
    }

    /// Wakes the server threads that have unannounced messages.
    pub(crate) fn announce_mail(&self) {
        self.users.lock().iter().for_each(|user| user.announce());
    }

    /// Wakes the thread of the pool.
    pub(crate) fn wake(&self) {
        // If the counter is at its maximum, the write fails, but a nonzero counter wakes the thread
        // anyway.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    pub(crate) fn join(&self, outlet: &Arc<ThreadOutlet>) {
        self.users.lock().push(Arc::clone(outlet));
        self.wake();
    }

    pub(crate) fn leave(&self, outlet: &Arc<ThreadOutlet>) {
        self.users.lock().retain(|one| !Arc::ptr_eq(one, outlet));
        self.wake();
    }

    /// Returns the queue of the server thread that joined first.
    pub(crate) fn first_user(&self) -> Option<Arc<ThreadOutlet>> {
        self.users.lock().first().cloned()
    }

    /// Sets the events that processes handle. The first call means that the first process has
    /// become ready.
    pub(crate) fn set_ready(&self, events: u32) {
        self.events.store(events, Ordering::Release);
        if !self.is_ready.swap(true, Ordering::AcqRel) {
            let users = self.users.lock();
            users
                .iter()
                .for_each(|user| user.messages.push(PoolMessage::Ready));
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns whether the application handles an event; true until that is known.
    pub(crate) fn handles(&self, event: EventName) -> bool {
        !self.is_ready() || self.events.load(Ordering::Acquire) & bit(event) != 0
    }
}

/// Returns the bit of an event in a set.
pub(crate) fn bit(event: EventName) -> u32 {
    let place = EventName::ALL.iter().position(|one| *one == event);
    1 << place.unwrap_or(31)
}
