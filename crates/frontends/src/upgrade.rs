//! From an upgrade request to an open session: who is it, from whose page, what may it hear.
//!
//! The 101 is written at once but held back until every home worker has registered the session: whoever sees `open`
//! gets the next push. Publications that come in between wait behind it in the outbox.

use std::sync::Arc;

use veche_hub::{ChannelName, SessionId, Ticket};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::{self, Decoder, handshake};

use crate::api::unauthorized;
use crate::identity::Unknown;
use crate::origin;
use crate::reply::Refusal;
use crate::route::{Handler, Route};
use crate::shared::Shared;
use crate::socket::{Session, Socket};
use crate::stats::Handshake;

/// Most channels that one handshake may ask for.
pub const CHANNELS_MAX: usize = 32;

/// A handshake that is refused.
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) outcome: Handshake,
}

/// A session whose registrations are under way.
pub(crate) struct Registration {
    socket: Socket,
    open: u32,
    /// Where in the outbox the 101 begins.
    written_at: usize,
}

/// Judges an upgrade request and begins to register its session. The 101 lies in the outbox, held back.
pub(crate) fn upgrade(
    id: SessionId,
    head: &Head<'_>,
    route: &Arc<Route>,
    shared: &mut Shared,
) -> Result<Registration, Refused> {
    let refused = |status, why: &str, outcome| Refused {
        refusal: Refusal::new(status, why),
        outcome,
    };
    let upgrade = handshake::read(head)
        .map_err(|error| match error.status {
            Status::UPGRADE_REQUIRED => upgrade_required(error.reason),
            _ => refused(error.status, error.reason, Handshake::Malformed),
        })?
        .ok_or_else(|| upgrade_required("this path speaks WebSocket"))?;
    if shared.is_draining() {
        return Err(refused(
            Status::SERVICE_UNAVAILABLE,
            "going away",
            Handshake::Malformed,
        ));
    }
    let host = Some(head.host).filter(|host| !host.is_empty());
    if !origin::accept(&route.origins, head.header("origin"), host) {
        return Err(refused(
            Status::FORBIDDEN,
            "pages of this origin may not connect",
            Handshake::ForeignOrigin,
        ));
    }
    let session = match route.handler {
        Handler::Push => Session::Push,
        Handler::Api if shared.site.authorizes(head) => Session::Backend(Box::default()),
        Handler::Api => {
            return Err(Refused {
                refusal: unauthorized(),
                outcome: Handshake::Unauthorized,
            });
        }
        _ => Session::Echo,
    };
    let mut channels = Vec::new();
    if matches!(session, Session::Push) {
        let user = route.identity.user(head).map_err(|unknown| {
            let status = match unknown {
                Unknown::Missing => Status::UNAUTHORIZED,
                Unknown::Malformed => Status::BAD_REQUEST,
            };
            refused(status, &unknown.to_string(), Handshake::Unidentified)
        })?;
        let has_user = user.is_some();
        channels.extend(user.map(|user| format!("#{user}")));
        for channel in head.query_all("channel") {
            if !route.allows_channel(&channel) || ChannelName::new(&channel).is_err() {
                let why = "this route does not allow that channel";
                return Err(refused(Status::FORBIDDEN, why, Handshake::ForbiddenChannel));
            }
            let channel = channel.into_owned();
            if !channels.contains(&channel) {
                channels.push(channel);
            }
            if channels.len() > CHANNELS_MAX + usize::from(has_user) {
                return Err(refused(
                    Status::BAD_REQUEST,
                    &format!("a handshake takes at most {CHANNELS_MAX} channels"),
                    Handshake::ForbiddenChannel,
                ));
            }
        }
    }

    let agreed = route
        .compression
        .as_ref()
        .and_then(|policy| websocket::deflate::negotiate(upgrade.extensions(), policy));
    let out = shared.ports.outboxes.buffer(id);
    let written_at = out.len();
    handshake::write_response(out, upgrade.key, None, agreed);
    shared
        .ports
        .outboxes
        .begin_session(id, agreed, matches!(session, Session::Push));
    let decoder = Decoder::new(websocket::Role::Server, agreed);
    let mut registration = Registration {
        socket: Socket::new(decoder, session, Arc::clone(route), shared.now),
        open: 0,
        written_at,
    };
    for (number, channel) in channels.iter().enumerate() {
        let Ok(name) = ChannelName::new(channel) else {
            unreachable!("checked above; users by their identity")
        };
        let answers = shared.ports.answers.len();
        if let Err(error) = shared
            .hub
            .subscribe(id, name, Ticket(number as u32), &mut shared.ports)
        {
            shared.hub.close(id, &mut shared.ports);
            registration.withdraw(id, shared);
            return Err(refused(
                Status::SERVICE_UNAVAILABLE,
                &error.to_string(),
                Handshake::Malformed,
            ));
        }
        // Answered within the call where the home is here.
        if shared.ports.answers.len() > answers {
            shared.ports.answers.truncate(answers);
        } else {
            registration.open += 1;
        }
    }
    Ok(registration)
}

/// RFC 6455, section 4.4: the answer names the version that is spoken.
fn upgrade_required(why: &str) -> Refused {
    let refusal = Refusal::new(Status::UPGRADE_REQUIRED, why)
        .with("Sec-WebSocket-Version", handshake::VERSION);
    Refused {
        refusal,
        outcome: Handshake::Malformed,
    }
}

impl Registration {
    /// Whether every home has answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// One home answered.
    pub(crate) fn answered(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Takes the 101 back, and what was published since.
    pub(crate) fn withdraw(&self, id: SessionId, shared: &mut Shared) {
        shared.ports.outboxes.withdraw(id, self.written_at);
    }

    /// Lets the 101 go: the session is open.
    pub(crate) fn open(self, id: SessionId, shared: &mut Shared) -> Socket {
        shared.stats.handshake(Handshake::Opened);
        shared.stats.answer(101);
        shared.stats.sessions.add(1);
        shared.ports.outboxes.release(id);
        self.socket
    }
}
