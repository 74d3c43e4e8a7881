//! A worker's port: submits calls and receives outcomes without blocking.
//!
//! All calls of a worker are driven by one task. Outcomes that are ready together are delivered together, so a busy
//! worker is woken once for many.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable, Either};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use veche_calls::{Call, CallId, Fault, FaultKind, Outcome};

use crate::Outbound;
use crate::perform::{Clients, perform};
use crate::redis::Batches;

/// The most concurrent calls of a worker; each further one is refused at once. It also bounds the task's queue.
pub const CALLS_MAX: usize = 1 << 16;

/// A worker's port.
#[derive(Debug)]
pub struct Port {
    outbound: Outbound,
    /// Commands of this turn.
    orders: Vec<Order>,
    /// Calls refused in this turn.
    refused: Vec<Order>,
    /// `None` before the first call; [`CALLS_MAX`] bounds its content.
    task: Option<UnboundedSender<Vec<Order>>>,
    inbox: Arc<Inbox>,
}

#[derive(Debug)]
enum Order {
    Perform(CallId, Call),
    Cancel(CallId),
}

/// Outcomes for the worker.
struct Inbox {
    /// The number of submitted calls without an outcome.
    open: AtomicUsize,
    done: Mutex<Vec<(CallId, Outcome)>>,
    /// The worker was woken and has not looked since.
    is_told: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Port {
    pub(crate) fn new(outbound: Outbound, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        let inbox = Inbox {
            open: AtomicUsize::new(0),
            done: Mutex::default(),
            is_told: AtomicBool::new(false),
            wake,
        };
        Self {
            outbound,
            orders: Vec::new(),
            refused: Vec::new(),
            task: None,
            inbox: Arc::new(inbox),
        }
    }

    /// Submits a call, which starts with the next [`flush`](Self::flush); with [`CALLS_MAX`] in progress it is refused
    /// there.
    pub fn submit(&mut self, id: CallId, call: Call) {
        // Only this end increases the number.
        let orders = match self.inbox.open.load(Ordering::Relaxed) < CALLS_MAX {
            true => &mut self.orders,
            false => &mut self.refused,
        };
        orders.push(Order::Perform(id, call));
        self.inbox.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Cancels a call. Its outcome may arrive all the same.
    pub fn cancel(&mut self, id: CallId) {
        self.orders.push(Order::Cancel(id));
    }

    /// Sends submitted calls; has to be called once a turn.
    pub fn flush(&mut self) {
        if !self.refused.is_empty() {
            let words = format!("{CALLS_MAX} calls are under way already");
            let refused = std::mem::take(&mut self.refused);
            let fault = Fault::new(FaultKind::PoolFull, words);
            self.inbox.refuse(refused, &fault);
        }
        if self.orders.is_empty() {
            return;
        }
        // The next turn has a similar number.
        let next = Vec::with_capacity(self.orders.len());
        let orders = std::mem::replace(&mut self.orders, next);
        if let Err(error) = self.hand_over(orders) {
            let words = format!("no threads for calls to the outside: {error}");
            let fault = Fault::new(FaultKind::Unreachable, words);
            self.inbox.refuse(error.orders, &fault);
        }
    }

    fn hand_over(&mut self, orders: Vec<Order>) -> Result<(), NotTaken> {
        if self.task.is_none() {
            let runtime = match self.outbound.runtime() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let why = error.to_string();
                    return Err(NotTaken { orders, why });
                }
            };
            let (task, incoming) = unbounded_channel();
            let clients = Arc::clone(&self.outbound.0.clients);
            runtime.spawn(serve(clients, incoming, Arc::clone(&self.inbox)));
            self.task = Some(task);
        }
        let Some(task) = &self.task else {
            return Ok(());
        };
        task.send(orders).map_err(|lost| NotTaken {
            orders: lost.0,
            why: "the runtime has ended".to_owned(),
        })
    }

