//! Publishes the developer notices of `veche dev`. One worker publishes them for the whole process.

use std::sync::Arc;

use veche_frontends::Context;
use veche_hub::PayloadKind;

use super::app_hosts::AppHosts;

/// The interval between publications of the notices, in milliseconds.
const EVERY_MS: u64 = 200;

/// The source of the notices for the developer's pages. Each notice is published repeatedly for a while, because
/// [`due`](Self::due) returns it repeatedly.
pub trait Notices: Send + Sync {
    /// Returns the channel of the developer's pages.
    fn channel(&self) -> &'static str;
    /// Returns the texts of the notices to publish now.
    fn due(&self) -> Vec<String>;
}

/// Publishes the notices at an interval of [`EVERY_MS`].
pub(super) struct NoticePublisher {
    notices: Arc<dyn Notices>,
    due_ms: u64,
}

impl NoticePublisher {
    /// Creates the publisher of one worker.
    pub(super) fn new(notices: Arc<dyn Notices>) -> Self {
        Self { notices, due_ms: 0 }
    }

    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms
    }
}

impl AppHosts {
    /// Publishes the current notices if the interval has passed.
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
