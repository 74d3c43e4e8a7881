//! The routes of clients of Centrifugo's protocol, and the transports of their pushes.

use crate::response::ResponseFormat;
use crate::wire::WireEncoding;

/// The transport of a client's pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTransport {
    WebSocket,
    Lines,
    Events,
}

impl ClientTransport {
    /// Returns the framing of messages in a response.
    pub(crate) fn form(self, encoding: WireEncoding) -> ResponseFormat {
        match (self, encoding) {
            (Self::Events, _) => ResponseFormat::EventsOfLines,
            (_, WireEncoding::Json) => ResponseFormat::Lines,
            (_, WireEncoding::Protobuf) => ResponseFormat::Bytes,
        }
    }
}

/// The transports with their paths.
pub(crate) const CLIENT_TRANSPORTS: [(ClientTransport, &str); 3] = [
    (ClientTransport::Events, "/one_way/uni_sse"),
    (ClientTransport::Lines, "/one_way/uni_http_stream"),
    (ClientTransport::WebSocket, "/one_way/uni_websocket"),
];

/// Which hook answers a client's requests, determined by its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookRoute {
    NoHook,
    BackEnd,
    App,
}

impl HookRoute {
    /// Returns the path for a transport.
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
