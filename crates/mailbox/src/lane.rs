//! The shared state of one direction between two workers.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, AtomicU32, Mutex};

/// The resource that a message needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Takes a credit, which returns when the receiver has processed the message. Without credit the source has to
    /// wait.
    Data,
    /// Replies, membership, closes: these have reserved room, so that a lane full of data never blocks the replies that
    /// would empty it.
    Control,
}

/// Messages from one worker to another.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    queue: Mutex<Queue<T>>,
    /// Whether the queue is not empty: exact under the lock, otherwise a hint.
    waiting: AtomicBool,
    /// The numbers of data messages that the receiver has processed (`finished`) and of control messages that it has
    /// taken (`taken`) since the start. Both wrap; only their difference from the number posted counts.
    pub(crate) finished: AtomicU32,
    pub(crate) taken: AtomicU32,
    /// Whether the sender was refused a credit and has to be woken when one returns.
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

    /// Moves a batch in; `batch` is empty afterwards and keeps a buffer.
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

    /// Moves all messages out into `batch`, which must be empty.
    pub(crate) fn take(&self, batch: &mut VecDeque<T>) {
        // A concurrent push that this load misses notifies the receiver afterwards.
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
