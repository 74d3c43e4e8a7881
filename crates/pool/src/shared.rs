//! The queues between the server threads and the thread of a pool.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use veche_runtime::wire::EventName;

/// Wakes a server thread.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// An event on its way to a process.
#[derive(Debug)]
pub(crate) struct Job {
    /// Where its outcome goes.
    pub(crate) outlet: Arc<Outlet>,
    /// By which the server thread knows it.
    pub(crate) number: u64,
    pub(crate) name: EventName,
    /// The frame, with an id of 0.
    pub(crate) frame: Vec<u8>,
}

/// A request of a server thread to the pool.
#[derive(Debug)]
pub(crate) enum Order {
    /// An event is to be handled.
    Job(Job),
    /// The answer to an event is no longer needed.
    Cancel(u64, Arc<Outlet>),
    /// A whole frame for a process, if it still runs.
    Frame(ProcessKey, Vec<u8>),
}

/// A process of a pool; a number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProcessKey(pub(crate) u64);

/// Why an event has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Its process ended, or was ended.
    Failed,
    /// The event found no room in the queue, or no process in time.
    Busy,
    /// The application has no handler for it.
    Unhandled,
}

/// A message of a pool for a server thread.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A frame of a process; `event` is the event's number and id, where there is one.
    Frame {
        process: ProcessKey,
        event: Option<(u64, u64)>,
        /// The frame's head and payload.
        bytes: Vec<u8>,
        head_bytes: usize,
    },
    /// An event ends without an answer; the text is for the log.
    Unanswered(u64, Unanswered, Option<String>),
}

/// Mail for one server thread.
pub(crate) struct Outlet {
    mail: Mutex<Vec<Mail>>,
    has_mail: AtomicBool,
    wake: Mutex<Option<Wake>>,
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Outlet")
    }
}

impl Outlet {
    pub(crate) fn new(wake: Option<Wake>) -> Self {
        Self {
            mail: Mutex::default(),
            has_mail: AtomicBool::new(false),
            wake: Mutex::new(wake),
        }
    }

    pub(crate) fn set_wake(&self, wake: Wake) {
        *self.wake.lock() = Some(wake);
    }

    /// Leaves mail; the first in an empty box wakes the server thread.
    pub(crate) fn put(&self, mail: Mail) {
        self.mail.lock().push(mail);
        if !self.has_mail.swap(true, Ordering::AcqRel) {
            let wake = self.wake.lock().clone();
            if let Some(wake) = wake {
                wake();
            }
        }
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Takes all mail in exchange for an empty vector.
    pub(crate) fn take(&self, empty: &mut Vec<Mail>) {
        self.has_mail.store(false, Ordering::Release);
        std::mem::swap(&mut *self.mail.lock(), empty);
    }
}

/// One pool, as its users know it.
#[derive(Debug)]
pub(crate) struct Shared {
    orders: Mutex<Vec<Order>>,
    /// Counts up when there is something in an empty inbox.
    waker: OwnedFd,
    /// The boxes of all server threads that have joined.
    users: Mutex<Vec<Arc<Outlet>>>,
    /// Bit `n` stands for the event `EventName::ALL[n]`; meaningful once a process is ready.
    events: AtomicU32,
    is_ready: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            orders: Mutex::default(),
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            users: Mutex::default(),
            events: AtomicU32::new(0),
            is_ready: AtomicBool::new(false),
        })
    }

    pub(crate) fn waker(&self) -> &OwnedFd {
        &self.waker
    }

    pub(crate) fn order(&self, order: Order) {
        let mut orders = self.orders.lock();
        let is_first = orders.is_empty();
        orders.push(order);
        drop(orders);
        if is_first {
            self.wake();
        }
    }

    fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Takes all orders in exchange for an empty vector.
    pub(crate) fn take(&self, empty: &mut Vec<Order>) {
        std::mem::swap(&mut *self.orders.lock(), empty);
    }

    pub(crate) fn join(&self, outlet: &Arc<Outlet>) {
        self.users.lock().push(Arc::clone(outlet));
        self.wake();
    }

    pub(crate) fn leave(&self, outlet: &Arc<Outlet>) {
        self.users.lock().retain(|one| !Arc::ptr_eq(one, outlet));
        self.wake();
    }

    /// Returns the box of the server thread that joined first.
    pub(crate) fn first_user(&self) -> Option<Arc<Outlet>> {
        self.users.lock().first().cloned()
    }

    /// Notes the events that processes handle, the first of which is ready now.
    pub(crate) fn set_ready(&self, events: u32) {
        self.events.store(events, Ordering::Release);
        self.is_ready.store(true, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns whether such events are handled; true as long as that is not known.
    pub(crate) fn handles(&self, event: EventName) -> bool {
        !self.is_ready() || self.events.load(Ordering::Acquire) & bit(event) != 0
    }
}

/// Returns the bit of an event in a set.
pub(crate) fn bit(event: EventName) -> u32 {
    let place = EventName::ALL.iter().position(|one| *one == event);
    1 << place.unwrap_or(31)
}
