//! Dispatch of requests: finds the route, then calls its handler, upgrades the connection, or
//! refuses the request.

use std::path::Path;
use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{Framing, Head, HttpError, Method, Status};

use super::app::PendingHandshake;
use super::body::BodyPurpose;
use super::call::ApiCall as _;
use super::protocol::{OpenSession as _, ProtocolRequest, RequestPlan, UpperLayer};
use super::{HttpNext, HttpStage, PendingRequest, admin_page, exposition};
use crate::context::credential_kind::CredentialKind;
use crate::context::frontend_config::{FrontendListener, ListenerRole};
use crate::context::identity::Authenticated;
use crate::context::route::{Route, RouteHandler, RouteMatch};
use crate::context::stats::{AcceptRejection, HandshakeOutcome};
use crate::context::step::NextStep;
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::http::reply::Refusal;
use crate::http::static_files::FileLocation;
use crate::http::stream;
use crate::http::upgrade::validate;
use crate::http::wrong_key;
use crate::outbox::access_log_buffer::AccessLogEntry;

impl<A: UpperLayer> HttpStage<A> {
    pub(super) fn request(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        raw: &[u8],
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        let site = Arc::clone(&shared.config);
        let listener = &site.listeners[self.listener as usize];
        let checked = self.check_access(head, listener, shared);
        self.begin_entry(id, head, raw.len(), listener, shared);
        if let Err(refusal) = checked {
            return self.refuse(id, head, refusal, shared);
        }
        let (route, below) = match site.listeners[self.listener as usize]
            .router
            .find(&head.method, &head.path)
        {
            RouteMatch::Route { index, below } => (&site.routes[index as usize], below),
            RouteMatch::MethodNotAllowed => {
                let allow = site.listeners[self.listener as usize]
                    .router
                    .allowed(&head.path);
                let refusal = Refusal::new(Status::METHOD_NOT_ALLOWED, "method not allowed");
                return self.refuse(id, head, refusal.with("Allow", allow), shared);
            }
            RouteMatch::NotFound => {
                if head.header_bytes("upgrade").is_some() {
                    shared.stats.handshake(HandshakeOutcome::NotFound);
                }
                return self.refuse(
                    id,
                    head,
                    Refusal::new(Status::NOT_FOUND, "not found"),
                    shared,
                );
            }
        };
        shared
            .requests
            .outboxes
            .access_log
            .set_route(id, &route.path);
        self.headers.clone_from(&route.headers);
        if !route.networks.admit(self.client) {
            shared.stats.reject_accept(AcceptRejection::Network);
            return self.refuse(id, head, refuse_network(), shared);
        }
        if let RouteHandler::Session(_) = route.handler {
            return self.session(id, head, raw, route, shared);
        }
        if head.header_bytes("upgrade").is_some() && accepts_socket(route, head, below) {
            return self.upgrade(id, head, raw, route, shared);
        }
        match &route.handler {
            RouteHandler::Api => {
                let call = match A::Call::begin(head, below, self.client, id, shared) {
                    Ok(call) => call,
                    Err(refusal) => return self.refuse(id, head, refusal, shared),
                };
                self.read_body(id, head, BodyPurpose::Call(Box::new(call)), shared)
            }
            RouteHandler::App { app, .. } => {
                if let Err(refusal) = self.check_memory(shared) {
                    return self.refuse(id, head, refusal, shared);
                }
                let pending = PendingHandshake { route, head, raw };
                self.authenticate_request(id, *app, &pending, shared)
            }
            RouteHandler::Health => {
                let (status, text) = match shared.process.is_ready() && !shared.is_draining() {
                    true => (Status::OK, "ok\n"),
                    false => (Status::SERVICE_UNAVAILABLE, "not ready\n"),
                };
                self.answer(id, head, shared, move |reply, id, shared| {
                    reply.write(
                        id,
                        status,
                        "text/plain; charset=utf-8",
                        text.as_bytes(),
                        shared,
                    );
                })
            }
            RouteHandler::Metrics => {
                let is_open_metrics = exposition::accepts_open_metrics(head);
                self.answer(id, head, shared, move |reply, id, shared| {
                    let text = shared.process.metrics();
                    let (kind, text) = match is_open_metrics {
                        true => (exposition::OPEN_METRICS, text),
                        false => (exposition::PROMETHEUS, exposition::to_prometheus(&text)),
                    };
                    reply.write(id, Status::OK, kind, text.as_bytes(), shared);
                })
            }
            RouteHandler::Static { root, variants } => {
                let place = FileLocation {
                    root,
                    relative: below,
                    variants,
                };
                self.file(id, head, place, &[], shared)
            }
            RouteHandler::Admin => match below.trim_start_matches('/').strip_prefix("api/") {
                Some(name) => {
                    let is_tls = self.is_tls(shared);
                    match A::Call::begin_admin(head, name, is_tls, self.client, id, shared) {
                        Ok(call) => {
                            self.read_body(id, head, BodyPurpose::Call(Box::new(call)), shared)
                        }
                        Err(refusal) => self.refuse(id, head, refusal, shared),
                    }
                }
                None => {
                    let place = FileLocation {
                        root: Path::new(admin_page::ROOT),
                        relative: below,
                        variants: &[],
                    };
                    self.file(id, head, place, admin_page::HEADERS, shared)
                }
            },
            RouteHandler::Session(_) => unreachable!("handled above"),
        }
    }

