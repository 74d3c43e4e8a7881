//! This process as a node of a cluster: the handle on the [thread] that carries messages between the workers, the node and
//! the engine.

mod seen;
pub(crate) mod thread;
mod waker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::RwLock;

pub(crate) use seen::Seen;
use waker::ThreadWaker;

/// How long an ending process may take to notify the other nodes.
const LEAVE_WITHIN: Duration = Duration::from_millis(300);

/// The process's handle on the node's thread.
pub(crate) struct Cluster {
    waker: Arc<ThreadWaker>,
    seen: RwLock<Seen>,
    is_leaving: AtomicBool,
    has_left: AtomicBool,
}

impl Cluster {
    /// Creates the handle through which other threads reach the node's thread. That thread is started by
    /// [`start`](thread::start).
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            waker: Arc::default(),
            seen: RwLock::default(),
            is_leaving: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        })
    }

    /// Returns a function that ends the thread's current wait.
    pub(crate) fn wake(&self) -> impl Fn() + Send + Sync + 'static {
        let waker = Arc::clone(&self.waker);
        move || waker.notify()
    }

    /// Returns the state of the cluster from this node's point of view.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.read().clone()
    }

    /// Returns whether another node with a valid lease has this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.seen.read().has(id)
    }

    /// Announces to the other nodes that this node ends. Waits until the announcement is sent, but at most
    /// [`LEAVE_WITHIN`].
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Relaxed);
        self.waker.notify();
        let began = veche_clock::now();
        while !self.has_left.load(Relaxed) && began.elapsed() < LEAVE_WITHIN {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
