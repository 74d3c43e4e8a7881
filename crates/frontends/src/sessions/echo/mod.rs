//! The echo protocol, which returns each message to its sender.

use veche_proto::websocket::MessageKind;

use crate::context::protocol::ClientProtocol;
use crate::context::session::{Flow, Session, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::worker_context::Context;
use crate::http::protocol::{HandshakeRequest, NewSession, OpenSession};
use crate::http::upgrade::RefusedUpgrade;

/// The properties of the echo protocol for routes and the configuration.
pub(crate) static PROTOCOL: ClientProtocol = ClientProtocol {
    name: "echo",
    methods: &["GET"],
    options: &[],
};

/// A session of the echo protocol.
pub(crate) struct EchoSession;

impl OpenSession for EchoSession {
    fn begin(
        _: &HandshakeRequest<'_, '_, '_>,
        _: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade> {
        Ok(NewSession::of(Self))
    }
}

impl Session for EchoSession {
    fn info(&self) -> SessionInfo<'_> {
        SessionInfo::of(PROTOCOL.name)
    }

    #[inline]
    fn handle_message(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        cx.shared.requests.outboxes.message(cx.id, kind, data);
        Flow::Continue
    }
}
