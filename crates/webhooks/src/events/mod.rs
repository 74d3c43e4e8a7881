//! Event webhooks: send channel and user events to a back end over HTTP. Batches are sent one at a
//! time and in order, and each is retried until the back end accepts or rejects it.
//!
//! Workers add the events of their hubs to one bounded queue of the process without waiting; a
//! separate thread sends the queued events.

mod delivery;
mod wire;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use parking_lot::{Condvar, Mutex};
use tracing::warn;
use veche_config as config;
use veche_frontends::stats::SharedCounter;
use veche_hub::ChannelEvent;
use veche_outbound::Outbound;

use self::delivery::{DeliveryError, send};

/// The target of this module's log lines.
const TARGET: &str = "veche::events";

/// The maximum number of events in one request.
const BATCH_MAX: usize = 500;

/// The delay before a failed batch is retried. It doubles with each failure, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The event webhooks of the process.
#[derive(Debug)]
pub struct EventDelivery {
    shared: Arc<DeliveryQueue>,
    outbound: Outbound,
}

/// The queue and its settings.
#[derive(Debug, Default)]
struct DeliveryQueue {
    state: Mutex<State>,
    /// Signals new events or changed settings.
    changed: Condvar,
    figures: EventMetrics,
}

#[derive(Debug, Default)]
struct State {
    options: Option<config::EventsConfig>,
    queue: VecDeque<ChannelEvent>,
    /// Number of lost events that the next batch reports. They were dropped because a queue was full, or belonged to a
    /// batch that the back end rejected.
    lost: u64,
    is_sending: bool,
    is_over: bool,
    node: Option<Node>,
}

/// The identity of this server in a cluster.
#[derive(Clone, Debug)]
struct Node {
    id: String,
    name: String,
}

/// Counters of event webhooks for `/metrics`.
#[derive(Debug, Default)]
pub struct EventMetrics {
    /// Events accepted by the back end.
    pub sent: SharedCounter,
    /// Events rejected by the back end.
    pub refused: SharedCounter,
    /// Events lost because a queue was full.
    pub lost: SharedCounter,
    /// Failed requests that were retried.
    pub failures: SharedCounter,
}

impl EventDelivery {
    /// Creates a sender without settings, which sends nothing.
    pub fn new(outbound: Outbound) -> Self {
        Self {
            shared: Arc::default(),
            outbound,
        }
    }

    /// Sets the id and the name of this node, for batches sent from now on.
    pub fn set_node(&self, id: String, name: String) {
        self.shared.state.lock().node = Some(Node { id, name });
    }

    /// Applies new settings. Events that are already queued are sent to the new receiver.
    pub fn reload(&self, options: Option<config::EventsConfig>) {
        let mut state = self.shared.state.lock();
        let is_wanted = options.is_some();
        state.options = options;
        if !is_wanted {
            state.queue.clear();
        }
        let begins = is_wanted && !state.is_sending;
        state.is_sending |= is_wanted;
        drop(state);
        self.shared.changed.notify_all();
        if begins {
            let (line, outbound) = (Arc::clone(&self.shared), self.outbound.clone());
            let sender = thread::Builder::new().name("events".to_owned());
            if let Err(error) = sender.spawn(move || line.send_all(&outbound)) {
                self.shared.state.lock().is_sending = false;
                warn!(target: TARGET, "can't start the thread for events: {error}");
            }
        }
    }

    /// Adds the events of a worker's hub. `lost` is the number of events that the hub has already
    /// lost.
    pub fn enqueue(&self, events: &mut Vec<ChannelEvent>, lost: u64) {
        let mut state = self.shared.state.lock();
        let Some(options) = &state.options else {
            return events.clear();
        };
        let room = (options.queue as usize).saturating_sub(state.queue.len());
        let over = events.len().saturating_sub(room) as u64;
        // If the queue is full, the newest events are dropped; the back end can still query the current state.
        state.queue.extend(events.drain(..).take(room));
        state.lost += lost + over;
        // The counter has only one writer, since the state is locked.
        self.shared.figures.lost.add(lost + over);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Returns the counters for `/metrics`.
    pub fn figures(&self) -> &EventMetrics {
        &self.shared.figures
    }

    /// Returns the number of queued events.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().queue.len()
    }
}

impl Drop for EventDelivery {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl DeliveryQueue {
    /// The main function of the sending thread.
    fn send_all(&self, outbound: &Outbound) {
        // The start time distinguishes the batches from those of a previous process, which have the same numbers.
        let began = SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default()
            .as_millis();
        let mut number = 0;
        while let Some((batch, lost)) = self.next(number == 0) {
            number += 1;
            let node = self.state.lock().node.clone();
            // The node's id distinguishes nodes that started at the same time.
            let source = node.as_ref().map(|node| format!("{}-", node.id));
            let delivery = wire::EventsBody {
                id: format!("{}{began:x}-{number}", source.unwrap_or_default()),
                node: node.as_ref().map(|node| &*node.name),
                is_first: number == 1,
                lost,
                events: &batch,
            };
            let body = delivery.to_json();
            self.deliver(&body, batch.len() as u64, lost, outbound);
        }
    }

    /// Waits for events to send; returns `None` once the sender has to stop. The first batch is sent immediately and
    /// may be empty: it reports that a process has started, so that the back end discards the state that an earlier
    /// process had reported before it was killed.
    fn next(&self, is_first: bool) -> Option<(Vec<ChannelEvent>, u64)> {
        let mut state = self.state.lock();
        while !state.is_over && (state.options.is_none() || (state.queue.is_empty() && !is_first)) {
            self.changed.wait(&mut state);
        }
        if state.is_over {
            return None;
        }
        let count = state.queue.len().min(BATCH_MAX);
        let batch = state.queue.drain(..count).collect();
        Some((batch, std::mem::take(&mut state.lost)))
    }

    /// Sends a batch of `count` events until it is accepted, rejected, or no longer wanted. `lost` is the number of
    /// lost events that `body` states.
    fn deliver(&self, body: &[u8], count: u64, lost: u64, outbound: &Outbound) {
        let mut pause = RETRY_MIN;
        let mut is_reported = false;
        loop {
            let options = self.state.lock().options.clone();
            let Some(options) = options else { return };
            match send(&options, body, outbound) {
                Ok(()) => return self.figures.sent.add(count),
                Err(DeliveryError::Refused(why)) => {
                    warn!(target: TARGET, "events: the back end rejected {count} events, which will not be sent again: {why}");
                    // The next batch reports these events as lost. It also repeats the losses that this batch stated,
                    // because the back end did not accept this batch.
                    self.state.lock().lost += lost + count;
                    return self.figures.refused.add(count);
                }
                Err(DeliveryError::Later(why)) => {
                    self.figures.failures.add(1);
                    if !is_reported {
                        warn!(target: TARGET, "events: {why}; the events will be sent again until the back end accepts them");
                    }
                    is_reported = true;
                }
            }
            let mut state = self.state.lock();
            if state.is_over {
                return;
            }
            // A reload may have changed the URL.
            if state.options.as_ref() == Some(&options) {
                self.changed_or(&mut state, &options, pause);
            }
            if state.is_over {
                return;
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Waits for a time, or until the settings change.
    fn changed_or(
        &self,
        state: &mut parking_lot::MutexGuard<'_, State>,
        options: &config::EventsConfig,
        pause: Duration,
    ) {
        let until = veche_clock::now() + pause;
        while !state.is_over && state.options.as_ref() == Some(options) {
            if self.changed.wait_until(state, until).timed_out() {
                return;
            }
        }
    }
}
