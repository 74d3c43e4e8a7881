//! The mailbox of a worker, and the lanes that connect the mailboxes. A lane is the queue of messages from one worker to
//! another.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Wake;
use crate::sync::{AtomicBool, AtomicU32, Mutex};
use crate::wake_flag::WakeFlag;

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

/// Limits of each lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of unprocessed data messages per lane. Default 1,024.
    pub credits: u32,
    /// Maximum number of waiting control messages per lane, not counting those that the receiver has taken. Default
    /// 65,536.
    pub control_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            credits: 1024,
            control_max: 65_536,
        }
    }
}

/// The error if the lane has reached its limit for the message's class: the credits for data, or
/// the maximum number of control messages. Contains the refused message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mailbox lane to that worker is full")
    }
}

impl<T: fmt::Debug> std::error::Error for Full<T> {}

/// The queue of messages from one worker to another, with the counters that both workers share.
#[derive(Debug)]
struct Lane<T> {
    queue: Mutex<Queue<T>>,
    /// Whether the queue contains messages. Exact while the lock is held, otherwise a hint.
    waiting: AtomicBool,
    /// Counters since the start: the data messages that the receiver has processed (`finished`),
    /// and the control messages that it has taken from the queue (`taken`). Both wrap around. Only
    /// their difference from the sender's counters of posted messages is used.
    finished: AtomicU32,
    taken: AtomicU32,
    /// Whether the sender was refused a credit and must be woken when one returns.
    starved: AtomicBool,
}

#[derive(Debug)]
struct Queue<T> {
    mail: VecDeque<T>,
    control: u32,
}

