//! A socket whose session is an application's: frames in, calls out, and waiting.
//!
//! The loop is that of [`Socket::step`] with two differences: the application gets all of [`Shared`], so it and the
//! decoder's scratch are taken out of it, once for all that came; and before each frame there has to be room for it.

use veche_hub::ConnectionId;
use veche_proto::websocket::{Codecs, Event};
use veche_types::AppId;
use veche_types::codes::CloseCode;

use super::{Phase, Session, Side, Socket, cost};
use crate::context::app::Request;
use crate::context::apps::Apps;
use crate::context::pace::Paced;
use crate::context::shared::Shared;
use crate::context::step::{Block, Never, Step, Then};
use crate::context::work;
use crate::sessions::app::Pumped;

impl Socket {
    pub(super) fn app_step(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        shared: &mut Shared,
    ) -> Step<Never> {
        let mut codecs = shared.app_codecs.take().unwrap_or_default();
        let step = shared.with_apps(|apps, shared| {
            let mut taken = 0;
            let then = loop {
                if taken == input.len() {
                    break Then::NeedInput;
                }
                let input = &mut input[taken..];
                let step = self.app_frame(id, input, apps, &mut codecs, shared);
                taken += step.taken;
                match step.then {
                    Then::GoOn => {}
                    then => break then,
                }
            };
            Step { taken, then }
        });
        shared.app_codecs = Some(codecs);
        // Without applications nobody opened it.
        step.unwrap_or(Step {
            taken: input.len(),
            then: Then::End,
        })
    }

    /// One frame, or what there is of it.
    #[inline]
    fn app_frame(
        &mut self,
        id: ConnectionId,
        input: &mut [u8],
        apps: &mut dyn Apps,
        codecs: &mut Codecs,
        shared: &mut Shared,
    ) -> Step<Never> {
        let Session::App(app) = &mut self.session else {
            unreachable!("called for such sessions only")
        };
        if app.is_full() {
            return Step {
                taken: 0,
                then: Then::Wait(Block::App),
            };
        }
        let length = input.len();
        let (taken, event) = match self
            .decoder
            .decode(input, codecs, self.side.message_limits())
        {
            Ok(decoded) => decoded,
            Err(error) => {
                let step = self.broken(id, error, length, shared);
                self.app_over(apps, id, error.close_code(), &error.to_string(), shared);
                return step;
            }
        };
        let Some(event) = event else {
            return Step {
                taken,
                then: Then::NeedInput,
            };
        };
        shared.work.charge(work::COMMAND + cost(&event));
        let paced = self.paced(&event, shared.now);
        match event {
            _ if paced == Paced::Drop => shared.stats.messages_dropped.add(1),
            _ if paced == Paced::Close => {
                let (code, reason) = CloseCode::TooFast.parts();
                self.outpaced(id, shared);
                self.app_over(apps, id, code, reason, shared);
            }
            Event::Message { kind, data } => {
                shared.stats.messages_received.add(1);
                shared.stats.message_bytes_received.add(data.len() as u64);
                shared.ports.outboxes.journal.heard(id, data.len());
                self.messaged_ms = shared.now.mono_ms as u32;
                if self.phase == Phase::Open {
                    if shared.ports.is_kicked(id) {
                        self.carry_out_kick(apps, id, shared);
                    } else if let Session::App(app) = &mut self.session {
                        app.message(apps, id, kind, data, shared);
                    }
                }
            }
            Event::Ping(payload) => self.pong(id, payload, &mut shared.ports.outboxes),
            Event::Pong(_) => {}
            Event::Close { code, reason } => {
                self.answer_close(id, code, reason, shared);
                self.app_over(
                    apps,
                    id,
                    code.unwrap_or(CloseCode::NoCode.code()),
                    reason,
                    shared,
                );
                return Step {
                    taken,
                    then: Then::End,
                };
            }
        }
        let is_unread = match &self.session {
            Session::App(app) => app.is_unread(id, shared),
            _ => false,
        };
        let work = codecs.take_work() + shared.take_codec_work();
        shared.work.charge(work);
        let then = match is_unread {
            true => Then::Wait(Block::Output),
            false if paced == Paced::ThenWait => Then::Wait(Block::Pace),
            false if shared.work.is_spent() && taken < length => Then::Wait(Block::Turn),
            false => Then::GoOn,
        };
        Step { taken, then }
    }

    /// The application has asked to close this session: at once, so that its handler gets nothing that comes after.
    fn carry_out_kick(&mut self, apps: &mut dyn Apps, id: ConnectionId, shared: &mut Shared) {
        if let Some((code, reason)) = shared.ports.take_kick(id)
            && self.begin_close(id, code, &reason, shared)
        {
            self.app_over(apps, id, code, &reason, shared);
        }
    }

    /// The application that the session is for.
    pub(crate) fn app(&self) -> Option<AppId> {
        match &self.session {
            Session::App(app) => Some(app.id()),
            _ => None,
        }
    }

    /// The session is open: an application is told.
    pub(crate) fn opened(&mut self, id: ConnectionId, request: &Request<'_>, shared: &mut Shared) {
        if let Session::App(app) = &mut self.session {
            app.opened(id, request, shared);
        }
    }

    /// The handler that waited has ended; whether one did.
    pub(crate) fn app_ready(&mut self) -> bool {
        match &mut self.session {
            Session::App(app) => app.ready(),
            _ => false,
        }
    }

    /// There is room in the outbox again.
    pub(crate) fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Session::App(app) = &mut self.session {
            app.drained(id, shared);
        }
    }

    /// Goes on with the messages that were kept.
    pub(super) fn app_resume(&mut self, id: ConnectionId, shared: &mut Shared) -> Then<Never> {
        let pumped = shared.with_apps(|apps, shared| {
            let Session::App(app) = &mut self.session else {
                return Pumped::GoOn;
            };
            let pumped = app.pump(apps, id, shared);
            if pumped == Pumped::Kicked {
                self.carry_out_kick(apps, id, shared);
            }
            pumped
        });
        match pumped {
            Some(Pumped::Full) => Then::Wait(Block::App),
            Some(Pumped::Unread) => Then::Wait(Block::Output),
            Some(Pumped::GoOn | Pumped::Kicked) | None => Then::GoOn,
        }
    }

    /// Tells the application, if the session is one's or one wants to know, that it is over; for those who have not taken
    /// it out. The first time counts.
    pub(crate) fn over(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Shared) {
        match (&mut self.session, &self.side) {
            (Session::App(_), _) => {
                shared.with_apps(|apps, shared| self.app_over(apps, id, code, reason, shared));
            }
            (Session::Centrifuge(session), Side::Server(route)) => {
                session.over(id, (code, reason), route, shared);
            }
            _ => {}
        }
    }

    fn app_over(
        &mut self,
        apps: &mut dyn Apps,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Shared,
    ) {
        if let Session::App(app) = &mut self.session {
            if self.phase != Phase::Open {
                app.drop_kept();
            }
            app.over(apps, id, code, reason, shared);
        }
    }
}
