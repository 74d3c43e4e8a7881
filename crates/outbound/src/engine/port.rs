//! A client's end of an engine: orders go in, events come out, neither waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A client's end, for orders `O` and events `E`. The client bounds its orders: it knows what is unanswered.
#[derive(Debug)]
pub struct EnginePort<O, E> {
    orders: Vec<O>,
    task: UnboundedSender<Vec<O>>,
    events: Arc<Events<E>>,
}

/// The events that the client has yet to take.
pub(super) struct Events<E> {
    list: Mutex<Vec<E>>,
    /// The client was woken and has not taken them since.
    is_awake: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<O, E> EnginePort<O, E> {
    /// Returns the client's end and the carrier's.
    pub(super) fn new(
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Self, UnboundedReceiver<Vec<O>>, Arc<Events<E>>) {
        let (task, orders) = unbounded_channel();
        let events = Arc::new(Events {
            list: Mutex::default(),
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

    /// Hands the orders over; to be called once a turn.
    pub fn flush(&mut self) {
        if self.orders.is_empty() {
            return;
        }
        let next = Vec::with_capacity(self.orders.len());
        // The carrier ends with its process alone.
        let _ = self.task.send(std::mem::replace(&mut self.orders, next));
    }

    /// Returns whether there are events to [`take`](Self::take).
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.events.is_awake.load(Ordering::Acquire)
    }

    /// Takes all events, behind those that `into` has already.
    pub fn take(&mut self, into: &mut Vec<E>) {
        // Cleared before the look: a later event wakes again.
        if self.events.is_awake.swap(false, Ordering::AcqRel) {
            into.append(&mut self.events.list.lock());
        }
    }
}

impl<E> Events<E> {
    /// Adds events and wakes the client.
    pub(super) fn post(&self, events: &mut Vec<E>) {
        if events.is_empty() {
            return;
        }
        self.list.lock().append(events);
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
