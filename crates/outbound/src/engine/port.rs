//! A client's end of an engine: takes orders and returns events, without blocking.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Limit of queued feed items in bytes. Beyond it items are dropped, and the client learns which
/// feeds lack items.
const BYTES_MAX: usize = 64 << 20;

/// The overhead of a queued event in addition to its data, in bytes.
const EVENT_BYTES: usize = 128;

/// A client's end of an engine, for orders `O` and events `E`. The client has to limit its unanswered orders; the queue itself
/// is unbounded.
#[derive(Debug)]
pub struct EnginePort<O, E> {
    orders: Vec<O>,
    task: UnboundedSender<Vec<O>>,
    events: Arc<Events<E>>,
}

/// The events that the client has not taken yet.
pub(super) struct Events<E> {
    arrived: Mutex<Arrived<E>>,
    /// Whether the client was woken and has not taken events since.
    is_awake: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

struct Arrived<E> {
    list: Vec<E>,
    bytes: usize,
    /// The event that reports dropped items to the client, for each feed with dropped items.
    missed: HashMap<Vec<u8>, E>,
}

impl<O, E> EnginePort<O, E> {
    /// Creates a port. Returns the client's end, and what the engine's task needs: the queue of orders, and the events.
    pub(super) fn new(
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Self, UnboundedReceiver<Vec<O>>, Arc<Events<E>>) {
        let (task, orders) = unbounded_channel();
        let events = Arc::new(Events {
            arrived: Mutex::new(Arrived {
                list: Vec::new(),
                bytes: 0,
                missed: HashMap::new(),
            }),
            is_awake: AtomicBool::new(false),
            wake: Box::new(wake),
        });
        let port = Self {
            orders: Vec::new(),
            task,
            events: Arc::clone(&events),
        };
        (port, orders, events)
    }

    /// Adds an order for the next [`flush`](Self::flush).
    pub fn push(&mut self, order: O) {
        self.orders.push(order);
    }

    /// Moves all orders of the list to the next [`flush`](Self::flush).
    pub fn append(&mut self, orders: &mut Vec<O>) {
        self.orders.append(orders);
    }

    /// Submits the orders; must be called once per turn.
    pub fn flush(&mut self) {
        if self.orders.is_empty() {
            return;
        }
        let next = Vec::with_capacity(self.orders.len());
        // Sending fails only if the engine's task has ended, which happens at the end of the process.
        let _ = self.task.send(std::mem::replace(&mut self.orders, next));
    }

    /// Returns whether there are events to [`take`](Self::take).
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.events.is_awake.load(Ordering::Relaxed)
    }

    /// Takes all events and appends them to `into`.
    pub fn take(&mut self, into: &mut Vec<E>) {
        // The flag is cleared before the events are taken, so that an event that arrives later wakes the client again.
        if self.events.is_awake.swap(false, Ordering::AcqRel) {
            let arrived = &mut *self.events.arrived.lock();
            arrived.bytes = 0;
            into.append(&mut arrived.list);
            into.extend(arrived.missed.drain().map(|(_, event)| event));
        }
    }
}

impl<E> Events<E> {
    /// Adds events and wakes the client.
    pub(super) fn post(&self, events: &mut Vec<E>) {
        if !events.is_empty() {
            self.arrived.lock().list.append(events);
            self.wake();
        }
    }

    /// Adds an event and wakes the client.
    pub(super) fn push(&self, event: E) {
        self.arrived.lock().list.push(event);
        self.wake();
    }

    /// Adds an item of a feed, if the queue has room. Otherwise the item is dropped, and the client is notified that the feed
    /// lacks items. Returns whether the item was added.
    pub(super) fn push_item(
        &self,
        event: E,
        bytes: usize,
        missed: impl FnOnce() -> (Vec<u8>, E),
    ) -> bool {
        let arrived = &mut *self.arrived.lock();
        let has_room = arrived.bytes < BYTES_MAX;
        if has_room {
            arrived.bytes += bytes + EVENT_BYTES;
            arrived.list.push(event);
        } else {
            let (feed, event) = missed();
            arrived.missed.insert(feed, event);
        }
        self.wake();
        has_room
    }

    fn wake(&self) {
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }
}

impl<E> fmt::Debug for Events<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_learns_how_many_messages_were_dropped() {
        let (mut port, _orders, events) = EnginePort::<(), u32>::new(|| {});
        let add = |number| events.push_item(number, BYTES_MAX / 2, || (b"feed".to_vec(), 1_000));
        assert!(add(1) && add(2));
        assert!(!add(3) && !add(4));
        let mut taken = Vec::new();
        port.take(&mut taken);
        assert_eq!(taken, [1, 2, 1_000]);
        assert!(add(5));
        port.take(&mut taken);
        assert_eq!(taken, [1, 2, 1_000, 5]);
    }
}
