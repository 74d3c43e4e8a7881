//! Under `veche dev`: notices for the developer's pages are published on their channel, by one worker for all.

use std::sync::Arc;

use veche_frontends::Shared;
use veche_hub::PayloadKind;

use super::here::Here;
use crate::dev::{CHANNEL, Dev};

/// Notices go out so often.
const EVERY_MS: u64 = 200;

/// The notices, and when they are published next.
pub(super) struct Notices {
    dev: Arc<Dev>,
    due_ms: u64,
}

impl Notices {
    /// For the worker that publishes them.
    pub(super) fn new(dev: Arc<Dev>) -> Self {
        Self { dev, due_ms: 0 }
    }

    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms
    }
}

impl Here {
    /// Publishes what the pages should know.
    pub(super) fn tell_developer(&mut self, shared: &mut Shared) {
        let now_ms = shared.now.mono_ms;
        let Some(notices) = self.notices.as_mut().filter(|own| own.due_ms <= now_ms) else {
            return;
        };
        notices.due_ms = now_ms + EVERY_MS;
        for notice in notices.dev.due() {
            self.publish(
                CHANNEL.to_owned(),
                PayloadKind::Text,
                notice.as_bytes(),
                shared,
            );
        }
    }
}
