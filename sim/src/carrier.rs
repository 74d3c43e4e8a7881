//! The routes of clients of Centrifugo's protocol, and what carries their pushes.

use crate::response::Form;
use crate::wire::Encoding;

/// What carries its pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    WebSocket,
    Lines,
    Events,
}

impl Carrier {
    /// How the messages of a session are told apart in a response.
    pub(crate) fn form(self, encoding: Encoding) -> Form {
        match (self, encoding) {
            (Self::Events, _) => Form::EventsOfLines,
            (_, Encoding::Json) => Form::Lines,
            (_, Encoding::Protobuf) => Form::Bytes,
        }
    }
}

/// The kinds, each with its path.
pub(crate) const CARRIERS: [(Carrier, &str); 3] = [
    (Carrier::Events, "/one_way/uni_sse"),
    (Carrier::Lines, "/one_way/uni_http_stream"),
    (Carrier::WebSocket, "/one_way/uni_websocket"),
];

/// The route of a client, by which its commands are decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decides {
    Nobody,
    BackEnd,
    App,
}

impl Decides {
    /// The path for what carries what the client hears.
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