    /// Returns whether outcomes can be [taken](Self::take).
    #[must_use]
    pub fn has_outcomes(&self) -> bool {
        self.inbox.is_told.load(Ordering::Acquire)
    }

    /// Appends outcomes to `into`.
    pub fn take(&mut self, into: &mut Vec<(CallId, Outcome)>) {
        // Cleared first, so that a later outcome wakes again.
        if self.inbox.is_told.swap(false, Ordering::AcqRel) {
            into.append(&mut self.inbox.done.lock());
        }
    }
}

/// Commands whose task is gone.
struct NotTaken {
    orders: Vec<Order>,
    why: String,
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Inbox {
    fn post(&self, outcomes: &mut Vec<(CallId, Outcome)>) {
        if outcomes.is_empty() {
            return;
        }
        self.done.lock().append(outcomes);
        if !self.is_told.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    fn refuse(&self, orders: Vec<Order>, fault: &Fault) {
        let calls = orders.into_iter().filter_map(|order| match order {
            Order::Perform(id, _) => Some((id, Err(fault.clone()))),
            Order::Cancel(_) => None,
        });
        let mut calls: Vec<_> = calls.collect();
        self.open.fetch_sub(calls.len(), Ordering::Relaxed);
        self.post(&mut calls);
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// The outcome of one call, or of those sent together.
enum Done {
    One(CallId, Outcome),
    /// The call was cancelled.
    Cancelled(CallId),
    Many(Vec<(CallId, Outcome)>),
}

/// Performs a worker's calls until its port is dropped.
async fn serve(
    clients: Arc<Clients>,
    mut incoming: UnboundedReceiver<Vec<Order>>,
    inbox: Arc<Inbox>,
) {
    let mut running = FuturesUnordered::new();
    let mut cancels: HashMap<CallId, AbortHandle> = HashMap::new();
    let mut done = Vec::new();
    let mut batches = Batches::default();
    loop {
        tokio::select! {
            orders = incoming.recv() => {
                let Some(orders) = orders else { return };
                for order in orders {
                    let (id, call) = match order {
                        Order::Perform(id, call) => (id, call),
                        Order::Cancel(id) => {
                            if let Some(cancel) = cancels.get(&id) {
                                cancel.abort();
                            }
                            continue;
                        }
                    };
                    let call = match call {
                        Call::Redis(redis) => match batches.take(id, redis) {
                            Ok(()) => continue,
                            Err(redis) => Call::Redis(redis),
                        },
                        call => call,
                    };
                    let (cancel, registration) = AbortHandle::new_pair();
                    cancels.insert(id, cancel);
                    let clients = Arc::clone(&clients);
                    let call = async move { perform(&clients, call).await };
                    let call = Abortable::new(call, registration);
                    let call = call.map(move |outcome| match outcome {
                        Ok(outcome) => Done::One(id, outcome),
                        Err(_) => Done::Cancelled(id),
                    });
                    running.push(Either::Left(call));
                }
                for (keyspace, commands) in batches.drain() {
                    // Not worth cancelling: it was sent together with others.
                    let client = clients.redis(&keyspace);
                    let batch = async move { Done::Many(client.perform_all(commands).await) };
                    running.push(Either::Right(batch));
                }
            }
            Some(first) = running.next(), if !running.is_empty() => {
                let (mut next, mut over) = (Some(first), 0);
                while let Some(one) = next {
                    match one {
                        Done::One(id, outcome) => {
                            cancels.remove(&id);
                            done.push((id, outcome));
                            over += 1;
                        }
                        Done::Cancelled(id) => {
                            cancels.remove(&id);
                            over += 1;
                        }
                        Done::Many(mut outcomes) => {
                            over += outcomes.len();
                            done.append(&mut outcomes);
                        }
                    }
                    // Other ready outcomes are delivered along with it.
                    next = running.next().now_or_never().flatten();
                }
                inbox.open.fetch_sub(over, Ordering::Relaxed);
                inbox.post(&mut done);
            }
        }
    }
}
