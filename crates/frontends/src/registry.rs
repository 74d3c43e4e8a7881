//! The registry of sessions: the only place that names all client protocols. It is outside of the layers.
//!
//! A client protocol is a folder of [`sessions`] and a row of [`registry!`] below; `sessions/README.md` describes the
//! folder. The macro generates from the rows a session type for any protocol, dispatched by a `match`, and
//! [`PROTOCOLS`], from which routes and configuration get the available handlers.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{Answer, ConnectionId, Instruction, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::Now;

use crate::backend::Backend;
use crate::backend::api::Call;
use crate::context::app::Request;
use crate::context::census::About;
use crate::context::hooks::{QuestionId, Verdict};
use crate::context::identity::{Finding, Unknown};
pub use crate::context::protocol::Protocol;
use crate::context::relay::Relay;
use crate::context::route::{Handler, Route};
use crate::context::session::{Context, Flow, Session};
use crate::context::shared::Shared;
use crate::context::step::Block;
use crate::http::protocol::{
    Above, Asked, Begun, Identified, Opening, Plan, StreamBegun, StreamRequest, Wanted,
};
use crate::http::upgrade::Refused;
use crate::outbox::hears::Hears;
use crate::sessions;

/// The upper layer of the HTTP stage.
pub(crate) struct Registry;

impl Above for Registry {
    type Session = AnySession;
    type Call = Call;
}

/// Returns the client protocol with this name.
#[must_use]
pub fn protocol(name: &str) -> Option<&'static Protocol> {
    let mut all = PROTOCOLS.iter().copied();
    all.find(|protocol| protocol.name == name)
}

/// Returns the route handler for the client protocol with this name.
#[must_use]
pub fn handler(name: &str) -> Option<Handler> {
    protocol(name).map(Handler::Session)
}

macro_rules! registry {
    (
        protocols { $($Protocol:ident($Session:ty) = $description:path,)* }
        others { $($Other:ident($OtherSession:ty) = $handler:pat,)* }
    ) => {
        /// All client protocols, in the order of the reference.
        pub static PROTOCOLS: &[&Protocol] = &[$(&$description),*];

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
            fn plan_of(protocol: &Protocol, asked: &Asked<'_, '_>, shared: &mut Shared) -> Plan {
                $(if std::ptr::eq(protocol, &$description) {
                    return <$Session>::plan(asked, shared);
                })*
                unreachable!("{} is not registered", protocol.name)
            }

            fn begin_as(
                protocol: &Protocol,
                wanted: &Wanted<'_, '_, '_>,
                shared: &Shared,
            ) -> Result<Begun<Self>, Refused> {
                $(if std::ptr::eq(protocol, &$description) {
                    return Ok(<$Session>::begin(wanted, shared)?.map(Self::$Protocol));
                })*
                unreachable!("{} is not registered", protocol.name)
            }

            fn begin_other(
                wanted: &Wanted<'_, '_, '_>,
                shared: &Shared,
            ) -> Result<Begun<Self>, Refused> {
                match wanted.route.handler {
                    $($handler => Ok(<$OtherSession>::begin(wanted, shared)?.map(Self::$Other)),)*
                    _ => unreachable!("no WebSocket is available on this path"),
                }
            }

            fn begin_stream_as(
                protocol: &Protocol,
                request: &StreamRequest<'_, '_>,
                id: ConnectionId,
                shared: &mut Shared,
            ) -> Option<StreamBegun<Self>> {
                $(if std::ptr::eq(protocol, &$description) {
                    let begun = <$Session>::begin_stream(request, id, shared)?;
                    return Some(begun.map(Self::$Protocol));
                })*
                unreachable!("{} is not registered", protocol.name)
            }
        }

        /// Dispatches a call to the actual session.
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
        Push(sessions::push::Push) = sessions::push::PROTOCOL,
        Echo(sessions::echo::Echo) = sessions::echo::PROTOCOL,
        Centrifuge(Box<sessions::centrifuge::Centrifuge>) = sessions::centrifuge::PROTOCOL,
    }
    others {
        App(sessions::app::App) = Handler::Lua { .. },
        Api(Box<Backend>) = Handler::Api,
    }
}

impl Opening for AnySession {
    fn plan(asked: &Asked<'_, '_>, shared: &mut Shared) -> Plan {
        match asked.route.handler {
            Handler::Session(protocol) => Self::plan_of(protocol, asked, shared),
            _ => Plan::Upgrade,
        }
    }

    fn begin(wanted: &Wanted<'_, '_, '_>, shared: &Shared) -> Result<Begun<Self>, Refused> {
        match wanted.route.handler {
            Handler::Session(protocol) => Self::begin_as(protocol, wanted, shared),
            _ => Self::begin_other(wanted, shared),
        }
    }

