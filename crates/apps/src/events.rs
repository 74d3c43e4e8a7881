//! Delivers channel and user events to the application that handles them, in order and in batches.
//!
//! The VM of each worker receives events of the channels whose home is that worker. Producers never wait: events that
//! don't fit into the queue are lost, and the application receives their number.

use std::collections::VecDeque;

use veche_frontends::{AppId, Context};
use veche_hub::{ChannelEvent, EventFields};
use veche_runtime::{ChannelEventView, Event, EventKind, Runtime};

use super::app_hosts::AppHosts;

/// The most queued events of one worker.
const WAITING_MAX: usize = 65_536;

/// The most events passed in one call.
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

    /// Queues events; returns whether an application handles them.
    pub(super) fn queue_events(&mut self, events: &[ChannelEvent], lost: u64) -> bool {
        let Some(AppId(place)) = self.listener() else {
            return false;
        };
        let app = self.apps[usize::from(place)].as_ref();
        if !app.is_some_and(|app| app.runtime.handles(EventKind::Channels)) {
            // Code loaded later does not receive earlier events.
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

    /// Returns whether a batch can be delivered.
    pub(super) fn can_deliver_events(&self) -> bool {
        // The handler's publications could not be accepted.
        if self.event_queue.queue.is_empty() || self.held.is_full() {
            return false;
        }
        match self.listener() {
            // Events without a handler are dropped.
            None => true,
            Some(AppId(place)) => {
                let app = self.apps[usize::from(place)].as_ref();
                app.is_some_and(|app| app.runtime.takes_channel_events())
            }
        }
    }

    /// Delivers a batch, if one is queued and the application has finished the previous one.
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
