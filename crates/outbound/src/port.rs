//! A worker's port: submits calls and receives outcomes without blocking.
//!
//! All calls of a worker are driven by one task. Outcomes that are ready together are delivered
//! together, so a busy worker is woken once for many outcomes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable, Either};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use veche_calls::{Call, CallError, CallErrorKind, CallId, CallOutcome};

use crate::Outbound;
use crate::perform::{ClientCache, perform};
use crate::redis::RedisBatches;

/// The maximum number of concurrent calls of a worker; further calls are refused at once. This also bounds the queue of the
/// worker's task.
pub const CALLS_MAX: usize = 1 << 16;

/// A worker's access to outgoing calls: submits them, and receives their outcomes.
#[derive(Debug)]
pub struct Port {
    outbound: Outbound,
    /// Commands of this turn.
    orders: Vec<PortCommand>,
    /// Calls refused in this turn.
    refused: Vec<PortCommand>,
    /// The queue of the task that performs the calls; `None` before the first call. [`CALLS_MAX`] bounds its content.
    task: Option<UnboundedSender<Vec<PortCommand>>>,
    inbox: Arc<Inbox>,
}

#[derive(Debug)]
enum PortCommand {
    Perform(CallId, Call),
    Cancel(CallId),
}

/// Outcomes for the worker.
struct Inbox {
    /// The number of submitted calls without an outcome.
    open: AtomicUsize,
    done: Mutex<Vec<(CallId, CallOutcome)>>,
    /// Whether the worker was woken and has not taken the outcomes since.
    is_announced: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Port {
    pub(crate) fn new(outbound: Outbound, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        let inbox = Inbox {
            open: AtomicUsize::new(0),
            done: Mutex::default(),
            is_announced: AtomicBool::new(false),
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

    /// Submits a call, which starts with the next [`flush`](Self::flush). If [`CALLS_MAX`] calls are in progress, `flush`
    /// refuses it.
    pub fn submit(&mut self, id: CallId, call: Call) {
        // Only the port increases the number, so it can't grow between the check and the increment.
        let orders = match self.inbox.open.load(Ordering::Relaxed) < CALLS_MAX {
            true => &mut self.orders,
            false => &mut self.refused,
        };
        orders.push(PortCommand::Perform(id, call));
        self.inbox.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Cancels a call. An outcome may still arrive for it.
    pub fn cancel(&mut self, id: CallId) {
        self.orders.push(PortCommand::Cancel(id));
    }

    /// Sends the submitted calls to the task; has to be called once per turn.
    pub fn flush(&mut self) {
        if !self.refused.is_empty() {
            let words = format!("{CALLS_MAX} calls are already in progress");
            let refused = std::mem::take(&mut self.refused);
            let fault = CallError::new(CallErrorKind::PoolFull, words);
            self.inbox.refuse(refused, &fault);
        }
        if self.orders.is_empty() {
            return;
        }
        // The capacity is a guess: the next turn probably has a similar number of commands.
        let next = Vec::with_capacity(self.orders.len());
        let orders = std::mem::replace(&mut self.orders, next);
        if let Err(error) = self.hand_over(orders) {
            let words = format!("can't start threads for outgoing calls: {error}");
            let fault = CallError::new(CallErrorKind::Unreachable, words);
            self.inbox.refuse(error.orders, &fault);
        }
    }

    fn hand_over(&mut self, orders: Vec<PortCommand>) -> Result<(), PortClosed> {
        if self.task.is_none() {
            let runtime = match self.outbound.runtime() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let why = error.to_string();
                    return Err(PortClosed { orders, why });
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
        task.send(orders).map_err(|lost| PortClosed {
            orders: lost.0,
            why: "the threads for outgoing calls have ended".to_owned(),
        })
    }

    /// Returns whether outcomes can be [taken](Self::take).
    #[must_use]
    pub fn has_outcomes(&self) -> bool {
        self.inbox.is_announced.load(Ordering::Acquire)
    }

    /// Appends outcomes to `into`.
    pub fn take(&mut self, into: &mut Vec<(CallId, CallOutcome)>) {
        // The flag is cleared before the outcomes are taken, so that an outcome that arrives later wakes the worker again.
        if self.inbox.is_announced.swap(false, Ordering::AcqRel) {
            into.append(&mut self.inbox.done.lock());
        }
    }
}

/// The error of a closed port: the commands that could not be sent, and the reason.
struct PortClosed {
    orders: Vec<PortCommand>,
    why: String,
}

impl fmt::Display for PortClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Inbox {
    fn post(&self, outcomes: &mut Vec<(CallId, CallOutcome)>) {
        if outcomes.is_empty() {
            return;
        }
        self.done.lock().append(outcomes);
        if !self.is_announced.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    fn refuse(&self, orders: Vec<PortCommand>, fault: &CallError) {
        let calls = orders.into_iter().filter_map(|order| match order {
            PortCommand::Perform(id, _) => Some((id, Err(fault.clone()))),
            PortCommand::Cancel(_) => None,
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

/// The outcome of one call, or of several calls sent together.
enum CompletedCalls {
    One(CallId, CallOutcome),
    /// The call was cancelled.
    Cancelled(CallId),
    Many(Vec<(CallId, CallOutcome)>),
}

/// Performs a worker's calls until its port is dropped.
async fn serve(
    clients: Arc<ClientCache>,
    mut incoming: UnboundedReceiver<Vec<PortCommand>>,
    inbox: Arc<Inbox>,
) {
    let mut running = FuturesUnordered::new();
    let mut cancels: HashMap<CallId, AbortHandle> = HashMap::new();
    let mut done = Vec::new();
    let mut batches = RedisBatches::default();
    loop {
        tokio::select! {
            orders = incoming.recv() => {
                let Some(orders) = orders else { return };
                for order in orders {
                    let (id, call) = match order {
                        PortCommand::Perform(id, call) => (id, call),
                        PortCommand::Cancel(id) => {
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
                        Ok(outcome) => CompletedCalls::One(id, outcome),
                        Err(_) => CompletedCalls::Cancelled(id),
                    });
                    running.push(Either::Left(call));
                }
                for (keyspace, commands) in batches.drain() {
                    // A command in a batch can't be cancelled, since it was sent together with others.
                    let client = clients.redis(&keyspace);
                    let batch = async move { CompletedCalls::Many(client.perform_all(commands).await) };
                    running.push(Either::Right(batch));
                }
            }
            Some(first) = running.next(), if !running.is_empty() => {
                let (mut next, mut over) = (Some(first), 0);
                while let Some(one) = next {
                    match one {
                        CompletedCalls::One(id, outcome) => {
                            cancels.remove(&id);
                            done.push((id, outcome));
                            over += 1;
                        }
                        CompletedCalls::Cancelled(id) => {
                            cancels.remove(&id);
                            over += 1;
                        }
                        CompletedCalls::Many(mut outcomes) => {
                            over += outcomes.len();
                            done.append(&mut outcomes);
                        }
                    }
                    // All outcomes that are ready are delivered together.
                    next = running.next().now_or_never().flatten();
                }
                inbox.open.fetch_sub(over, Ordering::Relaxed);
                inbox.post(&mut done);
            }
        }
    }
}