    /// Handles a request on the route of a client protocol.
    fn session(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        raw: &[u8],
        route: &Arc<Route>,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        let asked = ProtocolRequest {
            head,
            route,
            is_tls: self.is_tls(shared),
            may_open: &|shared| self.check_upgrade_limits(shared),
        };
        match A::Session::plan(&asked, shared) {
            RequestPlan::Upgrade => self.upgrade(id, head, raw, route, shared),
            RequestPlan::Refuse(refusal) => self.refuse(id, head, refusal, shared),
            RequestPlan::Reply(answer) => {
                self.answer(id, head, shared, move |reply, id, shared| {
                    answer.write(&reply, id, shared);
                })
            }
            RequestPlan::Answer(answer_to) => {
                self.read_body(id, head, BodyPurpose::Answer(answer_to), shared)
            }
            RequestPlan::Stream(first) => {
                let mut kept = PendingRequest::new(route, raw, Authenticated::default());
                match first {
                    None => self.read_body(id, head, BodyPurpose::Stream(kept), shared),
                    Some(first) => {
                        kept.body = first;
                        Ok(self.authenticate_stream(id, kept, shared))
                    }
                }
            }
        }
    }

    /// Answers with a file below the root of a route.
    fn file(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        place: FileLocation<'_>,
        headers: &[(&str, &str)],
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        if head.framing == Framing::None {
            shared.work.charge(work_budget::FILE);
            let reply = self.reply(head);
            let stream = stream::answer(id, head, place, (&reply, headers), shared);
            return Ok(self.stream(id, reply.keep_alive, stream, shared));
        }
        let refusal = match head.method {
            Method::Get | Method::Head => Refusal::new(
                Status::BAD_REQUEST,
                "a request for a file can't have a body",
            ),
            _ => Refusal::new(Status::METHOD_NOT_ALLOWED, "files allow only GET and HEAD")
                .with("Allow", "GET, HEAD"),
        };
        self.refuse(id, head, refusal, shared)
    }

    fn begin_entry(
        &self,
        id: ConnectionId,
        head: &Head<'_>,
        length: usize,
        listener: &FrontendListener,
        shared: &mut Context,
    ) {
        let is_internal = listener.role != ListenerRole::Public;
        let outboxes = &mut shared.requests.outboxes;
        let queued = outboxes.of(id).buffered();
        outboxes.access_log.begin(id, is_internal, queued, || {
            AccessLogEntry::of(head, length, self.client)
        });
    }

    /// Determines the client's address and checks its access.
    fn check_access(
        &mut self,
        head: &Head<'_>,
        listener: &FrontendListener,
        shared: &Context,
    ) -> Result<(), Refusal> {
        self.client = listener.access.client(self.peer, head).map_err(|_| {
            shared.stats.reject_accept(AcceptRejection::Network);
            let why = "the proxy's header about the client is malformed";
            Refusal::new(Status::BAD_REQUEST, why)
        })?;
        // The peer's network was checked at accept. This check is needed because a reload may have
        // changed the rules, and because behind a proxy it is the client's network that counts.
        if !listener.access.networks.admit(self.client) {
            shared.stats.reject_accept(AcceptRejection::Network);
            return Err(refuse_network());
        }
        if !listener.access.answers_to(self.peer, head.host) {
            shared.stats.reject_accept(AcceptRejection::Host);
            let why = "unknown host name: see hosts of [[listen]]";
            return Err(Refusal::new(Status::MISDIRECTED_REQUEST, why));
        }
        Ok(())
    }

