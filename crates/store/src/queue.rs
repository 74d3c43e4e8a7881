//! A FIFO queue shared by all workers. Each value is delivered to one consumer.
//!
//! A caller that waits registers the number of its wait and a [`Notifier`]. A notification does not transfer the value, which
//! stays in the queue until a consumer takes it, so nothing is lost if a consumer is cancelled. But a notified consumer that
//! stops waiting must call [`Queue::cancel_wait`], so that another waiting consumer is notified of the value.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::notifier::Notifier;
use crate::value::Value;

/// Memory overhead of a queued value in bytes.
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
pub struct QueueItem {
    /// The value. For a Lua table, this is the table's JSON text.
    pub value: Value,
    /// Whether `value` is the JSON text of a Lua table.
    pub is_json: bool,
}

impl QueueItem {
    fn cost(&self) -> usize {
        ENTRY_BYTES + self.value.extra_bytes()
    }
}

/// The side of the queue at which a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitSide {
    /// Waits for room to push a value.
    Push,
    /// Waits for a value.
    Pop,
}

/// A caller that can wait.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// The number that identifies this wait.
    pub number: u64,
    /// Notified when a retry may succeed.
    pub notifier: Arc<Notifier>,
}

impl Waiter {
    fn is(&self, number: u64, notifier: &Arc<Notifier>) -> bool {
        self.number == number && Arc::ptr_eq(&self.notifier, notifier)
    }
}

/// The result of pushing a value.
#[derive(Clone, Debug, PartialEq)]
pub enum PushResult {
    /// The value was added.
    Pushed,
    /// The queue is full, and the value is returned. The waiter, if given, will be notified.
    Full(QueueItem),
    /// The value alone exceeds the queue's limit in bytes.
    TooLarge,
}

/// A queue with limits, shared by all threads.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    options: QueueOptions,
    items: VecDeque<QueueItem>,
    bytes: usize,
    pushers: VecDeque<Waiter>,
    poppers: VecDeque<Waiter>,
}

impl State {
    /// Notifies and removes the first waiter.
    fn notify_first(line: &mut VecDeque<Waiter>) {
        if let Some(waiter) = line.pop_front() {
            waiter.notifier.notify(waiter.number);
        }
    }

