//! The routes of clients of Centrifugo's protocol, and what carries their pushes.

use crate::response::ResponseFormat;
use crate::wire::Encoding;

/// What carries its pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTransport {
    WebSocket,
    Lines,
    Events,
}

impl ClientTransport {
    /// How the messages of a session are told apart in a response.
    pub(crate) fn form(self, encoding: Encoding) -> ResponseFormat {
        match (self, encoding) {
            (Self::Events, _) => ResponseFormat::EventsOfLines,
            (_, Encoding::Json) => ResponseFormat::Lines,
            (_, Encoding::Protobuf) => ResponseFormat::Bytes,
        }
    }
}

/// The kinds, each with its path.
pub(crate) const CLIENT_TRANSPORTS: [(ClientTransport, &str); 3] = [
    (ClientTransport::Events, "/one_way/uni_sse"),
    (ClientTransport::Lines, "/one_way/uni_http_stream"),
    (ClientTransport::WebSocket, "/one_way/uni_websocket"),
];

/// The route of a client, by which its commands are decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookRoute {
    NoHook,
    BackEnd,
    App,
}

impl HookRoute {
    /// The path for what carries what the client hears.
    pub(crate) fn path(self, carrier: ClientTransport) -> String {
        let route = match self {
            Self::NoHook => "connection",
            Self::BackEnd => "decided",
            Self::App => "judged",
        };
        let transport = match carrier {
            ClientTransport::WebSocket => "websocket",
            ClientTransport::Lines => "http_stream",
            ClientTransport::Events => "sse",
        };
        format!("/{route}/{transport}")
    }
}
