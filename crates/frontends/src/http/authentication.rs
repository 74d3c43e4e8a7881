//! Authentication of requests. The result is usually immediate; it is deferred if the back end or an issuer's keys
//! are needed.
//!
//! A handshake is checked against the protocol and the route's origins before it is authenticated.

use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{Framing, Head, HttpError};
use veche_types::AppId;

use super::app::PendingHandshake;
use super::body::BodyPurpose;
use super::protocol::UpperLayer;
use super::{HttpNext, HttpStage, PendingRequest, State};
use crate::context::app::MaybeDeferred;
use crate::context::identity::{AuthError, Authenticated, IdentityClient, IdentityResult};
use crate::context::route::Route;
use crate::context::step::{NextStep, WaitReason};
use crate::context::worker_context::Context;
use crate::http::upgrade::{PendingUpgrade, RefusedUpgrade, validate};

/// What happens with a request after its authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthStep {
    Upgrade,
    /// A plain request is passed to the application with this id.
    Request(AppId),
    /// A session is opened. It sends its messages as parts of the response.
    Stream,
}

impl<A: UpperLayer> HttpStage<A> {
    pub(super) fn client<'a>(&'a self, id: ConnectionId, head: &'a Head<'a>) -> IdentityClient<'a> {
        IdentityClient {
            id,
            head,
            certificate_names: self.certificate_names.as_deref(),
            address: self.client,
        }
    }

    /// Authenticates a validated handshake.
    pub(super) fn authenticate_upgrade(
        &mut self,
        id: ConnectionId,
        candidate: PendingUpgrade<'_, '_, A::Session>,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        if !candidate.needs_identity() {
            return self.continue_upgrade(id, candidate, Ok(Authenticated::default()), shared);
        }
        let identity = &candidate.route.identity;
        match identity.name(&self.client(id, candidate.head), &shared.identity_checks()) {
            MaybeDeferred::Ready(Err(AuthError::NoToken)) if candidate.may_be_named_later() => {
                self.continue_upgrade(id, candidate, Ok(Authenticated::default()), shared)
            }
            MaybeDeferred::Ready(named) => self.continue_upgrade(id, candidate, named, shared),
            MaybeDeferred::Deferred => {
                Ok(self.wait_for_identity(AuthStep::Upgrade, candidate.route, candidate.raw))
            }
        }
    }

    fn continue_upgrade(
        &mut self,
        id: ConnectionId,
        mut candidate: PendingUpgrade<'_, '_, A::Session>,
        named: Result<Authenticated, AuthError>,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        candidate.authenticated = match named {
            Ok(named) => named,
            Err(unknown) if candidate.refuse_for_good(unknown) => Authenticated::default(),
            Err(unknown) => {
                let refused =
                    RefusedUpgrade::auth_failed(unknown, &candidate.route.identity, shared);
                refused.note(id, shared);
                return self.refuse(id, candidate.head, refused.refusal, shared);
            }
        };
        Ok(match candidate.app() {
            Some(app) => self.ask_handshake(id, app, candidate, shared),
            None => {
                let user = candidate.authenticated.user.take();
                self.register(id, candidate, user, None, shared)
            }
        })
    }

    /// Authenticates a plain request to an application. If authentication fails, the request is passed on as anonymous,
    /// since the application may have a page for anonymous clients. It is refused only if the route requires a user for
    /// plain requests too.
    pub(super) fn authenticate_request(
        &mut self,
        id: ConnectionId,
        app: AppId,
        pending: &PendingHandshake<'_>,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        let identity = &pending.route.identity;
        match identity.name(&self.client(id, pending.head), &shared.identity_checks()) {
            MaybeDeferred::Ready(named) => self.continue_request(id, app, pending, named, shared),
            MaybeDeferred::Deferred => {
                Ok(self.wait_for_identity(AuthStep::Request(app), pending.route, pending.raw))
            }
        }
    }

    fn continue_request(
        &mut self,
        id: ConnectionId,
        app: AppId,
        pending: &PendingHandshake<'_>,
        named: Result<Authenticated, AuthError>,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        let identity = &pending.route.identity;
        let named = match named {
            Err(unknown) if identity.is_for_requests() => {
                let refused = RefusedUpgrade::auth_failed(unknown, identity, shared);
                return self.refuse(id, pending.head, refused.refusal, shared);
            }
            named => named.unwrap_or_default(),
        };
        match pending.head.framing {
            Framing::None | Framing::Sized(0) => {
                let user = named.user.as_deref();
                Ok(self.call_app(id, app, pending, user, b"", shared))
            }
            Framing::Sized(_) | Framing::Chunked => {
                let kept = PendingRequest::new(pending.route, pending.raw, named);
                self.read_body(id, pending.head, BodyPurpose::App(app, kept), shared)
            }
        }
    }

    fn wait_for_identity(
        &mut self,
        naming: AuthStep,
        route: &Arc<Route>,
        raw: &[u8],
    ) -> HttpNext<A> {
        let kept = PendingRequest::new(route, raw, Authenticated::default());
        self.state = State::Naming(naming, Box::new(kept));
        NextStep::Wait(WaitReason::Answer)
    }

    /// Handles an authentication result; returns `None` if no request waits for it.
    pub(crate) fn handle_identity(
        &mut self,
        id: ConnectionId,
        identity_result: IdentityResult,
        shared: &mut Context,
    ) -> Option<Result<HttpNext<A>, HttpError>> {
        let (naming, kept) = match std::mem::replace(&mut self.state, State::Head) {
            State::Naming(naming, kept) => (naming, kept),
            other => {
                self.state = other;
                return None;
            }
        };
        let head = kept.head();
        let route = &kept.route;
        let named = route.identity.finish_authentication(
            identity_result,
            &self.client(id, &head),
            &shared.identity_checks(),
        );
        Some(match naming {
            AuthStep::Stream => Ok(self.open_stream(id, &kept, named, shared)),
            AuthStep::Request(app) => {
                let pending = PendingHandshake {
                    route,
                    head: &head,
                    raw: &kept.head,
                };
                self.continue_request(id, app, &pending, named, shared)
            }
            // The handshake is validated again, since a shutdown may have begun in the meantime.
            AuthStep::Upgrade => {
                match validate(&head, &kept.head, route, self.is_tls(shared), shared) {
                    Ok(candidate) => self.continue_upgrade(id, candidate, named, shared),
                    Err(refused) => {
                        refused.note(id, shared);
                        self.refuse(id, &head, refused.refusal, shared)
                    }
                }
            }
        })
    }
}