impl<T> Lane<T> {
    fn new() -> Self {
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
    fn push(&self, batch: &mut VecDeque<T>, control: u32) {
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
    fn take(&self, batch: &mut VecDeque<T>) {
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

/// The lanes and wake flags of all workers, which all mailboxes share.
struct Mesh<T> {
    workers: usize,
    /// The lane from worker `a` to worker `b` has the index `a * workers + b`.
    lanes: Vec<Lane<T>>,
    wake_flags: Vec<WakeFlag>,
}

impl<T> Mesh<T> {
    fn lane(&self, from: usize, to: usize) -> &Lane<T> {
        &self.lanes[from * self.workers + to]
    }
}

/// The messages posted to one worker but not flushed yet, with counters of all messages posted to
/// that worker.
struct Outgoing<T> {
    batch: VecDeque<T>,
    batch_control: u32,
    /// The numbers of data and control messages posted since the start. They wrap around and are
    /// compared with the lane's counters.
    data_posted: u32,
    control_posted: u32,
}

/// A worker's end of the lanes: posts messages to all workers and receives messages from all.
///
/// In a turn, a worker takes messages with [`pop`](Self::pop) and processes them, posts messages with
/// [`post`](Self::post), and then calls [`flush`](Self::flush). After that, [`sleep`](Self::sleep) returns whether
/// the worker may wait for events. After the wait, the worker calls [`awake`](Self::awake).
pub struct Mailbox<T> {
    me: usize,
    mesh: Arc<Mesh<T>>,
    options: Options,
    outgoing: Vec<Outgoing<T>>,
    /// The workers that have posted but unflushed messages.
    dirty: Vec<usize>,
    /// The messages taken from the lanes but not popped yet, by sender.
    incoming: Vec<VecDeque<T>>,
    /// The number of messages in `incoming`.
    incoming_count: usize,
    /// The sender whose messages are currently popped.
    cursor: usize,
}

impl<T> Mailbox<T> {
    /// Creates the mailboxes of `workers` workers, all connected to each other and to themselves. Mailbox `i`
    /// belongs to worker `i`. A thread that is not a worker but exchanges messages needs a mailbox, too.
    #[must_use]
    pub fn mesh(workers: usize, options: &Options) -> Vec<Self> {
        let mesh = Arc::new(Mesh {
            workers,
            lanes: (0..workers * workers).map(|_| Lane::new()).collect(),
            wake_flags: (0..workers).map(|_| WakeFlag::default()).collect(),
        });
        (0..workers)
            .map(|me| Self {
                me,
                mesh: Arc::clone(&mesh),
                options: options.clone(),
                outgoing: (0..workers)
                    .map(|_| Outgoing {
                        batch: VecDeque::new(),
                        batch_control: 0,
                        data_posted: 0,
                        control_posted: 0,
                    })
                    .collect(),
                dirty: Vec::with_capacity(workers),
                incoming: (0..workers).map(|_| VecDeque::new()).collect(),
                incoming_count: 0,
                cursor: 0,
            })
            .collect()
    }

    /// Sets the function that wakes the owner of this mailbox. Must be called before the first
    /// [`sleep`](Self::sleep); messages posted earlier are not lost.
    pub fn attach(&self, wake: impl Wake + 'static) {
        self.mesh.wake_flags[self.me].attach(Box::new(wake));
    }

    /// Returns the index of this mailbox.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// Returns the number of connected mailboxes.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.mesh.workers
    }

    /// Returns the number of data messages that were posted to worker `to` and not processed yet.
    /// This number never exceeds the number of credits.
    #[must_use]
    pub fn unfinished(&self, to: usize) -> u32 {
        let finished = self.mesh.lane(self.me, to).finished.load(Ordering::Acquire);
        self.outgoing[to].data_posted.wrapping_sub(finished)
    }

    /// Returns whether there is a credit for a data message to worker `to`. If not, the owner of this mailbox is
    /// woken when a credit returns.
    #[inline]
    pub fn has_credit(&mut self, to: usize) -> bool {
        if self.unfinished(to) < self.options.credits {
            return true;
        }
        // Requests a wake, then checks the credits again, since one may have returned in between.
        self.mesh
            .lane(self.me, to)
            .starved
            .store(true, Ordering::SeqCst);
        let finished = self.mesh.lane(self.me, to).finished.load(Ordering::SeqCst);
        self.outgoing[to].data_posted.wrapping_sub(finished) < self.options.credits
    }

    /// Adds a message to this turn's batch for worker `to`; [`flush`](Self::flush) sends the batch.
    ///
    /// # Errors
    /// Returns [`Full`] with the message if there is no credit, or if too many control messages are waiting.
    #[inline]
    pub fn post(&mut self, to: usize, class: Class, mail: T) -> Result<(), Full<T>> {
        match class {
            Class::Data if !self.has_credit(to) => return Err(Full(mail)),
            Class::Data => {
                let posted = &mut self.outgoing[to].data_posted;
                *posted = posted.wrapping_add(1);
            }
            Class::Control => {
                let taken = self.mesh.lane(self.me, to).taken.load(Ordering::Acquire);
                let outgoing = &mut self.outgoing[to];
                if outgoing.control_posted.wrapping_sub(taken) >= self.options.control_max {
                    return Err(Full(mail));
                }
                outgoing.control_posted = outgoing.control_posted.wrapping_add(1);
                outgoing.batch_control += 1;
            }
        }
        let outgoing = &mut self.outgoing[to];
        if outgoing.batch.is_empty() {
            self.dirty.push(to);
        }
        outgoing.batch.push_back(mail);
        Ok(())
    }

    /// Sends the posted messages, with one lock per receiver, and wakes the receivers that sleep.
    pub fn flush(&mut self) {
        for to in self.dirty.drain(..) {
            let outgoing = &mut self.outgoing[to];
            let control = std::mem::take(&mut outgoing.batch_control);
            self.mesh
                .lane(self.me, to)
                .push(&mut outgoing.batch, control);
            self.mesh.wake_flags[to].notify();
        }
    }

    /// Returns the next message with the index of its sender; `None` if there is none. Messages of
    /// the same sender are returned in the order in which they were posted. After the messages are
    /// taken from the lanes, all messages of one sender are returned before those of the next
    /// sender.
    #[inline]
    pub fn pop(&mut self) -> Option<(usize, T)> {
        if self.incoming_count == 0 && !self.collect() {
            return None;
        }
        loop {
            if let Some(mail) = self.incoming[self.cursor].pop_front() {
                self.incoming_count -= 1;
                return Some((self.cursor, mail));
            }
            self.cursor = (self.cursor + 1) % self.mesh.workers;
        }
    }

    /// Takes the waiting messages from all lanes if this mailbox was notified. Returns whether there were any
    /// messages.
    fn collect(&mut self) -> bool {
        if !self.mesh.wake_flags[self.me].take_notified() {
            return false;
        }
        for (from, batch) in self.incoming.iter_mut().enumerate() {
            self.mesh.lane(from, self.me).take(batch);
            self.incoming_count += batch.len();
        }
        // The sender whose messages come first changes with each call. Otherwise a flood of
        // messages from worker 0 would starve the other senders.
        self.cursor = (self.cursor + 1) % self.mesh.workers;
        self.incoming_count != 0
    }

    /// Marks a data message from `from` as processed. Its credit returns, and `from` is woken if it
    /// waits for a credit.
    #[inline]
    pub fn done(&mut self, from: usize) {
        let lane = self.mesh.lane(from, self.me);
        lane.finished.fetch_add(1, Ordering::SeqCst);
        if lane.starved.load(Ordering::SeqCst) && lane.starved.swap(false, Ordering::SeqCst) {
            self.mesh.wake_flags[from].notify();
        }
    }

    /// Prepares for a wait. Returns `false` if the owner of this mailbox must not wait, because there may be
    /// messages to pop. After `true`, [`Wake`] ends the wait when a message arrives, or when a credit returns after
    /// the owner was refused one.
    #[inline]
    pub fn sleep(&mut self) -> bool {
        self.incoming_count == 0 && self.mesh.wake_flags[self.me].sleep()
    }

    /// Marks the wait as ended, so that senders no longer wake the owner of this mailbox.
    #[inline]
    pub fn awake(&mut self) {
        self.mesh.wake_flags[self.me].awake();
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("me", &self.me)
            .field("held", &self.incoming_count)
            .finish_non_exhaustive()
    }
}
