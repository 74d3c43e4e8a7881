//! A session of an application: runs its handlers one at a time, and queues messages while one is suspended.
//!
//! It knows neither frames nor the meaning of messages. Messages are passed directly to the application; only behind a
//! suspended handler are they queued, and while there is room the socket is still read, so that pings are answered and
//! a Close is noticed. A session without a suspended handler holds no memory.

pub(crate) mod dialing;

use std::collections::VecDeque;
use std::sync::Arc;

use veche_hub::{Answer, ConnectionId, Deed, Instruction, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::AppId;

use crate::context::app::{KEPT_BYTES_HIGH, KEPT_MESSAGES_MAX, Request};
use crate::context::apps::{Apps, Progress};
use crate::context::census::About;
use crate::context::route::Route;
use crate::context::session::{Context, Flow, Session};
use crate::context::shared::Shared;
use crate::context::step::Block;
use crate::context::work;
use crate::http::protocol::{Begun, Opening, Wanted};
use crate::http::upgrade::Refused;
use crate::outbox::ANSWERS_BYTES_HIGH;
use crate::outbox::hears::Hears;

/// A session of an application.
pub(crate) struct App {
    app: AppId,
    state: State,
    /// An outbound connection. It is read even while the server does not read, since both ends would otherwise wait for
    /// each other. Output to it is limited at the sender.
    is_client: bool,
    /// `None` if empty.
    kept: Option<Box<Kept>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No handler is running.
    Free,
    /// A handler is suspended.
    Busy,
    /// The end was reported to the application.
    Over,
}

#[derive(Default)]
struct Kept {
    messages: VecDeque<(MessageKind, Vec<u8>)>,
    bytes: usize,
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
    /// Creates the session of a client.
    pub(crate) fn new(app: AppId) -> Self {
        Self {
            app,
            state: State::Free,
            is_client: false,
            kept: None,
        }
    }

    /// Creates the session of an outbound connection.
    pub(crate) fn of_client(app: AppId) -> Self {
        Self {
            is_client: true,
            ..Self::new(app)
        }
    }

    /// Passes queued messages while no handler is suspended and the client reads.
    fn pump(&mut self, apps: &mut dyn Apps, id: ConnectionId, shared: &mut Shared) -> Flow {
        while self.state == State::Free
            && let Some(kept) = &mut self.kept
        {
            if shared.ports.is_kicked(id) {
                return take_kick(id, shared);
            }
            if !self.is_client && shared.ports.outboxes.of(id).queued() > ANSWERS_BYTES_HIGH {
                return Flow::Wait(Block::Output);
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
        self.is_full().map_or(Flow::GoOn, Flow::Wait)
    }

    fn end(
        &mut self,
        apps: &mut dyn Apps,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Shared,
    ) {
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

/// Closes the session if its application requested it: immediately, so that its handlers get nothing more.
fn take_kick(id: ConnectionId, shared: &mut Shared) -> Flow {
    match shared.ports.take_kick(id) {
        Some((code, reason)) => Flow::Close(code, reason.into()),
        None => Flow::GoOn,
    }
}

impl Opening for App {
    fn begin(wanted: &Wanted<'_, '_, '_>, _: &Shared) -> Result<Begun<Self>, Refused> {
        match wanted.route.handler.app() {
            Some(app) => Ok(Begun::of(Self::new(app))),
            None => unreachable!("its route leads to an application"),
        }
    }

    fn has_user(&self) -> bool {
        true
    }

    fn hears(&self, route: &Route) -> Hears {
        route.hears()
    }

    fn hears_opened(&self) -> bool {
        true
    }

    fn opened(&mut self, id: ConnectionId, request: &Request<'_>, shared: &mut Shared) {
        let app = self.app;
        if let Some(progress) =
            shared.with_apps(|apps, shared| apps.opened(app, id, request, shared))
        {
            self.state = progress.into();
        }
    }
}

impl Session for App {
    fn about(&self) -> About<'_> {
        About::of("lua")
    }

    fn is_full(&self) -> Option<Block> {
        let kept = self.kept.as_ref()?;
        let is_full = kept.messages.len() >= KEPT_MESSAGES_MAX || kept.bytes >= KEPT_BYTES_HIGH;
        is_full.then_some(Block::App)
    }

    /// Passes a message on, or queues it behind a suspended handler.
    #[inline]
    fn message(&mut self, kind: MessageKind, data: &[u8], cx: &mut Context<'_>) -> Flow {
        let (app, id) = (self.app, cx.id);
        cx.shared.work.charge(work::COMMAND);
        if cx.shared.ports.is_kicked(id) {
            return take_kick(id, cx.shared);
        }
        if self.state == State::Free && self.kept.is_none() {
            let progress = cx
                .shared
                .with_apps(|apps, shared| apps.message(app, id, kind, data, shared));
            // Without applications no session is opened.
            if let Some(progress) = progress {
                self.state = progress.into();
            }
        } else if self.state != State::Over {
            let kept = self.kept.get_or_insert_default();
            kept.bytes += data.len();
            kept.messages.push_back((kind, data.to_vec()));
        }
        Flow::GoOn
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Flow {
        let id = cx.id;
        let flow = cx
            .shared
            .with_apps(|apps, shared| self.pump(apps, id, shared));
        flow.unwrap_or(Flow::GoOn)
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer, cx: &mut Context<'_>) -> Option<Flow> {
        if self.state != State::Over {
            let (app, id) = (self.app, cx.id);
            cx.shared
                .with_apps(|apps, shared| apps.answered(app, id, ticket, answer, shared));
        }
        None
    }

    fn instructed(&mut self, instruction: &Arc<Instruction>, cx: &mut Context<'_>) -> Flow {
        match &instruction.deed {
            Deed::Subscribe(wanted) => {
                // Applications have tickets of their own, and this is none of them.
                cx.shared.enroll(cx.id, wanted, Ticket(u32::MAX));
            }
            Deed::Unsubscribe { channel } => {
                cx.shared.dismiss(cx.id, channel);
            }
            Deed::Disconnect { .. } | Deed::Refresh { .. } => {}
        }
        Flow::GoOn
    }

    fn hears_faults(&self) -> bool {
        true
    }

    /// If the peer ended the session, its earlier messages come first.
    fn over(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        if !cx.is_open {
            // The server closes it: queued input is dropped.
            self.kept = None;
        }
        if self.state != State::Over {
            let id = cx.id;
            cx.shared
                .with_apps(|apps, shared| self.end(apps, id, code, reason, shared));
        }
    }

    fn app_ready(&mut self) -> bool {
        let was_busy = self.state == State::Busy;
        if was_busy {
            self.state = State::Free;
        }
        was_busy
    }

    fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        if self.state != State::Over {
            let app = self.app;
            shared.with_apps(|apps, shared| apps.drained(app, id, shared));
        }
    }
}