    fn begin_stream(
        request: &StreamRequest<'_, '_>,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Option<StreamBegun<Self>> {
        match request.route.handler {
            Handler::Session(protocol) => Self::begin_stream_as(protocol, request, id, shared),
            _ => None,
        }
    }

    fn has_user(&self) -> bool {
        each!(self, session => session.has_user())
    }

    fn may_be_named_later(&self) -> bool {
        each!(self, session => session.may_be_named_later())
    }

    fn refuse_for_good(&mut self, why: Unknown) -> Option<(u16, &'static str)> {
        each!(self, session => session.refuse_for_good(why))
    }

    fn subprotocol(&self, offers: &dyn Fn(&str) -> bool) -> Option<&'static str> {
        each!(self, session => session.subprotocol(offers))
    }

    fn identified(&mut self, client: Identified<'_, '_>) -> bool {
        each!(self, session => session.identified(client))
    }

    fn hears(&self, route: &Route) -> Hears {
        each!(self, session => session.hears(route))
    }

    fn hears_opened(&self) -> bool {
        each!(self, session => session.hears_opened())
    }

    fn opened(&mut self, id: ConnectionId, request: &Request<'_>, shared: &mut Shared) {
        each!(self, session => session.opened(id, request, shared));
    }
}

impl Session for AnySession {
    fn about(&self) -> About<'_> {
        each!(self, session => Session::about(session))
    }

    #[inline]
    fn message(&mut self, kind: MessageKind, data: &[u8], cx: &mut Context<'_>) -> Flow {
        each!(self, session => Session::message(session, kind, data, cx))
    }

    #[inline]
    fn is_full(&self) -> Option<Block> {
        each!(self, session => Session::is_full(session))
    }

    #[inline]
    fn counts_commands(&self) -> bool {
        each!(self, session => session.counts_commands())
    }

    fn has_input(&self) -> bool {
        each!(self, session => session.has_input())
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Flow {
        each!(self, session => Session::resume(session, cx))
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer, cx: &mut Context<'_>) -> Option<Flow> {
        each!(self, session => Session::answered(session, ticket, answer, cx))
    }

    fn judged(
        &mut self,
        question: QuestionId,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        each!(self, session => Session::judged(session, question, verdict, cx))
    }

    fn found(&mut self, finding: &Finding) -> bool {
        each!(self, session => Session::found(session, finding))
    }

    fn set_peer(&mut self, peer: IpAddr) {
        each!(self, session => Session::set_peer(session, peer));
    }

    fn is_meant_by(&self, relay: &Relay) -> bool {
        each!(self, session => Session::is_meant_by(session, relay))
    }

    fn relayed(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Flow {
        each!(self, session => Session::relayed(session, relay, cx))
    }

    fn is_meant(&self, instruction: &Instruction, id: ConnectionId, shared: &Shared) -> bool {
        each!(self, session => Session::is_meant(session, instruction, id, shared))
    }

    fn instructed(&mut self, instruction: &Arc<Instruction>, cx: &mut Context<'_>) -> Flow {
        each!(self, session => Session::instructed(session, instruction, cx))
    }

    fn lost(&mut self, channel: &str, cx: &mut Context<'_>) -> Flow {
        each!(self, session => Session::lost(session, channel, cx))
    }

    fn has_pings(&self) -> bool {
        each!(self, session => session.has_pings())
    }

    fn deadline_ms(&self, shared: &Shared) -> u64 {
        each!(self, session => Session::deadline_ms(session, shared))
    }

    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        each!(self, session => Session::blocked_deadline_ms(session, now))
    }

    fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        each!(self, session => Session::judged_deadline_ms(session, shared))
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Flow {
        each!(self, session => Session::timeout(session, cx))
    }

    fn timeout_blocked(&mut self, cx: &mut Context<'_>) -> Flow {
        each!(self, session => Session::timeout_blocked(session, cx))
    }

    fn heard(&mut self) {
        each!(self, session => Session::heard(session));
    }

    fn take_hurry(&mut self) -> bool {
        each!(self, session => Session::take_hurry(session))
    }

    fn renews_token(&self) -> bool {
        each!(self, session => session.renews_token())
    }

    fn asks_for_time(&self, route: &Route) -> bool {
        each!(self, session => Session::asks_for_time(session, route))
    }

    fn names<'s>(&'s self, id: ConnectionId, shared: &'s Shared) -> (&'s str, &'s str) {
        each!(self, session => Session::names(session, id, shared))
    }

    fn words<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        each!(self, session => session.words(code, reason))
    }

    fn closing(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        each!(self, session => session.closing(code, reason, cx));
    }

    fn hears_faults(&self) -> bool {
        each!(self, session => session.hears_faults())
    }

    fn over(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        each!(self, session => Session::over(session, code, reason, cx));
    }

    fn app_ready(&mut self) -> bool {
        each!(self, session => session.app_ready())
    }

    fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        each!(self, session => session.drained(id, shared));
    }

    fn is_back_end(&self) -> bool {
        each!(self, session => session.is_back_end())
    }
}
