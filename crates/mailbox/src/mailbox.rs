//! One worker's end of all its lanes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Wake;
use crate::lane::{Class, Lane};
use crate::wake_flag::WakeFlag;

/// The limits of each lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Data that may be unfinished per ordered pair. Default 1,024.
    pub credits: u32,
    /// Control mail that may wait per ordered pair, beside what the receiver
    /// has taken already. Default 65,536.
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

/// There is no room of the mail's class in the lane: no credit for data, or
/// control at its maximum. The mail comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lane to that worker is full")
    }
}

impl<T: fmt::Debug> std::error::Error for Full<T> {}

/// What all ends share.
struct Mesh<T> {
    workers: usize,
    /// Lane from `a` to `b` at `a * workers + b`.
    lanes: Vec<Lane<T>>,
    wake_flags: Vec<WakeFlag>,
}

impl<T> Mesh<T> {
    fn lane(&self, from: usize, to: usize) -> &Lane<T> {
        &self.lanes[from * self.workers + to]
    }
}

/// What this end has posted to one worker.
struct Outgoing<T> {
    batch: VecDeque<T>,
    batch_control: u32,
    /// Since the start, wrapping: to compare with the lane's counters.
    data_posted: u32,
    control_posted: u32,
}

/// One worker's end: it posts to all, and receives from all.
///
/// A turn of a worker: [`pop`](Self::pop) and work, [`post`](Self::post) as
/// needed, [`flush`](Self::flush); then [`sleep`](Self::sleep) decides whether
/// the wait may last, and [`awake`](Self::awake) follows it.
pub struct Mailbox<T> {
    me: usize,
    mesh: Arc<Mesh<T>>,
    options: Options,
    outgoing: Vec<Outgoing<T>>,
    /// Targets whose batch is not empty.
    dirty: Vec<usize>,
    /// Batches taken from the lanes, by sender.
    incoming: Vec<VecDeque<T>>,
    /// Mail in `incoming`, and the sender whose turn it is.
    incoming_count: usize,
    cursor: usize,
}

impl<T> Mailbox<T> {
    /// The ends of `workers` workers, each connected to each (and to itself);
    /// end `i` is worker `i`'s. Threads that are no workers but want to post or
    /// receive take ends of their own.
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

    /// Sets what ends this end's wait. Once, before the first
    /// [`sleep`](Self::sleep); mail posted earlier is not lost.
    pub fn attach(&self, wake: impl Wake + 'static) {
        self.mesh.wake_flags[self.me].attach(Box::new(wake));
    }

    /// Which end this is.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// How many ends there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.mesh.workers
    }

    /// Data posted to `to` and not finished by it, up to the number of credits.
    #[must_use]
    pub fn unfinished(&self, to: usize) -> u32 {
        let finished = self.mesh.lane(self.me, to).finished.load(Ordering::Acquire);
        self.outgoing[to].data_posted.wrapping_sub(finished)
    }

    /// Whether `to` takes another piece of data. If not, this end is woken when
    /// it does again.
    #[inline]
    pub fn has_credit(&mut self, to: usize) -> bool {
        if self.unfinished(to) < self.options.credits {
            return true;
        }
        // Ask to be rung, then look again: the credit may come in between.
        self.mesh
            .lane(self.me, to)
            .starved
            .store(true, Ordering::SeqCst);
        let finished = self.mesh.lane(self.me, to).finished.load(Ordering::SeqCst);
        self.outgoing[to].data_posted.wrapping_sub(finished) < self.options.credits
    }

    /// Adds to this turn's batch for `to`; it leaves with [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Full`] gives the mail back: no credit, or too much control waiting.
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

    /// Hands over what was posted: one lock per target, and a wake for those
    /// who sleep.
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

    /// The next piece of mail and its sender. Of one sender in the order of its
    /// posts; a sender's batch is finished before the next one's begins.
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

    /// Takes over what waits in the lanes, if the bell was rung.
    fn collect(&mut self) -> bool {
        if !self.mesh.wake_flags[self.me].take_notified() {
            return false;
        }
        for (from, batch) in self.incoming.iter_mut().enumerate() {
            self.mesh.lane(from, self.me).take(batch);
            self.incoming_count += batch.len();
        }
        // Not always from worker 0: a flood of its mail would starve the rest.
        self.cursor = (self.cursor + 1) % self.mesh.workers;
        self.incoming_count != 0
    }

    /// A piece of data from `from` is finished: its credit goes back, and
    /// `from` is woken if it waits for one.
    #[inline]
    pub fn done(&mut self, from: usize) {
        let lane = self.mesh.lane(from, self.me);
        lane.finished.fetch_add(1, Ordering::SeqCst);
        if lane.starved.load(Ordering::SeqCst) && lane.starved.swap(false, Ordering::SeqCst) {
            self.mesh.wake_flags[from].notify();
        }
    }

    /// Whether this end may wait: nothing is here and nothing came. After true
    /// any mail, and any credit that was refused, ends the wait by the wake.
    #[inline]
    pub fn sleep(&mut self) -> bool {
        self.incoming_count == 0 && self.mesh.wake_flags[self.me].sleep()
    }

    /// The wait is over. Senders need not wake this end any more.
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
