//! A queue shared by all workers: first in, first out, each value to one consumer.
//!
//! A waiter leaves the number of its wait and a [`Bell`]. A notification transfers nothing: the value stays in the
//! queue until its consumer takes it, so a cancelled consumer loses nothing. But a notified consumer that gives up must
//! say so ([`Queue::leave`]), because another one may be waiting for the same value.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bell::Bell;
use crate::value::Value;

/// Overhead of a value in bytes.
const ENTRY_BYTES: usize = 48;

/// Limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Maximum number of values.
    pub capacity: usize,
    /// Approximate maximum memory of the values in bytes.
    pub bytes_max: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            capacity: 1000,
            bytes_max: 64 << 20,
        }
    }
}

/// A queued value.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    /// The value, or its JSON text.
    pub value: Value,
    /// Whether the value is the JSON text of a table.
    pub is_json: bool,
}

impl Parcel {
    fn cost(&self) -> usize {
        ENTRY_BYTES + self.value.extra_bytes()
    }
}

/// The side of the queue at which a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Waits for room.
    Push,
    /// Waits for a value.
    Pop,
}

/// A caller that can wait.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// Identifies this wait.
    pub number: u64,
    /// Notified when a retry may succeed.
    pub bell: Arc<Bell>,
}

impl Waiter {
    fn is(&self, number: u64, bell: &Arc<Bell>) -> bool {
        self.number == number && Arc::ptr_eq(&self.bell, bell)
    }
}

/// The result of pushing a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Pushed {
    /// The value was added.
    Yes,
    /// There is no room; the waiter, if any, was queued.
    Full(Parcel),
    /// The value exceeds the queue's limit.
    TooLarge,
}

/// A bounded queue.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    options: QueueOptions,
    parcels: VecDeque<Parcel>,
    bytes: usize,
    pushers: VecDeque<Waiter>,
    poppers: VecDeque<Waiter>,
}

impl State {
    /// Notifies the first waiter.
    fn call(line: &mut VecDeque<Waiter>) {
        if let Some(waiter) = line.pop_front() {
            waiter.bell.ring(waiter.number);
        }
    }

    fn has_room(&self, cost: usize) -> bool {
        let QueueOptions {
            capacity,
            bytes_max,
        } = self.options;
        self.parcels.len() < capacity && self.bytes + cost <= bytes_max
    }
}

