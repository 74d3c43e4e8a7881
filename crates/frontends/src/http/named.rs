//! Authentication of requests: immediate in most cases, deferred where the back end or an issuer's keys are needed.
//!
//! A handshake is checked against the protocol and the route's origins before it is authenticated.

use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{Framing, Head, HttpError};
use veche_types::AppId;

use super::app::Question;
use super::body::Purpose;
use super::protocol::Above;
use super::{Http, KeptRequest, Next, State};
use crate::context::app::Outcome;
use crate::context::identity::{Client, Finding, Named, Unknown};
use crate::context::route::Route;
use crate::context::shared::Shared;
use crate::context::step::{Block, Then};
use crate::http::upgrade::{Candidate, Refused, judge};

/// What continues after authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    Upgrade,
    /// A plain request to an application.
    Request(AppId),
    /// A session whose messages are parts of a response.
    Stream,
}

impl<A: Above> Http<A> {
    pub(super) fn client<'a>(&'a self, id: ConnectionId, head: &'a Head<'a>) -> Client<'a> {
        Client {
            id,
            head,
            certified: self.certified.as_deref(),
            address: self.client,
        }
    }

    /// Authenticates a validated handshake.
    pub(super) fn name_candidate(
        &mut self,
        id: ConnectionId,
        candidate: Candidate<'_, '_, A::Session>,
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        if !candidate.needs_name() {
            return self.named_candidate(id, candidate, Ok(Named::default()), shared);
        }
        let identity = &candidate.route.identity;
        match identity.name(&self.client(id, candidate.head), &shared.checks()) {
            Outcome::Now(Err(Unknown::NoToken)) if candidate.may_be_named_later() => {
                self.named_candidate(id, candidate, Ok(Named::default()), shared)
            }
            Outcome::Now(named) => self.named_candidate(id, candidate, named, shared),
            Outcome::Later => {
                Ok(self.wait_for_name(Naming::Upgrade, candidate.route, candidate.raw))
            }
        }
    }

    fn named_candidate(
        &mut self,
        id: ConnectionId,
        mut candidate: Candidate<'_, '_, A::Session>,
        named: Result<Named, Unknown>,
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        candidate.named = match named {
            Ok(named) => named,
            Err(unknown) if candidate.refuse_for_good(unknown) => Named::default(),
            Err(unknown) => {
                let refused = Refused::unknown(unknown, &candidate.route.identity, shared);
                refused.note(id, shared);
                return self.refuse(id, candidate.head, refused.refusal, shared);
            }
        };
        Ok(match candidate.app() {
            Some(app) => self.ask_verdict(id, app, candidate, shared),
            None => {
                let user = candidate.named.user.take();
                self.register(id, candidate, user, None, shared)
            }
        })
    }

    /// Authenticates a plain request to an application. Anonymous clients are admitted without a user, since the
    /// application may have a page for them, unless the route requires a user.
    pub(super) fn name_request(
        &mut self,
        id: ConnectionId,
        app: AppId,
        question: &Question<'_>,
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        let identity = &question.route.identity;
        match identity.name(&self.client(id, question.head), &shared.checks()) {
            Outcome::Now(named) => self.named_request(id, app, question, named, shared),
            Outcome::Later => {
                Ok(self.wait_for_name(Naming::Request(app), question.route, question.raw))
            }
        }
    }

    fn named_request(
        &mut self,
        id: ConnectionId,
        app: AppId,
        question: &Question<'_>,
        named: Result<Named, Unknown>,
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        let identity = &question.route.identity;
        let named = match named {
            Err(unknown) if identity.is_for_requests() => {
                let refused = Refused::unknown(unknown, identity, shared);
                return self.refuse(id, question.head, refused.refusal, shared);
            }
            named => named.unwrap_or_default(),
        };
        match question.head.framing {
            Framing::None | Framing::Sized(0) => {
                let user = named.user.as_deref();
                Ok(self.ask(id, app, question, user, b"", shared))
            }
            Framing::Sized(_) | Framing::Chunked => {
                let kept = KeptRequest::new(question.route, question.raw, named);
                self.read_body(id, question.head, Purpose::App(app, kept), shared)
            }
        }
    }

    fn wait_for_name(&mut self, naming: Naming, route: &Arc<Route>, raw: &[u8]) -> Next<A> {
        let kept = KeptRequest::new(route, raw, Named::default());
        self.state = State::Naming(naming, Box::new(kept));
        Then::Wait(Block::Answer)
    }

    /// Handles an authentication result; `None` if nothing waits for it.
    pub(crate) fn found(
        &mut self,
        id: ConnectionId,
        finding: Finding,
        shared: &mut Shared,
    ) -> Option<Result<Next<A>, HttpError>> {
        let (naming, kept) = match std::mem::replace(&mut self.state, State::Head) {
            State::Naming(naming, kept) => (naming, kept),
            other => {
                self.state = other;
                return None;
            }
        };
        let head = kept.head();
        let route = &kept.route;
        let named = route
            .identity
            .found(finding, &self.client(id, &head), &shared.checks());
        Some(match naming {
            Naming::Stream => Ok(self.open_stream(id, &kept, named, shared)),
            Naming::Request(app) => {
                let question = Question {
                    route,
                    head: &head,
                    raw: &kept.head,
                };
                self.named_request(id, app, &question, named, shared)
            }
            // Validated again: a drain may have begun.
            Naming::Upgrade => match judge(&head, &kept.head, route, self.is_tls(shared), shared) {
                Ok(candidate) => self.named_candidate(id, candidate, named, shared),
                Err(refused) => {
                    refused.note(id, shared);
                    self.refuse(id, &head, refused.refusal, shared)
                }
            },
        })
    }
}
