//! The transports of Centrifugo's protocol besides WebSocket. The server sends an endless response,
//! and the client sends its commands in separate requests.

use std::collections::VecDeque;

use veche_centrifuge::{ClientRequest, DecodeLimits, Encoding};

use crate::context::route::Route;

/// A transport of Centrifugo's protocol. The last segment of the request's path selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CentrifugeTransport {
    WebSocket,
    /// An endless response with one message per line.
    HttpStream,
    /// An endless response of server-sent events.
    Events,
    /// A request with commands of a client whose endless response may be on another worker.
    Emulation,
    /// A WebSocket whose client only receives.
    OneWayWebSocket,
    OneWayHttpStream,
    OneWayEvents,
}

impl CentrifugeTransport {
    /// Returns the transport that the last segment of the path selects. For an unknown segment, returns `None` on a
    /// route that ends with `/*`, and WebSocket on other routes.
    pub(crate) fn of(route: &Route, path: &str) -> Option<Self> {
        match path.rsplit('/').next() {
            Some("websocket") => Some(Self::WebSocket),
            Some("http_stream") => Some(Self::HttpStream),
            Some("sse") => Some(Self::Events),
            Some("emulation") => Some(Self::Emulation),
            Some("uni_websocket") => Some(Self::OneWayWebSocket),
            Some("uni_http_stream") => Some(Self::OneWayHttpStream),
            Some("uni_sse") => Some(Self::OneWayEvents),
            _ if route.path.ends_with("/*") => None,
            _ => Some(Self::WebSocket),
        }
    }

    /// Returns the name of the transport for back ends.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::HttpStream => "http_stream",
            Self::Events => "sse",
            Self::Emulation => "emulation",
            Self::OneWayWebSocket => "uni_websocket",
            Self::OneWayHttpStream => "uni_http_stream",
            Self::OneWayEvents => "uni_sse",
        }
    }

    /// Returns the HTTP methods of the transport, separated by commas.
    pub(crate) fn methods(self) -> &'static str {
        match self {
            Self::WebSocket | Self::Events | Self::OneWayWebSocket => "GET",
            Self::HttpStream | Self::Emulation | Self::OneWayHttpStream => "POST",
            Self::OneWayEvents => "GET, POST",
        }
    }

    /// Returns whether the transport supports this HTTP method.
    pub(crate) fn takes(self, method: &str) -> bool {
        self.methods().split(", ").any(|one| one == method)
    }

    /// Returns whether the transport's clients are one-way.
    pub(crate) fn is_one_way(self) -> bool {
        matches!(
            self,
            Self::OneWayWebSocket | Self::OneWayHttpStream | Self::OneWayEvents
        )
    }

    /// Returns whether the transport is a response of server-sent events.
    pub(crate) fn is_events(self) -> bool {
        matches!(self, Self::Events | Self::OneWayEvents)
    }
}

/// Maximum number of bytes of one client's relayed requests that wait for earlier commands. Each
/// request counts [`RELAY_BYTES`] in addition to its own bytes.
const RELAYED_BYTES_MAX: usize = 256 << 10;
const RELAY_BYTES: usize = 64;

/// Relayed requests of one client that wait for earlier commands. Each is processed like a message.
#[derive(Debug, Default)]
pub(super) struct RelayQueue {
    all: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl RelayQueue {
    /// Queues the commands of a relayed request; returns false if too many bytes are waiting.
    pub(super) fn keep(&mut self, commands: &[u8]) -> bool {
        let bytes = self.bytes + commands.len() + RELAY_BYTES;
        if bytes > RELAYED_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        // A non-zero capacity marks that there is a message, even if the message is empty.
        let mut kept = Vec::with_capacity(commands.len().max(1));
        kept.extend_from_slice(commands);
        self.all.push_back(kept);
        true
    }

    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let commands = self.all.pop_front()?;
        self.bytes -= commands.len() + RELAY_BYTES;
        Some(commands)
    }
}

/// Maximum length of each of two queues: relayed requests to workers of this node, and relayed
/// requests to other nodes. In the first queue, each worker has an equal share. Requests that exceed
/// the limit are refused, and their clients have to reconnect.
pub(crate) const RELAYS_MAX: usize = 1024;

/// Returns whether the commands in a URL are exactly one connect command. Also returns true if the first command can't
/// be parsed: no command is then executed, and the session reports the error.
pub(crate) fn only_connects(commands: &[u8]) -> bool {
    let limits = DecodeLimits {
        message_bytes_max: usize::MAX,
        ..DecodeLimits::default()
    };
    let mut commands = Encoding::Json.commands(commands, limits);
    match commands.next() {
        Some(Ok(first)) => {
            matches!(first.request, ClientRequest::Connect(_)) && commands.next().is_none()
        }
        Some(Err(_)) | None => true,
    }
}

/// Returns the encoding of a body with this content type.
pub(crate) fn encoding_of(content_type: Option<&str>) -> Encoding {
    let is_binary = |kind: &str| kind.starts_with("application/octet-stream");
    match content_type.is_some_and(is_binary) {
        true => Encoding::Protobuf,
        false => Encoding::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_carries_one_connect_command() {
        let connect = r#"{"id":1,"connect":{}}"#;
        for (commands, expected) in [
            (connect.to_owned(), true),
            (format!("{connect}\n"), true),
            ("nonsense".to_owned(), true),
            (String::new(), true),
            (r#"{"id":1,"rpc":{"method":"x"}}"#.to_owned(), false),
            (
                r#"{"id":1,"publish":{"channel":"x","data":1}}"#.to_owned(),
                false,
            ),
            (r#"{"id":1,"send":{"data":1}}"#.to_owned(), false),
            ("{}".to_owned(), false),
            (format!("{connect}\n{{\"id\":2,\"rpc\":{{}}}}"), false),
            (format!("{connect}{{\"id\":2,\"rpc\":{{}}}}"), false),
            (format!("{connect}\n{connect}"), false),
            (format!("{connect}\nnonsense"), false),
        ] {
            assert_eq!(only_connects(commands.as_bytes()), expected, "{commands}");
        }
    }

    #[test]
    fn relays_wait_up_to_a_limit_and_give_it_back() {
        let mut relays = RelayQueue::default();
        let commands = vec![b'x'; (RELAYED_BYTES_MAX / 4) - RELAY_BYTES];
        for _ in 0..3 {
            (0..4).for_each(|_| assert!(relays.keep(&commands)));
            assert!(
                !relays.keep(b""),
                "a full queue rejects even an empty relay"
            );
            for _ in 0..4 {
                assert_eq!(relays.next().as_ref(), Some(&commands));
            }
            assert_eq!(relays.next(), None);
        }
        // When a relayed request is taken from the queue, there is room for another.
        (0..4).for_each(|_| assert!(relays.keep(&commands)));
        for _ in 0..4 {
            assert!(relays.next().is_some());
            assert!(relays.keep(&commands) && !relays.keep(b""));
        }
        while relays.next().is_some() {}
        assert!(!relays.keep(&vec![b'x'; RELAYED_BYTES_MAX - RELAY_BYTES + 1]));
        assert!(relays.keep(&vec![b'x'; RELAYED_BYTES_MAX - RELAY_BYTES]));
        // A relayed request is queued even if it contains no bytes.
        let mut relays = RelayQueue::default();
        assert!(relays.keep(b""));
        assert!(
            relays
                .next()
                .is_some_and(|kept| kept.is_empty() && kept.capacity() > 0)
        );
    }
}
