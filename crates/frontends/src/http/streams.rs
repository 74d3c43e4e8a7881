//! Sessions without a WebSocket. Messages to the client are sent as parts of an endless response.
//! Messages from the client, if its protocol has any, arrive in separate requests.

use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{ResponseBody, ResponseHead, Status};
use veche_proto::websocket::{Decoder, Role};

use super::authentication::AuthStep;
use super::protocol::{
    OpenSession as _, OpenedSession, SessionIdentity, StreamFraming, StreamRequest, UpperLayer,
};
use super::{HttpNext, HttpStage, PendingRequest, State};
use crate::context::app::MaybeDeferred;
use crate::context::identity::{AuthError, Authenticated};
use crate::context::stats::{AcceptRejection, HandshakeOutcome};
use crate::context::step::{NextStep, WaitReason};
use crate::context::worker_context::Context;
use crate::http::upgrade::{RefusedUpgrade, close_refused};
use crate::outbox::MessageFraming;

impl<A: UpperLayer> HttpStage<A> {
    /// Authenticates a complete request for a session without a WebSocket.
    pub(super) fn authenticate_stream(
        &mut self,
        id: ConnectionId,
        kept: PendingRequest,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let head = kept.head();
        match kept
            .route
            .identity
            .name(&self.client(id, &head), &shared.identity_checks())
        {
            MaybeDeferred::Ready(named) => self.open_stream(id, &kept, named, shared),
            MaybeDeferred::Deferred => {
                self.state = State::Naming(AuthStep::Stream, Box::new(kept));
                NextStep::Wait(WaitReason::Answer)
            }
        }
    }

    /// Opens the session, after the request was authenticated.
    pub(super) fn open_stream(
        &mut self,
        id: ConnectionId,
        kept: &PendingRequest,
        named: Result<Authenticated, AuthError>,
        shared: &mut Context,
    ) -> HttpNext<A> {
        let head = kept.head();
        let (route, reply) = (&kept.route, self.reply(&head));
        let request = StreamRequest {
            head: &head,
            route,
            first: &kept.body,
        };
        let Some(begun) = A::Session::begin_stream(&request, id, shared) else {
            unreachable!("the session must accept a stream that its protocol has prepared")
        };
        let mut session = begun.session;
        let mut refusal = None;
        let named = match named {
            Ok(named) => named,
            Err(AuthError::NoToken) if session.may_authenticate_later() => Authenticated::default(),
            Err(unknown) => {
                refusal = session.close_instead_of_refusing(unknown);
                if refusal.is_none() {
                    let refused = RefusedUpgrade::auth_failed(unknown, &route.identity, shared);
                    return self.refuse_handshake(id, &reply, &refused, shared);
                }
                Authenticated::default()
            }
        };
        if let Some(user) = &named.user
            && !shared.add_user_session(id, user)
        {
            shared.stats.reject_accept(AcceptRejection::UserConnections);
            let why = "too many connections of this user";
            let mut refused =
                RefusedUpgrade::new(Status::TOO_MANY_REQUESTS, why, HandshakeOutcome::Rejected);
            refused.refusal = refused.refusal.with("Retry-After", "1");
            return self.refuse_handshake(id, &reply, &refused, shared);
        }
        let mut response = ResponseHead::to(&head, Status::OK, ResponseBody::Chunked);
        // The connection serves no further request: its input is ignored from now on.
        response.keep_alive = false;
        let is_chunked = response.body == ResponseBody::Chunked;
        let headers = begun.headers.iter().map(|(name, value)| (*name, &**value));
        let headers: Vec<_> = headers
            .chain([("Content-Type", begun.content_type)])
            .collect();
        let out = shared.requests.outboxes.buffer(id);
        if response.write(out, shared.date.text(), &headers).is_err() {
            unreachable!("the response may only contain valid headers")
        }
        shared.response_started(id, Status::OK.0);
        shared.stats.handshake(HandshakeOutcome::Opened);
        shared.stats.sessions.add(1);
        let carried = match begun.framing {
            StreamFraming::Lines => MessageFraming::Lines { is_chunked },
            StreamFraming::Bytes => MessageFraming::Bytes { is_chunked },
            StreamFraming::Events => MessageFraming::Events { is_chunked },
        };
        shared.requests.outboxes.begin_stream(id, carried);
        session.set_identity(SessionIdentity {
            user: named.user.as_deref().unwrap_or_default(),
            claims: named.claims,
            disconnects_seen: named.disconnects_seen,
            head: &head,
            route,
        });
        if let Some(refusal) = refusal {
            close_refused(id, refusal, shared);
        }
        NextStep::Become(OpenedSession {
            session,
            decoder: Decoder::new(Role::Server, None),
            route: Arc::clone(route),
            lease: named.lease,
            is_response: true,
            began: shared.now,
        })
    }
}
