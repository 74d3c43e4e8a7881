//! Sessions without a WebSocket: messages to the client are parts of an endless response; those from the client, if
//! any, arrive in other requests.

use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{ResponseBody, ResponseHead, Status};
use veche_proto::websocket::{Decoder, Role};

use super::named::Naming;
use super::protocol::{Above, Framing, Identified, Opened, Opening as _, StreamRequest};
use super::{Http, KeptRequest, Next, State};
use crate::context::app::Outcome;
use crate::context::identity::{Named, Unknown};
use crate::context::shared::Shared;
use crate::context::stats::{Handshake, TurnedAway};
use crate::context::step::{Block, Then};
use crate::http::upgrade::{Refused, tell_refused};
use crate::outbox::Carried;

impl<A: Above> Http<A> {
    /// Authenticates a complete request.
    pub(super) fn name_stream(
        &mut self,
        id: ConnectionId,
        kept: KeptRequest,
        shared: &mut Shared,
    ) -> Next<A> {
        let head = kept.head();
        match kept
            .route
            .identity
            .name(&self.client(id, &head), &shared.checks())
        {
            Outcome::Now(named) => self.open_stream(id, &kept, named, shared),
            Outcome::Later => {
                self.state = State::Naming(Naming::Stream, Box::new(kept));
                Then::Wait(Block::Answer)
            }
        }
    }

    /// Opens the session after authentication by the request.
    pub(super) fn open_stream(
        &mut self,
        id: ConnectionId,
        kept: &KeptRequest,
        named: Result<Named, Unknown>,
        shared: &mut Shared,
    ) -> Next<A> {
        let head = kept.head();
        let (route, reply) = (&kept.route, self.reply(&head));
        let request = StreamRequest {
            head: &head,
            route,
            first: &kept.body,
        };
        let Some(begun) = A::Session::begin_stream(&request, id, shared) else {
            unreachable!("the protocol has planned it")
        };
        let mut session = begun.session;
        let mut refusal = None;
        let named = match named {
            Ok(named) => named,
            Err(Unknown::NoToken) if session.may_be_named_later() => Named::default(),
            Err(unknown) => {
                refusal = session.refuse_for_good(unknown);
                if refusal.is_none() {
                    let refused = Refused::unknown(unknown, &route.identity, shared);
                    return self.refuse_handshake(id, &reply, &refused, shared);
                }
                Named::default()
            }
        };
        if let Some(user) = &named.user
            && !shared.count_user_in(id, user)
        {
            shared.stats.turn_away(TurnedAway::UserConnections);
            let why = "too many connections of this user";
            let mut refused = Refused::new(Status::TOO_MANY_REQUESTS, why, Handshake::TurnedAway);
            refused.refusal = refused.refusal.with("Retry-After", "1");
            return self.refuse_handshake(id, &reply, &refused, shared);
        }
        let mut response = ResponseHead::to(&head, Status::OK, ResponseBody::Chunked);
        // Further input of the connection is ignored.
        response.keep_alive = false;
        let is_chunked = response.body == ResponseBody::Chunked;
        let headers = begun.headers.iter().map(|(name, value)| (*name, &**value));
        let headers: Vec<_> = headers
            .chain([("Content-Type", begun.content_type)])
            .collect();
        let out = shared.ports.outboxes.buffer(id);
        if response.write(out, shared.date.text(), &headers).is_err() {
            unreachable!("the protocol's own headers, and an origin that was read as one")
        }
        shared.answered(id, Status::OK.0);
        shared.stats.handshake(Handshake::Opened);
        shared.stats.sessions.add(1);
        let carried = match begun.framing {
            Framing::Lines => Carried::Lines { is_chunked },
            Framing::Bytes => Carried::Bytes { is_chunked },
            Framing::Events => Carried::Events { is_chunked },
        };
        shared.ports.outboxes.begin_carrying(id, carried);
        session.identified(Identified {
            user: named.user.as_deref().unwrap_or_default(),
            claims: named.claims,
            asked: named.asked,
            head: &head,
            route,
        });
        if let Some(refusal) = refusal {
            tell_refused(id, refusal, shared);
        }
        Then::Become(Opened {
            session,
            decoder: Decoder::new(Role::Server, None),
            route: Arc::clone(route),
            lease: named.lease,
            is_response: true,
            began: shared.now,
        })
    }
}