impl Queue {
    pub(crate) fn new(options: QueueOptions) -> Self {
        let state = State {
            options,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Returns the limits.
    #[must_use]
    pub fn options(&self) -> QueueOptions {
        self.state.lock().options
    }

    /// Changes the limits. Queued values stay even if they exceed them.
    pub(crate) fn resize(&self, options: QueueOptions) {
        let mut state = self.state.lock();
        state.options = options;
        if state.has_room(ENTRY_BYTES) {
            // Each successful push notifies the next waiter.
            State::call(&mut state.pushers);
        }
    }

    /// Adds a value, or queues `waiter` until there is room.
    pub fn push(&self, parcel: Parcel, waiter: Option<Waiter>) -> Pushed {
        let cost = parcel.cost();
        let mut state = self.state.lock();
        if cost > state.options.bytes_max {
            return Pushed::TooLarge;
        }
        if !state.has_room(cost) {
            state.pushers.extend(waiter);
            return Pushed::Full(parcel);
        }
        state.bytes += cost;
        state.parcels.push_back(parcel);
        State::call(&mut state.poppers);
        if state.has_room(ENTRY_BYTES) {
            // The room of one large value may suffice for several.
            State::call(&mut state.pushers);
        }
        Pushed::Yes
    }

    /// Takes the first value, or queues `waiter` until there is one.
    pub fn pop(&self, waiter: Option<Waiter>) -> Option<Parcel> {
        let mut state = self.state.lock();
        let Some(parcel) = state.parcels.pop_front() else {
            state.poppers.extend(waiter);
            return None;
        };
        state.bytes -= parcel.cost();
        State::call(&mut state.pushers);
        Some(parcel)
    }

    /// Cancels a wait: if the waiter was notified, the next one is notified instead.
    pub fn leave(&self, side: Side, number: u64, bell: &Arc<Bell>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let line = match side {
            Side::Push => &mut state.pushers,
            Side::Pop => &mut state.poppers,
        };
        if let Some(place) = line.iter().position(|waiter| waiter.is(number, bell)) {
            line.remove(place);
            return;
        }
        let has_something = match side {
            Side::Push => state.has_room(ENTRY_BYTES),
            Side::Pop => !state.parcels.is_empty(),
        };
        if has_something {
            State::call(match side {
                Side::Push => &mut state.pushers,
                Side::Pop => &mut state.poppers,
            });
        }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().parcels.len()
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    fn parcel(number: u64) -> Parcel {
        Parcel {
            value: Value::Number(number as f64),
            is_json: false,
        }
    }

    fn waiter(number: u64, bell: &Arc<Bell>) -> Option<Waiter> {
        let bell = Arc::clone(bell);
        Some(Waiter { number, bell })
    }

    fn queue(capacity: usize) -> Queue {
        Queue::new(QueueOptions {
            capacity,
            ..QueueOptions::default()
        })
    }

    #[test]
    fn those_who_wait_are_rung_for_in_order() {
        let (queue, bell) = (queue(2), Arc::new(Bell::default()));
        assert_eq!(queue.pop(waiter(1, &bell)), None);
        assert_eq!(queue.pop(waiter(2, &bell)), None);
        assert_eq!(queue.push(parcel(7), None), Pushed::Yes);
        assert_eq!(queue.push(parcel(8), None), Pushed::Yes);
        assert_eq!(bell.take(), [1, 2]);
        assert_eq!(
            queue.push(parcel(9), waiter(3, &bell)),
            Pushed::Full(parcel(9))
        );
        assert_eq!(queue.pop(None), Some(parcel(7)));
        assert_eq!(bell.take(), [3]);
        assert_eq!(queue.pop(None), Some(parcel(8)));
        assert_eq!(queue.pop(None), None);
    }

    #[test]
    fn who_leaves_passes_on_what_was_rung() {
        let (queue, bell) = (queue(1), Arc::new(Bell::default()));
        for number in 1..=3 {
            queue.pop(waiter(number, &bell));
        }
        queue.leave(Side::Pop, 2, &bell);
        queue.push(parcel(7), None);
        assert_eq!(bell.take(), [1]);
        queue.leave(Side::Pop, 1, &bell);
        assert_eq!(bell.take(), [3]);
        // There is nothing left to wait for.
        assert_eq!(queue.pop(None), Some(parcel(7)));
        queue.pop(waiter(4, &bell));
        queue.leave(Side::Pop, 3, &bell);
        assert_eq!(bell.take(), [0; 0]);
    }

    #[test]
    fn bytes_are_bounded() {
        let queue = Queue::new(QueueOptions {
            capacity: 10,
            bytes_max: 1000,
        });
        let bytes = |count: usize| Parcel {
            value: Value::Bytes(vec![0; count].into()),
            is_json: false,
        };
        assert_eq!(queue.push(bytes(1000), None), Pushed::TooLarge);
        assert_eq!(queue.push(bytes(900), None), Pushed::Yes);
        assert_eq!(queue.push(bytes(10), None), Pushed::Full(bytes(10)));
        queue.pop(None);
        assert_eq!(queue.push(bytes(10), None), Pushed::Yes);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn other_limits_hold_for_what_comes_next() {
        let (queue, bell) = (queue(2), Arc::new(Bell::default()));
        for number in 0..2 {
            queue.push(parcel(number), None);
        }
        for number in 1..=2 {
            queue.push(parcel(2), waiter(number, &bell));
        }
        let resize = |capacity| {
            queue.resize(QueueOptions {
                capacity,
                ..QueueOptions::default()
            });
        };
        resize(4);
        assert_eq!(bell.take(), [1]);
        assert_eq!(queue.push(parcel(2), None), Pushed::Yes);
        assert_eq!(bell.take(), [2]);
        resize(1);
        assert_eq!(queue.len(), 3);
        for number in 0..3 {
            assert_eq!(queue.push(parcel(9), None), Pushed::Full(parcel(9)));
            assert_eq!(queue.pop(None), Some(parcel(number)));
        }
        assert_eq!(queue.push(parcel(9), None), Pushed::Yes);
    }

    /// Threads that sleep until they are notified, as workers do.
    #[test]
    fn each_value_comes_to_one_taker_and_nobody_sleeps_for_ever() {
        const EACH: u64 = 5_000;
        let (queue, sum, taken) = (queue(3), AtomicU64::new(0), AtomicU64::new(0));
        let wait = |bell: &Arc<Bell>| {
            while !bell.has_rung() {
                thread::park_timeout(std::time::Duration::from_secs(10));
            }
            drop(bell.take());
        };
        let own = || {
            let (bell, thread) = (Arc::new(Bell::default()), thread::current());
            bell.set_wake(move || thread.unpark());
            bell
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let bell = own();
                    for number in 0..EACH {
                        let mut next = parcel(number);
                        while let Pushed::Full(back) = queue.push(next, waiter(number, &bell)) {
                            wait(&bell);
                            next = back;
                        }
                    }
                });
                scope.spawn(|| {
                    let bell = own();
                    for number in 0..EACH {
                        let got = loop {
                            match queue.pop(waiter(number, &bell)) {
                                Some(got) => break got,
                                None => wait(&bell),
                            }
                        };
                        if let Value::Number(value) = got.value {
                            sum.fetch_add(value as u64, Ordering::Relaxed);
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 2 * EACH);
        assert_eq!(sum.into_inner(), EACH * (EACH - 1));
        assert!(queue.is_empty());
    }
}
