//! One session of an application: whose turn it is, and what was received while its handler waits.
//!
//! It knows neither frames nor what a message means. Messages go straight to the application; only behind a handler
//! that waits they are kept, and with room for them the socket still reads, so that pings are answered and a Close is
//! seen. A session whose handler does not wait holds no memory.

pub(crate) mod dialing;

use std::collections::VecDeque;

use veche_hub::{Answer, ConnectionId, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::AppId;

use crate::context::app::{KEPT_BYTES_HIGH, KEPT_MESSAGES_MAX, Request};
use crate::context::apps::{Apps, Progress};
use crate::context::shared::Shared;
use crate::outbox::ANSWERS_BYTES_HIGH;

/// See the module's text.
pub(crate) struct App {
    app: AppId,
    state: State,
    /// A connection to another server. It is read from even while that server does not read: both ends would wait for
    /// each other. What is sent to it is limited where it is sent.
    is_client: bool,
    /// `None` while there is nothing in it.
    kept: Option<Box<Kept>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No handler runs.
    Free,
    /// A handler waits.
    Busy,
    /// The application was told of the end.
    Over,
}

#[derive(Default)]
struct Kept {
    messages: VecDeque<(MessageKind, Vec<u8>)>,
    bytes: usize,
}

/// How far the kept messages got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Input may go on.
    GoOn,
    /// There is no room for more.
    Full,
    /// The client has to read first.
    Unread,
    /// The application asked to close this session.
    Kicked,
}

impl From<Progress> for State {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Done => Self::Free,
            Progress::Waits => Self::Busy,
        }
    }
}

impl App {
    /// A session that is about to open.
    pub(crate) fn new(app: AppId) -> Self {
        Self {
            app,
            state: State::Free,
            is_client: false,
            kept: None,
        }
    }

    /// A connection of the application's own that has just opened.
    pub(crate) fn of_client(app: AppId) -> Self {
        Self {
            is_client: true,
            ..Self::new(app)
        }
    }

    /// Whether the peer has to read before more of what it says is worked on.
    pub(crate) fn is_unread(&self, id: ConnectionId, shared: &Shared) -> bool {
        !self.is_client && shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH
    }

    /// Its application.
    pub(crate) fn id(&self) -> AppId {
        self.app
    }

    /// The session is open.
    pub(crate) fn opened(&mut self, id: ConnectionId, request: &Request<'_>, shared: &mut Shared) {
        let app = self.app;
        if let Some(progress) =
            shared.with_apps(|apps, shared| apps.opened(app, id, request, shared))
        {
            self.state = progress.into();
        }
    }

    /// Hands a message over, or keeps it behind a handler that waits.
    #[inline]
    pub(crate) fn message(
        &mut self,
        apps: &mut dyn Apps,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Shared,
    ) {
        if self.state == State::Free && self.kept.is_none() {
            self.state = apps.message(self.app, id, kind, data, shared).into();
        } else if self.state != State::Over {
            let kept = self.kept.get_or_insert_default();
            kept.bytes += data.len();
            kept.messages.push_back((kind, data.to_vec()));
        }
    }

    /// Whether so much is kept that no further message should be read.
    pub(crate) fn is_full(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| {
            kept.messages.len() >= KEPT_MESSAGES_MAX || kept.bytes >= KEPT_BYTES_HIGH
        })
    }

    /// The handler that waited has ended; whether there was one.
    pub(crate) fn ready(&mut self) -> bool {
        let was_busy = self.state == State::Busy;
        if was_busy {
            self.state = State::Free;
        }
        was_busy
    }

    /// Hands over what was kept, as far as no handler waits and the client reads.
    pub(crate) fn pump(
        &mut self,
        apps: &mut dyn Apps,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Pumped {
        while self.state == State::Free
            && let Some(kept) = &mut self.kept
        {
            if shared.ports.is_kicked(id) {
                return Pumped::Kicked;
            }
            if !self.is_client && shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
                return Pumped::Unread;
            }
            let Some((kind, data)) = kept.messages.pop_front() else {
                self.kept = None;
                break;
            };
            kept.bytes -= data.len();
            self.state = apps.message(self.app, id, kind, &data, shared).into();
        }
        if self
            .kept
            .as_ref()
            .is_some_and(|kept| kept.messages.is_empty())
        {
            self.kept = None;
        }
        if self.is_full() {
            Pumped::Full
        } else {
            Pumped::GoOn
        }
    }

    /// There is room in the outbox again.
    pub(crate) fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        if self.state != State::Over {
            let app = self.app;
            shared.with_apps(|apps, shared| apps.drained(app, id, shared));
        }
    }

    /// The hub answered.
    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) {
        if self.state != State::Over {
            let app = self.app;
            shared.with_apps(|apps, shared| apps.answered(app, id, ticket, answer, shared));
        }
    }

    /// The session ends by our will: what is kept is dropped.
    pub(crate) fn drop_kept(&mut self) {
        self.kept = None;
    }

    /// The session is over; what the peer had sent before comes first. Only the first call of it counts.
    pub(crate) fn over(
        &mut self,
        apps: &mut dyn Apps,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Shared,
    ) {
        if self.state == State::Over {
            return;
        }
        self.state = State::Over;
        shared.ports.outboxes.refuse_pushes(id);
        for (kind, data) in self
            .kept
            .take()
            .map(|kept| kept.messages)
            .unwrap_or_default()
        {
            apps.message(self.app, id, kind, &data, shared);
        }
        apps.closed(self.app, id, code, reason, shared);
    }
}
