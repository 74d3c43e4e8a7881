//! The messages from one worker to another, in a state shared by both workers.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, AtomicU32, Mutex};

/// The class of a message, which determines the limit that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The message takes a credit, which returns to the sender when the receiver has processed the message. Without a
    /// credit the sender has to wait.
    Data,
    /// Replies, membership changes and closes. They have a separate limit, so that a lane full of
    /// data never blocks the replies that allow the lane to drain.
    Control,
}

/// The messages from one worker to another.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    queue: Mutex<Queue<T>>,
    /// Whether the queue contains messages. Exact while the lock is held, otherwise a hint.
    waiting: AtomicBool,
    /// Counters since the start: the data messages that the receiver has processed (`finished`),
    /// and the control messages that it has taken from the queue (`taken`). Both wrap around. Only
    /// their difference from the sender's counters of posted messages is used.
    pub(crate) finished: AtomicU32,
    pub(crate) taken: AtomicU32,
    /// Whether the sender was refused a credit and must be woken when one returns.
    pub(crate) starved: AtomicBool,
}

#[derive(Debug)]
struct Queue<T> {
    mail: VecDeque<T>,
    control: u32,
}

impl<T> Lane<T> {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(Queue {
                mail: VecDeque::new(),
                control: 0,
            }),
            waiting: AtomicBool::new(false),
            finished: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            starved: AtomicBool::new(false),
        }
    }

    /// Moves the messages of `batch` into the queue. `control` is the number of control messages
    /// among them. Leaves `batch` empty, but with an allocated buffer.
    pub(crate) fn push(&self, batch: &mut VecDeque<T>, control: u32) {
        let mut queue = self.queue.lock();
        if queue.mail.is_empty() {
            std::mem::swap(&mut queue.mail, batch);
        } else {
            queue.mail.append(batch);
        }
        queue.control += control;
        self.waiting.store(true, Ordering::Relaxed);
    }

    /// Moves all messages of the queue into `batch`, which must be empty.
    pub(crate) fn take(&self, batch: &mut VecDeque<T>) {
        // If this load misses a concurrent push, the message is not lost, because the sender
        // notifies the receiver after the push.
        if !self.waiting.load(Ordering::Relaxed) {
            return;
        }
        let mut queue = self.queue.lock();
        std::mem::swap(&mut queue.mail, batch);
        let control = std::mem::take(&mut queue.control);
        self.waiting.store(false, Ordering::Relaxed);
        drop(queue);
        if control != 0 {
            self.taken.fetch_add(control, Ordering::Release);
        }
    }
}
