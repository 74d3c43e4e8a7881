//! Delivers channel and user events to the application that handles them, in order and in batches.
//!
//! The VM of each worker receives events of the channels whose home is that worker. Producers never wait: events that
//! don't fit into the queue are lost, and the application receives their number.

use std::collections::VecDeque;

use veche_frontends::{AppId, Shared};
use veche_hub::{About, Happening};
use veche_runtime::{ChannelEvent, Event, EventKind, Runtime};

use super::here::Here;

/// The most queued events of one worker.
const WAITING_MAX: usize = 65_536;

/// The most events passed in one call.
const BATCH_MAX: usize = 500;

/// The queued events of a worker.
#[derive(Default)]
pub(super) struct Heard {
    queue: VecDeque<Happening>,
    lost: u64,
}

impl Here {
    fn listener(&self) -> Option<AppId> {
        let hears = |app: &Option<super::here::Application>| {
            let app = app.as_ref();
            app.is_some_and(|app| app.volume.hears_events && app.exit.is_none())
        };
        let place = self.apps.iter().position(hears)?;
        Some(AppId(place as u16))
    }

    /// Queues events; returns whether an application handles them.
    pub(super) fn queue_events(&mut self, happenings: &[Happening], lost: u64) -> bool {
        let Some(AppId(place)) = self.listener() else {
            return false;
        };
        let app = self.apps[usize::from(place)].as_ref();
        if !app.is_some_and(|app| app.runtime.handles(EventKind::Channels)) {
            // Code loaded later does not receive earlier events.
            return false;
        }
        let room = WAITING_MAX - self.heard.queue.len();
        let taken = happenings.len().min(room);
        self.heard.queue.extend(happenings[..taken].iter().cloned());
        self.heard.lost += lost + (happenings.len() - taken) as u64;
        true
    }

    /// Returns whether a batch can be delivered.
    pub(super) fn has_events_to_tell(&self) -> bool {
        // The handler's publications could not be accepted.
        if self.heard.queue.is_empty() || self.held.is_full() {
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
    pub(super) fn tell_events(&mut self, shared: &mut Shared) {
        if !self.has_events_to_tell() {
            return;
        }
        let Some(listener) = self.listener() else {
            return self.heard = Heard::default();
        };
        let count = self.heard.queue.len().min(BATCH_MAX);
        let batch: Vec<Happening> = self.heard.queue.drain(..count).collect();
        let lost = std::mem::take(&mut self.heard.lost);
        let events: Vec<ChannelEvent<'_>> = batch.iter().map(event).collect();
        self.run(listener, None, shared, |app, now| {
            let events = &events;
            app.runtime
                .handle_event(Event::Channels { events, lost }, now);
        });
    }
}

fn event(happening: &Happening) -> ChannelEvent<'_> {
    let About {
        kind,
        channel,
        user,
        client,
        info,
    } = happening.about();
    ChannelEvent {
        kind,
        channel,
        user,
        client,
        info,
        at_ms: happening.at_ms,
    }
}
