//! Under `veche dev`: notices for the developer's pages are published on their channel, by one worker for all.

use std::sync::Arc;

use veche_frontends::Context;
use veche_hub::PayloadKind;

use super::app_hosts::AppHosts;

/// Notices go out so often.
const EVERY_MS: u64 = 200;

/// Texts for the developer's pages, each to be published again and again for a while.
pub trait Notices: Send + Sync {
    /// Returns the channel that the pages listen on.
    fn channel(&self) -> &'static str;
    /// Returns the texts that are to be published now.
    fn due(&self) -> Vec<String>;
}

/// The notices, and when they are published next.
pub(super) struct NoticePublisher {
    notices: Arc<dyn Notices>,
    due_ms: u64,
}

impl NoticePublisher {
    /// For the worker that publishes them.
    pub(super) fn new(notices: Arc<dyn Notices>) -> Self {
        Self { notices, due_ms: 0 }
    }

    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms
    }
}

impl AppHosts {
    /// Publishes what the pages should know.
    pub(super) fn publish_notices(&mut self, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        let Some(own) = self.notices.as_mut().filter(|own| own.due_ms <= now_ms) else {
            return;
        };
        own.due_ms = now_ms + EVERY_MS;
        let channel = own.notices.channel();
        for notice in own.notices.due() {
            self.publish(
                channel.to_owned(),
                PayloadKind::Text,
                notice.as_bytes(),
                shared,
            );
        }
    }
}