    /// Refuses new work for a client while the server is short of memory.
    fn check_memory(&self, shared: &Context) -> Result<(), Refusal> {
        let role = shared.config.listeners[self.listener as usize].role;
        if role != ListenerRole::Public || !shared.is_short_of_memory {
            return Ok(());
        }
        shared.stats.reject_accept(AcceptRejection::Memory);
        let why = "the server is short of memory: try again later";
        Err(Refusal::new(Status::SERVICE_UNAVAILABLE, why).with("Retry-After", "1"))
    }

    /// Returns whether the listener uses TLS.
    pub(super) fn is_tls(&self, shared: &Context) -> bool {
        shared.config.listeners[self.listener as usize].is_tls
    }

    /// Checks the limits on connections and handshakes of the client's address.
    pub(super) fn check_upgrade_limits(&self, shared: &Context) -> Result<(), Refusal> {
        self.check_memory(shared)?;
        let listener = &shared.config.listeners[self.listener as usize];
        let is_proxied = self.client != self.peer;
        // These limits do not apply to back ends, which share an address, nor to clients behind a proxy that does not
        // report their addresses.
        if listener.role != ListenerRole::Public || !is_proxied && listener.access.trusts(self.peer)
        {
            return Ok(());
        }
        let why = if is_proxied && !shared.process.address_has_capacity(self.client) {
            AcceptRejection::Connections
        } else if (is_proxied || self.requests > 1)
            && !shared
                .process
                .may_begin_handshake(self.client, shared.now.mono_ms)
        {
            // The first handshake of a direct connection was already counted at accept.
            AcceptRejection::Rate
        } else {
            return Ok(());
        };
        shared.stats.reject_accept(why);
        let why = match why {
            AcceptRejection::Connections => "too many connections of this address",
            _ => "too many handshakes of this address",
        };
        Err(Refusal::new(Status::TOO_MANY_REQUESTS, why).with("Retry-After", "1"))
    }

    /// Refuses a request. The connection is kept alive if the request's body is small enough to be discarded.
    pub(super) fn refuse(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        refusal: Refusal,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        if refusal.ends {
            let mut reply = self.reply(head);
            reply.keep_alive = false;
            refusal.write(&reply, id, shared);
            return Ok(NextStep::End);
        }
        self.answer(id, head, shared, move |reply, id, shared| {
            refusal.write(&reply, id, shared)
        })
    }

    fn upgrade(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        raw: &[u8],
        route: &Arc<Route>,
        shared: &mut Context,
    ) -> Result<HttpNext<A>, HttpError> {
        if let Err(refusal) = self.check_upgrade_limits(shared) {
            return self.refuse(id, head, refusal, shared);
        }
        match validate::<A::Session>(head, raw, route, self.is_tls(shared), shared) {
            Ok(candidate) => self.authenticate_upgrade(id, candidate, shared),
            Err(mut refused) => {
                if refused.outcome == HandshakeOutcome::Unauthorized {
                    let (lock, client) = (CredentialKind::Api, self.client);
                    refused.refusal = wrong_key::refuse_wrong_key(head, lock, client, id, shared);
                }
                // The request is possibly not a handshake and possibly has a body, so it is refused
                // like a plain request.
                refused.note(id, shared);
                self.refuse(id, head, refused.refusal, shared)
            }
        }
    }
}

fn refuse_network() -> Refusal {
    Refusal::new(
        Status::FORBIDDEN,
        "connections from this address are not allowed",
    )
}

/// Returns whether an upgrade on this route, with this remainder of the path, opens a WebSocket.
fn accepts_socket(route: &Route, head: &Head<'_>, below: &str) -> bool {
    match route.handler {
        RouteHandler::Api => below.trim_end_matches('/') == "/socket",
        // Other upgrades, such as curl's upgrade to HTTP/2, may be ignored (RFC 9110 section 7.8).
        RouteHandler::App { .. } => head.header_has_token("upgrade", "websocket"),
        _ => route.handler.takes_websocket(),
    }
}
