//! The echo protocol returns each message to its sender.

use veche_proto::websocket::MessageKind;

use crate::context::census::About;
use crate::context::protocol::Protocol;
use crate::context::session::{Context, Flow, Session};
use crate::context::shared::Shared;
use crate::http::protocol::{Begun, Opening, Wanted};
use crate::http::upgrade::Refused;

/// Description for routes and the configuration.
pub(crate) static PROTOCOL: Protocol = Protocol {
    name: "echo",
    methods: &["GET"],
    options: &[],
};

/// A session of the echo protocol.
pub(crate) struct Echo;

impl Opening for Echo {
    fn begin(_: &Wanted<'_, '_, '_>, _: &Shared) -> Result<Begun<Self>, Refused> {
        Ok(Begun::of(Self))
    }
}

impl Session for Echo {
    fn about(&self) -> About<'_> {
        About::of(PROTOCOL.name)
    }

    #[inline]
    fn message(&mut self, kind: MessageKind, data: &[u8], cx: &mut Context<'_>) -> Flow {
        cx.shared.ports.outboxes.message(cx.id, kind, data);
        Flow::GoOn
    }
}
