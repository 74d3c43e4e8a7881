//! The routes of clients of Centrifugo's protocol, and the transports of their pushes.

use crate::response::Form;
use crate::wire::Encoding;

/// The transport of a client's pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    WebSocket,
    Lines,
    Events,
}

impl Carrier {
    /// Returns the framing of messages in a response.
    pub(crate) fn form(self, encoding: Encoding) -> Form {
        match (self, encoding) {
            (Self::Events, _) => Form::EventsOfLines,
            (_, Encoding::Json) => Form::Lines,
            (_, Encoding::Protobuf) => Form::Bytes,
        }
    }
}

/// The transports with their paths.
pub(crate) const CARRIERS: [(Carrier, &str); 3] = [
    (Carrier::Events, "/one_way/uni_sse"),
    (Carrier::Lines, "/one_way/uni_http_stream"),
    (Carrier::WebSocket, "/one_way/uni_websocket"),
];

/// Which hook answers a client's requests, determined by its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decides {
    Nobody,
    BackEnd,
    App,
}

impl Decides {
    /// Returns the path for a transport.
    pub(crate) fn path(self, carrier: Carrier) -> String {
        let route = match self {
            Self::Nobody => "connection",
            Self::BackEnd => "decided",
            Self::App => "judged",
        };
        let transport = match carrier {
            Carrier::WebSocket => "websocket",
            Carrier::Lines => "http_stream",
            Carrier::Events => "sse",
        };
        format!("/{route}/{transport}")
    }
}
