//! A worker's end of all its lanes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Wake;
use crate::lane::{Class, Lane};
use crate::wake_flag::WakeFlag;

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

/// The lane has no room for the message's class: no credit for data, or the maximum of control messages. Contains the
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lane to that worker is full")
    }
}

impl<T: fmt::Debug> std::error::Error for Full<T> {}

/// The state shared by all ends.
struct Mesh<T> {
    workers: usize,
    /// The lane from `a` to `b` is at `a * workers + b`.
    lanes: Vec<Lane<T>>,
    wake_flags: Vec<WakeFlag>,
}

impl<T> Mesh<T> {
    fn lane(&self, from: usize, to: usize) -> &Lane<T> {
        &self.lanes[from * self.workers + to]
    }
}

/// Messages posted by this end to one worker.
struct Outgoing<T> {
    batch: VecDeque<T>,
    batch_control: u32,
    /// Counts since the start, wrapping, to compare with the lane's counters.
    data_posted: u32,
    control_posted: u32,
}

/// A worker's end: posts to all workers and receives from all.
///
/// In a turn, a worker calls [`pop`](Self::pop) and works, calls [`post`](Self::post) as needed, then
/// [`flush`](Self::flush); then [`sleep`](Self::sleep) decides whether it may wait, and [`awake`](Self::awake) follows
/// the wait.
pub struct Mailbox<T> {
    me: usize,
    mesh: Arc<Mesh<T>>,
    options: Options,
    outgoing: Vec<Outgoing<T>>,
    /// Targets with a non-empty batch.
    dirty: Vec<usize>,
    /// Batches taken from the lanes, by sender.
    incoming: Vec<VecDeque<T>>,
    /// The number of messages in `incoming`, and the current sender.
    incoming_count: usize,
    cursor: usize,
}

impl<T> Mailbox<T> {
    /// Creates the ends of `workers` workers, each connected to each, including itself; end `i` belongs to worker `i`.
    /// Other threads that send or receive messages use ends of their own.
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

    /// Sets the wake that ends this end's wait. Call it once before the first [`sleep`](Self::sleep); messages posted
    /// earlier are not lost.
    pub fn attach(&self, wake: impl Wake + 'static) {
        self.mesh.wake_flags[self.me].attach(Box::new(wake));
    }

    /// Returns the index of this end.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// Returns the number of ends.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.mesh.workers
    }

    /// Returns the number of data messages posted to `to` that are not processed, at most the number of credits.
    #[must_use]
    pub fn unfinished(&self, to: usize) -> u32 {
        let finished = self.mesh.lane(self.me, to).finished.load(Ordering::Acquire);
        self.outgoing[to].data_posted.wrapping_sub(finished)
    }

    /// Returns whether there is credit for a data message to `to`. If not, this end is woken when credit returns.
    #[inline]
    pub fn has_credit(&mut self, to: usize) -> bool {
        if self.unfinished(to) < self.options.credits {
            return true;
        }
        // Request a wake, then check again: the credit may return in between.
        self.mesh
            .lane(self.me, to)
            .starved
            .store(true, Ordering::SeqCst);
        let finished = self.mesh.lane(self.me, to).finished.load(Ordering::SeqCst);
        self.outgoing[to].data_posted.wrapping_sub(finished) < self.options.credits
    }

    /// Adds a message to this turn's batch for `to`; it leaves with [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Full`] returns the message: no credit, or too many control messages waiting.
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

    /// Hands over the posted messages: one lock per target, and a wake for sleeping receivers.
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

    /// Returns the next message and its sender. Messages of one sender come in the order of posting; a sender's batch
    /// is finished before that of the next one.
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

    /// Takes the waiting messages from all lanes if this end was notified.
    fn collect(&mut self) -> bool {
        if !self.mesh.wake_flags[self.me].take_notified() {
            return false;
        }
        for (from, batch) in self.incoming.iter_mut().enumerate() {
            self.mesh.lane(from, self.me).take(batch);
            self.incoming_count += batch.len();
        }
        // The start rotates: otherwise a flood of worker 0 would starve the others.
        self.cursor = (self.cursor + 1) % self.mesh.workers;
        self.incoming_count != 0
    }

    /// Marks a data message from `from` as processed: its credit returns, and `from` is woken if it waits for one.
    #[inline]
    pub fn done(&mut self, from: usize) {
        let lane = self.mesh.lane(from, self.me);
        lane.finished.fetch_add(1, Ordering::SeqCst);
        if lane.starved.load(Ordering::SeqCst) && lane.starved.swap(false, Ordering::SeqCst) {
            self.mesh.wake_flags[from].notify();
        }
    }

    /// Returns whether this end may wait because there are no messages. If so, any message, and any credit that was
    /// refused, ends the wait through the wake.
    #[inline]
    pub fn sleep(&mut self) -> bool {
        self.incoming_count == 0 && self.mesh.wake_flags[self.me].sleep()
    }

    /// Ends the wait: senders need not wake this end any more.
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
