//! Dispatch of a request: its route, then a handler, an upgrade or a refusal.

use std::path::Path;
use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::{Framing, Head, HttpError, Method, Status};

use super::app::Question;
use super::body::Purpose;
use super::call::ApiCall as _;
use super::protocol::{Above, Asked, Opening as _, Plan};
use super::{Http, KeptRequest, Next, admin_page, exposition};
use crate::context::guessing::Lock;
use crate::context::identity::Named;
use crate::context::route::{Found, Handler, Route};
use crate::context::shared::Shared;
use crate::context::site::{Listener, Role};
use crate::context::stats::{Handshake, TurnedAway};
use crate::context::step::Then;
use crate::context::work;
use crate::http::guessing;
use crate::http::reply::Refusal;
use crate::http::static_files::Place;
use crate::http::stream;
use crate::http::upgrade::judge;
use crate::outbox::journal::Entry;

impl<A: Above> Http<A> {
    pub(super) fn request(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        raw: &[u8],
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        let site = Arc::clone(&shared.site);
        let listener = &site.listeners[self.listener as usize];
        let door = self.door(head, listener, shared);
        self.begin_entry(id, head, raw.len(), listener, shared);
        if let Err(refusal) = door {
            return self.refuse(id, head, refusal, shared);
        }
        let (route, below) = match site.listeners[self.listener as usize]
            .router
            .find(&head.method, &head.path)
        {
            Found::Route { index, below } => (&site.routes[index as usize], below),
            Found::MethodNotAllowed => {
                let allow = site.listeners[self.listener as usize]
                    .router
                    .allowed(&head.path);
                let refusal =
                    Refusal::new(Status::METHOD_NOT_ALLOWED, "this path takes other methods");
                return self.refuse(id, head, refusal.with("Allow", allow), shared);
            }
            Found::Nothing => {
                if head.header_bytes("upgrade").is_some() {
                    shared.stats.handshake(Handshake::NotFound);
                }
                return self.refuse(
                    id,
                    head,
                    Refusal::new(Status::NOT_FOUND, "not found"),
                    shared,
                );
            }
        };
        shared.ports.outboxes.journal.set_route(id, &route.path);
        self.headers.clone_from(&route.headers);
        if !route.networks.admit(self.client) {
            shared.stats.turn_away(TurnedAway::Network);
            return self.refuse(id, head, not_from_there(), shared);
        }
        if let Handler::Session(_) = route.handler {
            return self.session(id, head, raw, route, shared);
        }
        if head.header_bytes("upgrade").is_some() && takes_socket_here(route, head, below) {
            return self.upgrade(id, head, raw, route, shared);
        }
        match &route.handler {
            Handler::Api => {
                let call = match A::Call::begin(head, below, self.client, id, shared) {
                    Ok(call) => call,
                    Err(refusal) => return self.refuse(id, head, refusal, shared),
                };
                self.read_body(id, head, Purpose::Call(Box::new(call)), shared)
            }
            Handler::Lua { app, .. } => {
                if let Err(refusal) = self.has_memory(shared) {
                    return self.refuse(id, head, refusal, shared);
                }
                let question = Question { route, head, raw };
                self.name_request(id, *app, &question, shared)
            }
            Handler::Health => {
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
            Handler::Metrics => {
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
            Handler::Static { root, variants } => {
                let place = Place {
                    root,
                    below,
                    variants,
                };
                self.file(id, head, place, &[], shared)
            }
            Handler::Admin => match below.trim_start_matches('/').strip_prefix("api/") {
                Some(name) => {
                    let is_tls = self.is_tls(shared);
                    match A::Call::begin_admin(head, name, is_tls, self.client, id, shared) {
                        Ok(call) => self.read_body(id, head, Purpose::Call(Box::new(call)), shared),
                        Err(refusal) => self.refuse(id, head, refusal, shared),
                    }
                }
                None => {
                    let place = Place {
                        root: Path::new(admin_page::ROOT),
                        below,
                        variants: &[],
                    };
                    self.file(id, head, place, admin_page::HEADERS, shared)
                }
            },
            Handler::Session(_) => unreachable!("handled above"),
        }
    }

    /// Handles a request on a client protocol's route.
    fn session(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        raw: &[u8],
        route: &Arc<Route>,
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        let asked = Asked {
            head,
            route,
            is_tls: self.is_tls(shared),
            may_open: &|shared| self.may_upgrade(shared),
        };
        match A::Session::plan(&asked, shared) {
            Plan::Upgrade => self.upgrade(id, head, raw, route, shared),
            Plan::Refuse(refusal) => self.refuse(id, head, refusal, shared),
            Plan::Reply(answer) => self.answer(id, head, shared, move |reply, id, shared| {
                answer.write(&reply, id, shared);
            }),
            Plan::Answer(answer_to) => self.read_body(id, head, Purpose::Answer(answer_to), shared),
            Plan::Stream(first) => {
                let mut kept = KeptRequest::new(route, raw, Named::default());
                match first {
                    None => self.read_body(id, head, Purpose::Stream(kept), shared),
                    Some(first) => {
                        kept.body = first;
                        Ok(self.name_stream(id, kept, shared))
                    }
                }
            }
        }
    }

    /// Answers with a file below a root.
    fn file(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        place: Place<'_>,
        headers: &[(&str, &str)],
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        if head.framing == Framing::None {
            shared.work.charge(work::FILE);
            let reply = self.reply(head);
            let stream = stream::answer(id, head, place, (&reply, headers), shared);
            return Ok(self.stream(id, reply.keep_alive, stream, shared));
        }
        let refusal = match head.method {
            Method::Get | Method::Head => {
                Refusal::new(Status::BAD_REQUEST, "a file is asked for without a body")
            }
            _ => Refusal::new(Status::METHOD_NOT_ALLOWED, "files take GET and HEAD")
                .with("Allow", "GET, HEAD"),
        };
        self.refuse(id, head, refusal, shared)
    }

    fn begin_entry(
        &self,
        id: ConnectionId,
        head: &Head<'_>,
        length: usize,
        listener: &Listener,
        shared: &mut Shared,
    ) {
        let is_internal = listener.role != Role::Public;
        let outboxes = &mut shared.ports.outboxes;
        let queued = outboxes.of(id).buffered();
        outboxes.journal.begin(id, is_internal, queued, || {
            Entry::of(head, length, self.client)
        });
    }

    /// Determines the client and checks its access.
    fn door(
        &mut self,
        head: &Head<'_>,
        listener: &Listener,
        shared: &Shared,
    ) -> Result<(), Refusal> {
        self.client = listener.access.client(self.peer, head).map_err(|_| {
            shared.stats.turn_away(TurnedAway::Network);
            let why = "what the proxy says of the client can't be read";
            Refusal::new(Status::BAD_REQUEST, why)
        })?;
        // The peer was checked at accept, but a reload may have changed the rules, and behind a proxy the client
        // counts.
        if !listener.access.networks.admit(self.client) {
            shared.stats.turn_away(TurnedAway::Network);
            return Err(not_from_there());
        }
        if !listener.access.answers_to(self.peer, head.host) {
            shared.stats.turn_away(TurnedAway::Host);
            let why = "this server does not answer to that name: see hosts of [[listen]]";
            return Err(Refusal::new(Status::MISDIRECTED_REQUEST, why));
        }
        Ok(())
    }

    /// Checks that memory permits new work for a client.
    fn has_memory(&self, shared: &Shared) -> Result<(), Refusal> {
        let role = shared.site.listeners[self.listener as usize].role;
        if role != Role::Public || !shared.is_short_of_memory {
            return Ok(());
        }
        shared.stats.turn_away(TurnedAway::Memory);
        let why = "the server is short of memory: try again later";
        Err(Refusal::new(Status::SERVICE_UNAVAILABLE, why).with("Retry-After", "1"))
    }

    /// Returns whether the listener uses TLS.
    pub(super) fn is_tls(&self, shared: &Shared) -> bool {
        shared.site.listeners[self.listener as usize].is_tls
    }

    /// Checks the limits on connections and handshakes of the client's address.
    pub(super) fn may_upgrade(&self, shared: &Shared) -> Result<(), Refusal> {
        self.has_memory(shared)?;
        let listener = &shared.site.listeners[self.listener as usize];
        let is_proxied = self.client != self.peer;
        // Back ends share one address; so do clients behind a proxy that does not name them.
        if listener.role != Role::Public || !is_proxied && listener.access.trusts(self.peer) {
            return Ok(());
        }
        let why = if is_proxied && !shared.process.address_has_room(self.client) {
            TurnedAway::Connections
        } else if (is_proxied || self.requests > 1)
            && !shared.process.may_begin(self.client, shared.now.mono_ms)
        {
            // The first handshake of a direct connection was counted at accept.
            TurnedAway::Rate
        } else {
            return Ok(());
        };
        shared.stats.turn_away(why);
        let why = match why {
            TurnedAway::Connections => "too many connections of this address",
            _ => "too many handshakes of this address",
        };
        Err(Refusal::new(Status::TOO_MANY_REQUESTS, why).with("Retry-After", "1"))
    }

    /// Refuses one request; the connection continues if the body is small enough to discard.
    pub(super) fn refuse(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        refusal: Refusal,
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        if refusal.ends {
            let mut reply = self.reply(head);
            reply.keep_alive = false;
            refusal.write(&reply, id, shared);
            return Ok(Then::End);
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
        shared: &mut Shared,
    ) -> Result<Next<A>, HttpError> {
        if let Err(refusal) = self.may_upgrade(shared) {
            return self.refuse(id, head, refusal, shared);
        }
        match judge::<A::Session>(head, raw, route, self.is_tls(shared), shared) {
            Ok(candidate) => self.name_candidate(id, candidate, shared),
            Err(mut refused) => {
                if refused.outcome == Handshake::Unauthorized {
                    let (lock, client) = (Lock::Api, self.client);
                    refused.refusal = guessing::refuse(head, lock, client, id, shared);
                }
                // It may be a request other than a handshake, with a body.
                refused.note(id, shared);
                self.refuse(id, head, refused.refusal, shared)
            }
        }
    }
}

fn not_from_there() -> Refusal {
    Refusal::new(Status::FORBIDDEN, "not from this address")
}

/// Returns whether an upgrade on this route and subpath opens a WebSocket.
fn takes_socket_here(route: &Route, head: &Head<'_>, below: &str) -> bool {
    match route.handler {
        Handler::Api => below.trim_end_matches('/') == "/socket",
        // Other upgrades, such as curl's to HTTP/2, may be ignored (RFC 9110 section 7.8).
        Handler::Lua { .. } => head.header_has_token("upgrade", "websocket"),
        _ => route.handler.takes_websocket(),
    }
}
