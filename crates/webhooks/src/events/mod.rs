//! What happens to channels and users, told to a back end: batches over HTTP, one at a time and in order, each again and
//! again until it is taken.
//!
//! Workers leave what their hubs have noted in one queue of the process, which has a bound; a thread of its own sends it.
//! Nothing is ever waited for by a worker.

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

/// The most that one request carries.
const BATCH_MAX: usize = 500;

/// How long to wait before what failed is tried again: twice as long each time, up to the second one.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// See the module's text.
#[derive(Debug)]
pub struct EventDelivery {
    shared: Arc<DeliveryQueue>,
    outbound: Outbound,
}

/// What waits, and who is told.
#[derive(Debug, Default)]
struct DeliveryQueue {
    state: Mutex<State>,
    /// Something came, or something else is wanted.
    changed: Condvar,
    figures: EventMetrics,
}

#[derive(Debug, Default)]
struct State {
    options: Option<config::EventsConfig>,
    queue: VecDeque<ChannelEvent>,
    /// For lack of room, since the last batch that was taken.
    lost: u64,
    is_sending: bool,
    is_over: bool,
}

/// For the metrics.
#[derive(Debug, Default)]
pub struct EventMetrics {
    /// Events that a back end has taken.
    pub sent: SharedCounter,
    /// Those that it has refused.
    pub refused: SharedCounter,
    /// Those for which there was no room.
    pub lost: SharedCounter,
    /// Requests that have failed and were tried again.
    pub failures: SharedCounter,
}

impl EventDelivery {
    /// Sends nothing before it is told where to.
    pub fn new(outbound: Outbound) -> Self {
        Self {
            shared: Arc::default(),
            outbound,
        }
    }

    /// Whoever is told from now on; what waits waits for him.
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
                warn!(target: TARGET, "events can't be sent: {error}");
            }
        }
    }

    /// What the hub of a worker has noted, and how much of it was lost already.
    pub fn enqueue(&self, happenings: &mut Vec<ChannelEvent>, lost: u64) {
        let mut state = self.shared.state.lock();
        let Some(options) = &state.options else {
            return happenings.clear();
        };
        let room = (options.queue as usize).saturating_sub(state.queue.len());
        let over = happenings.len().saturating_sub(room) as u64;
        // Those that came first are kept: what follows from them can be asked for.
        state.queue.extend(happenings.drain(..).take(room));
        state.lost += lost + over;
        // One writer at a time: the state is locked.
        self.shared.figures.lost.add(lost + over);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// For the metrics.
    pub fn figures(&self) -> &EventMetrics {
        &self.shared.figures
    }

    /// Events that wait.
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
    /// The sender's whole life.
    fn send_all(&self, outbound: &Outbound) {
        // Told apart from those of a process before, whose numbers began at the same place.
        let began = SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default()
            .as_millis();
        let mut number = 0;
        while let Some((batch, lost)) = self.next(number == 0) {
            number += 1;
            let delivery = wire::Delivery {
                id: format!("{began:x}-{number}"),
                is_first: number == 1,
                lost,
                events: &batch,
            };
            let body = delivery.to_json();
            self.deliver(&body, batch.len() as u64, outbound);
        }
    }

    /// Waits for events to send; returns `None` at the end. The first batch is not waited for, and may be empty: it says
    /// that a process has started, so that what the back end knows of one that was killed is void at once.
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

    /// Sends a batch until it is taken, refused, or wanted by nobody.
    fn deliver(&self, body: &[u8], count: u64, outbound: &Outbound) {
        let mut pause = RETRY_MIN;
        let mut is_told = false;
        loop {
            let options = self.state.lock().options.clone();
            let Some(options) = options else { return };
            match send(&options, body, outbound) {
                Ok(()) => return self.figures.sent.add(count),
                Err(DeliveryError::Refused(why)) => {
                    warn!(target: TARGET, "events: {count} are refused and will not be sent again: {why}");
                    // So that whoever takes the next ones knows.
                    self.state.lock().lost += count;
                    return self.figures.refused.add(count);
                }
                Err(DeliveryError::Later(why)) => {
                    self.figures.failures.add(1);
                    if !is_told {
                        warn!(target: TARGET, "events: {why}; they are sent again until they are taken");
                    }
                    is_told = true;
                }
            }
            let mut state = self.state.lock();
            if state.is_over {
                return;
            }
            // A reload may know a better place.
            if state.options.as_ref() == Some(&options) {
                self.changed_or(&mut state, &options, pause);
            }
            if state.is_over {
                return;
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Waits for that long, or until somebody else is to be told; what comes meanwhile only waits as well.
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
