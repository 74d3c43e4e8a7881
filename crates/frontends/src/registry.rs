//! The registry of client protocols: the only place that names all of them. It is not one of the
//! crate's layers.
//!
//! A client protocol is a folder in [`sessions`] and a row of [`registry!`] below; `sessions/README.md` describes the
//! folder. From the rows, the macro generates the enum `AnySession`, which dispatches calls with a `match`, and
//! [`PROTOCOLS`], from which routes and the configuration get the available handlers.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{ConnectionId, HubReply, Ticket, UserCommand};
use veche_proto::websocket::MessageKind;
use veche_types::Now;

use crate::backend::Backend;
use crate::backend::api::BackendCall;
use crate::context::app::RequestView;
use crate::context::hooks::{HookDecision, HookRequestId};
use crate::context::identity::{AuthError, IdentityResult};
pub use crate::context::protocol::ClientProtocol;
use crate::context::relay::EmulationRequest;
use crate::context::route::{Route, RouteHandler};
use crate::context::session::{Flow, Session, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;
use crate::http::protocol::{
    HandshakeRequest, NewSession, NewStream, OpenSession, ProtocolRequest, RequestPlan,
    SessionIdentity, StreamRequest, UpperLayer,
};
use crate::http::upgrade::RefusedUpgrade;
use crate::outbox::delivery_mode::DeliveryMode;
use crate::sessions;

/// The layer above the HTTP stage: the sessions of all protocols, and the API.
pub(crate) struct Registry;

impl UpperLayer for Registry {
    type Session = AnySession;
    type Call = BackendCall;
}

/// Returns the client protocol with this name.
#[must_use]
pub fn protocol(name: &str) -> Option<&'static ClientProtocol> {
    let mut all = PROTOCOLS.iter().copied();
    all.find(|protocol| protocol.name == name)
}

/// Returns the route handler for the client protocol with this name.
#[must_use]
pub fn handler(name: &str) -> Option<RouteHandler> {
    protocol(name).map(RouteHandler::Session)
}

macro_rules! registry {
    (
        protocols { $($Protocol:ident($Session:ty) = $description:path,)* }
        others { $($Other:ident($OtherSession:ty) = $handler:pat,)* }
    ) => {
        /// All client protocols, in the order of the reference documentation.
        pub static PROTOCOLS: &[&ClientProtocol] = &[$(&$description),*];

        /// A session of any protocol.
        pub(crate) enum AnySession {
            $($Protocol($Session),)*
            $($Other($OtherSession),)*
        }

        $(impl From<$Session> for AnySession {
            fn from(session: $Session) -> Self {
                Self::$Protocol(session)
            }
        })*
        $(impl From<$OtherSession> for AnySession {
            fn from(session: $OtherSession) -> Self {
                Self::$Other(session)
            }
        })*

        impl AnySession {
            fn plan_of(protocol: &ClientProtocol, asked: &ProtocolRequest<'_, '_>, shared: &mut Context) -> RequestPlan {
                $(if std::ptr::eq(protocol, &$description) {
                    return <$Session>::plan(asked, shared);
                })*
                unreachable!("the protocol {} is not registered", protocol.name)
            }

            fn begin_as(
                protocol: &ClientProtocol,
                wanted: &HandshakeRequest<'_, '_, '_>,
                shared: &Context,
            ) -> Result<NewSession<Self>, RefusedUpgrade> {
                $(if std::ptr::eq(protocol, &$description) {
                    return Ok(<$Session>::begin(wanted, shared)?.map(Self::$Protocol));
                })*
                unreachable!("the protocol {} is not registered", protocol.name)
            }

            fn begin_other(
                wanted: &HandshakeRequest<'_, '_, '_>,
                shared: &Context,
            ) -> Result<NewSession<Self>, RefusedUpgrade> {
                match wanted.route.handler {
                    $($handler => Ok(<$OtherSession>::begin(wanted, shared)?.map(Self::$Other)),)*
                    _ => unreachable!("no WebSocket is available on this path"),
                }
            }

            fn begin_stream_as(
                protocol: &ClientProtocol,
                request: &StreamRequest<'_, '_>,
                id: ConnectionId,
                shared: &mut Context,
            ) -> Option<NewStream<Self>> {
                $(if std::ptr::eq(protocol, &$description) {
                    let begun = <$Session>::begin_stream(request, id, shared)?;
                    return Some(begun.map(Self::$Protocol));
                })*
                unreachable!("the protocol {} is not registered", protocol.name)
            }
        }

        /// Dispatches a call to the session in an [`AnySession`].
        macro_rules! each {
            ($any:expr, $session:ident => $call:expr) => {
                match $any {
                    $(AnySession::$Protocol($session) => $call,)*
                    $(AnySession::$Other($session) => $call,)*
                }
            };
        }
    };
}

registry! {
    protocols {
        Push(sessions::push::PushSession) = sessions::push::PROTOCOL,
        Echo(sessions::echo::EchoSession) = sessions::echo::PROTOCOL,
        Centrifuge(Box<sessions::centrifuge::Centrifuge>) = sessions::centrifuge::PROTOCOL,
    }
    others {
        App(sessions::app::AppSession) = RouteHandler::App { .. },
        Api(Box<Backend>) = RouteHandler::Api,
    }
}