    fn has_room(&self, cost: usize) -> bool {
        let QueueOptions {
            capacity,
            bytes_max,
        } = self.options;
        self.items.len() < capacity && self.bytes + cost <= bytes_max
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

    /// Returns the current limits of the queue.
    #[must_use]
    pub fn options(&self) -> QueueOptions {
        self.state.lock().options
    }

    /// Changes the limits. Queued values that exceed the new limits stay.
    pub(crate) fn resize(&self, options: QueueOptions) {
        let mut state = self.state.lock();
        state.options = options;
        if state.has_room(ENTRY_BYTES) {
            // Only the first waiter is notified: each successful push notifies the next one.
            State::notify_first(&mut state.pushers);
        }
    }

    /// Adds a value. If the queue is full, registers `waiter`, which is notified when there is room.
    pub fn push(&self, item: QueueItem, waiter: Option<Waiter>) -> PushResult {
        let cost = item.cost();
        let mut state = self.state.lock();
        if cost > state.options.bytes_max {
            return PushResult::TooLarge;
        }
        if !state.has_room(cost) {
            state.pushers.extend(waiter);
            return PushResult::Full(item);
        }
        state.bytes += cost;
        state.items.push_back(item);
        State::notify_first(&mut state.poppers);
        if state.has_room(ENTRY_BYTES) {
            // The room left by one large value may suffice for several values, so the next waiter is notified too.
            State::notify_first(&mut state.pushers);
        }
        PushResult::Pushed
    }

    /// Takes the first value. If the queue is empty, registers `waiter`, which is notified when there is a value.
    pub fn pop(&self, waiter: Option<Waiter>) -> Option<QueueItem> {
        let mut state = self.state.lock();
        let Some(item) = state.items.pop_front() else {
            state.poppers.extend(waiter);
            return None;
        };
        state.bytes -= item.cost();
        State::notify_first(&mut state.pushers);
        Some(item)
    }

    /// Cancels a wait. If the waiter was notified already, the next waiter is notified in its place.
    pub fn cancel_wait(&self, side: WaitSide, number: u64, notifier: &Arc<Notifier>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let line = match side {
            WaitSide::Push => &mut state.pushers,
            WaitSide::Pop => &mut state.poppers,
        };
        if let Some(place) = line.iter().position(|waiter| waiter.is(number, notifier)) {
            line.remove(place);
            return;
        }
        let has_something = match side {
            WaitSide::Push => state.has_room(ENTRY_BYTES),
            WaitSide::Pop => !state.items.is_empty(),
        };
        if has_something {
            State::notify_first(match side {
                WaitSide::Push => &mut state.pushers,
                WaitSide::Pop => &mut state.poppers,
            });
        }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
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

    fn item(number: u64) -> QueueItem {
        QueueItem {
            value: Value::Number(number as f64),
            is_json: false,
        }
    }

    fn waiter(number: u64, notifier: &Arc<Notifier>) -> Option<Waiter> {
        let notifier = Arc::clone(notifier);
        Some(Waiter { number, notifier })
    }

    fn queue(capacity: usize) -> Queue {
        Queue::new(QueueOptions {
            capacity,
            ..QueueOptions::default()
        })
    }

    #[test]
    fn waiters_are_notified_in_order() {
        let (queue, notifier) = (queue(2), Arc::new(Notifier::default()));
        assert_eq!(queue.pop(waiter(1, &notifier)), None);
        assert_eq!(queue.pop(waiter(2, &notifier)), None);
        assert_eq!(queue.push(item(7), None), PushResult::Pushed);
        assert_eq!(queue.push(item(8), None), PushResult::Pushed);
        assert_eq!(notifier.take(), [1, 2]);
        assert_eq!(
            queue.push(item(9), waiter(3, &notifier)),
            PushResult::Full(item(9))
        );
        assert_eq!(queue.pop(None), Some(item(7)));
        assert_eq!(notifier.take(), [3]);
        assert_eq!(queue.pop(None), Some(item(8)));
        assert_eq!(queue.pop(None), None);
    }

    #[test]
    fn a_cancelled_wait_passes_its_notification_on() {
        let (queue, notifier) = (queue(1), Arc::new(Notifier::default()));
        for number in 1..=3 {
            queue.pop(waiter(number, &notifier));
        }
        queue.cancel_wait(WaitSide::Pop, 2, &notifier);
        queue.push(item(7), None);
        assert_eq!(notifier.take(), [1]);
        queue.cancel_wait(WaitSide::Pop, 1, &notifier);
        assert_eq!(notifier.take(), [3]);
        // The queue still has an item, so this call returns it and does not register the waiter.
        assert_eq!(queue.pop(None), Some(item(7)));
        queue.pop(waiter(4, &notifier));
        queue.cancel_wait(WaitSide::Pop, 3, &notifier);
        assert_eq!(notifier.take(), [0; 0]);
    }

    #[test]
    fn bytes_are_bounded() {
        let queue = Queue::new(QueueOptions {
            capacity: 10,
            bytes_max: 1000,
        });
        let bytes = |count: usize| QueueItem {
            value: Value::Bytes(vec![0; count].into()),
            is_json: false,
        };
        assert_eq!(queue.push(bytes(1000), None), PushResult::TooLarge);
        assert_eq!(queue.push(bytes(900), None), PushResult::Pushed);
        assert_eq!(queue.push(bytes(10), None), PushResult::Full(bytes(10)));
        queue.pop(None);
        assert_eq!(queue.push(bytes(10), None), PushResult::Pushed);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn changed_limits_apply_to_later_values() {
        let (queue, notifier) = (queue(2), Arc::new(Notifier::default()));
        for number in 0..2 {
            queue.push(item(number), None);
        }
        for number in 1..=2 {
            queue.push(item(2), waiter(number, &notifier));
        }
        let resize = |capacity| {
            queue.resize(QueueOptions {
                capacity,
                ..QueueOptions::default()
            });
        };
        resize(4);
        assert_eq!(notifier.take(), [1]);
        assert_eq!(queue.push(item(2), None), PushResult::Pushed);
        assert_eq!(notifier.take(), [2]);
        resize(1);
        assert_eq!(queue.len(), 3);
        for number in 0..3 {
            assert_eq!(queue.push(item(9), None), PushResult::Full(item(9)));
            assert_eq!(queue.pop(None), Some(item(number)));
        }
        assert_eq!(queue.push(item(9), None), PushResult::Pushed);
    }

    /// The threads sleep until they are notified, as workers do.
    #[test]
    fn each_value_reaches_one_consumer_and_no_waiter_is_lost() {
        const EACH: u64 = 5_000;
        let (queue, sum, taken) = (queue(3), AtomicU64::new(0), AtomicU64::new(0));
        let wait = |notifier: &Arc<Notifier>| {
            while !notifier.has_notified() {
                thread::park_timeout(std::time::Duration::from_secs(10));
            }
            drop(notifier.take());
        };
        let own = || {
            let (notifier, thread) = (Arc::new(Notifier::default()), thread::current());
            notifier.set_wake(move || thread.unpark());
            notifier
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let notifier = own();
                    for number in 0..EACH {
                        let mut next = item(number);
                        while let PushResult::Full(back) =
                            queue.push(next, waiter(number, &notifier))
                        {
                            wait(&notifier);
                            next = back;
                        }
                    }
                });
                scope.spawn(|| {
                    let notifier = own();
                    for number in 0..EACH {
                        let got = loop {
                            match queue.pop(waiter(number, &notifier)) {
                                Some(got) => break got,
                                None => wait(&notifier),
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
