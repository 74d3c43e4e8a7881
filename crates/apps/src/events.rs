//! Delivers channel and user events to the application that handles them, in order and in batches.
//!
//! The VM of each worker receives the events of the channels whose home is that worker. Producers of events never wait:
//! events that don't fit into the queue are dropped, and the application learns how many were.

use std::collections::VecDeque;

use veche_frontends::{AppId, Context};
use veche_hub::{ChannelEvent, EventFields};
use veche_runtime::{ChannelEventView, Event, EventKind, Runtime};

use super::app_hosts::AppHosts;

/// Maximum number of queued events on one worker.
const WAITING_MAX: usize = 65_536;

/// Maximum number of events passed to the application in one call.
const BATCH_MAX: usize = 500;

/// The queued events of a worker.
#[derive(Default)]
pub(super) struct EventQueue {
    queue: VecDeque<ChannelEvent>,
    lost: u64,
}

impl AppHosts {
    fn listener(&self) -> Option<AppId> {
        let receives = |app: &Option<super::app_hosts::RunningApp>| {
            let app = app.as_ref();
            app.is_some_and(|app| app.bundle.receives_events && app.exit.is_none())
        };
        let place = self.apps.iter().position(receives)?;
        Some(AppId(place as u16))
    }

    /// Queues events. `lost` is the number of events that were dropped before they reached this
    /// queue. Returns whether an application handles events; if not, the events are dropped.
    pub(super) fn queue_events(&mut self, events: &[ChannelEvent], lost: u64) -> bool {
        let Some(AppId(place)) = self.listener() else {
            return false;
        };
        let app = self.apps[usize::from(place)].as_ref();
        if !app.is_some_and(|app| app.runtime.handles(EventKind::Channels)) {
            // The events are dropped even if code that is loaded later would handle them.
            return false;
        }
        let room = WAITING_MAX - self.event_queue.queue.len();
        let taken = events.len().min(room);
        self.event_queue
            .queue
            .extend(events[..taken].iter().cloned());
        self.event_queue.lost += lost + (events.len() - taken) as u64;
        true
    }

    /// Returns whether [`deliver_events`](Self::deliver_events) can deliver or drop a batch now.
    pub(super) fn can_deliver_events(&self) -> bool {
        // If the limit of deferred publications is reached, publications of the event handler would be refused.
        if self.event_queue.queue.is_empty() || self.held.is_full() {
            return false;
        }
        match self.listener() {
            // No application handles events any more, so queued events are dropped.
            None => true,
            Some(AppId(place)) => {
                let app = self.apps[usize::from(place)].as_ref();
                app.is_some_and(|app| app.runtime.takes_channel_events())
            }
        }
    }

    /// Delivers the next batch of events, if any are queued and the application has finished the previous batch.
    pub(super) fn deliver_events(&mut self, shared: &mut Context) {
        if !self.can_deliver_events() {
            return;
        }
        let Some(listener) = self.listener() else {
            return self.event_queue = EventQueue::default();
        };
        let count = self.event_queue.queue.len().min(BATCH_MAX);
        let batch: Vec<ChannelEvent> = self.event_queue.queue.drain(..count).collect();
        let lost = std::mem::take(&mut self.event_queue.lost);
        let events: Vec<ChannelEventView<'_>> = batch.iter().map(event).collect();
        self.run(listener, None, shared, |app, now| {
            let events = &events;
            app.runtime
                .handle_event(Event::Channels { events, lost }, now);
        });
    }
}

fn event(event: &ChannelEvent) -> ChannelEventView<'_> {
    let EventFields {
        kind,
        channel,
        user,
        client,
        info,
    } = event.fields();
    ChannelEventView {
        kind,
        channel,
        user,
        client,
        info,
        at_ms: event.at_ms,
    }
}