impl OpenSession for AnySession {
    fn plan(asked: &ProtocolRequest<'_, '_>, shared: &mut Context) -> RequestPlan {
        match asked.route.handler {
            RouteHandler::Session(protocol) => Self::plan_of(protocol, asked, shared),
            _ => RequestPlan::Upgrade,
        }
    }

    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        shared: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade> {
        match wanted.route.handler {
            RouteHandler::Session(protocol) => Self::begin_as(protocol, wanted, shared),
            _ => Self::begin_other(wanted, shared),
        }
    }

    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Context,
    ) -> Option<NewStream<Self>> {
        match request.route.handler {
            RouteHandler::Session(protocol) => Self::begin_stream_as(protocol, request, id, shared),
            _ => None,
        }
    }

    fn has_user(&self) -> bool {
        each!(self, session => session.has_user())
    }

    fn may_authenticate_later(&self) -> bool {
        each!(self, session => session.may_authenticate_later())
    }

    fn close_instead_of_refusing(&mut self, why: AuthError) -> Option<(u16, &'static str)> {
        each!(self, session => session.close_instead_of_refusing(why))
    }

    fn subprotocol(&self, offers: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        each!(self, session => session.subprotocol(offers))
    }

    fn set_identity(&mut self, client: SessionIdentity<'_, '_>) -> bool {
        each!(self, session => session.set_identity(client))
    }

    fn delivery_mode(&self, route: &Route) -> DeliveryMode {
        each!(self, session => session.delivery_mode(route))
    }

    fn wants_opened(&self) -> bool {
        each!(self, session => session.wants_opened())
    }

    fn handle_opened(&mut self, id: ConnectionId, request: &RequestView<'_>, shared: &mut Context) {
        each!(self, session => session.handle_opened(id, request, shared));
    }
}

impl Session for AnySession {
    fn info(&self) -> SessionInfo<'_> {
        each!(self, session => Session::info(session))
    }

    #[inline]
    fn handle_message(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        each!(self, session => Session::handle_message(session, kind, data, cx))
    }

    #[inline]
    fn input_block(&self) -> Option<WaitReason> {
        each!(self, session => Session::input_block(session))
    }

    #[inline]
    fn counts_commands(&self) -> bool {
        each!(self, session => session.counts_commands())
    }

    fn has_input(&self) -> bool {
        each!(self, session => session.has_input())
    }

    fn resume(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        each!(self, session => Session::resume(session, cx))
    }

    fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        each!(self, session => Session::handle_answer(session, ticket, answer, cx))
    }

    fn handle_hook_decision(
        &mut self,
        request_id: HookRequestId,
        decision: HookDecision,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        each!(self, session => Session::handle_hook_decision(session, request_id, decision, cx))
    }

    fn handle_identity(&mut self, identity_result: &IdentityResult) -> bool {
        each!(self, session => Session::handle_identity(session, identity_result))
    }

    fn set_peer(&mut self, peer: IpAddr) {
        each!(self, session => Session::set_peer(session, peer));
    }

    fn accepts_relay(&self, relay: &EmulationRequest) -> bool {
        each!(self, session => Session::accepts_relay(session, relay))
    }

    fn handle_relay(&mut self, relay: &EmulationRequest, cx: &mut SessionContext<'_>) -> Flow {
        each!(self, session => Session::handle_relay(session, relay, cx))
    }

    fn matches_command(
        &self,
        instruction: &UserCommand,
        id: ConnectionId,
        shared: &Context,
    ) -> bool {
        each!(self, session => Session::matches_command(session, instruction, id, shared))
    }

    fn handle_user_command(
        &mut self,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        each!(self, session => Session::handle_user_command(session, instruction, cx))
    }

    fn handle_lost_history(&mut self, channel: &str, cx: &mut SessionContext<'_>) -> Flow {
        each!(self, session => Session::handle_lost_history(session, channel, cx))
    }

    fn has_pings(&self) -> bool {
        each!(self, session => session.has_pings())
    }

    fn deadline_ms(&self, shared: &Context) -> u64 {
        each!(self, session => Session::deadline_ms(session, shared))
    }

    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        each!(self, session => Session::blocked_deadline_ms(session, now))
    }

    fn hook_deadline_ms(&self, shared: &Context) -> u64 {
        each!(self, session => Session::hook_deadline_ms(session, shared))
    }

    fn handle_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        each!(self, session => Session::handle_timeout(session, cx))
    }

    fn handle_blocked_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        each!(self, session => Session::handle_blocked_timeout(session, cx))
    }

    fn confirm_alive(&mut self) {
        each!(self, session => Session::confirm_alive(session));
    }

    fn take_deadline_change(&mut self) -> bool {
        each!(self, session => Session::take_deadline_change(session))
    }

    fn renews_token(&self) -> bool {
        each!(self, session => session.renews_token())
    }

    fn renews_by_hook(&self, route: &Route) -> bool {
        each!(self, session => Session::renews_by_hook(session, route))
    }

    fn user_and_client<'s>(&'s self, id: ConnectionId, shared: &'s Context) -> (&'s str, &'s str) {
        each!(self, session => Session::user_and_client(session, id, shared))
    }

    fn close_code_and_reason<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        each!(self, session => session.close_code_and_reason(code, reason))
    }

    fn write_close(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        each!(self, session => session.write_close(code, reason, cx));
    }

    fn closes_on_fault(&self) -> bool {
        each!(self, session => session.closes_on_fault())
    }

    fn handle_closed(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        each!(self, session => Session::handle_closed(session, code, reason, cx));
    }

    fn handle_app_ready(&mut self) -> bool {
        each!(self, session => session.handle_app_ready())
    }

    fn handle_drained(&mut self, id: ConnectionId, shared: &mut Context) {
        each!(self, session => session.handle_drained(id, shared));
    }

    fn is_back_end(&self) -> bool {
        each!(self, session => session.is_back_end())
    }
}
