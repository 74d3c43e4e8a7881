//! By what clients of the protocol come beside WebSocket: an endless response, and requests with commands beside it.

use std::collections::VecDeque;

use veche_centrifuge::{DecodeLimits, Encoding, Request};

use crate::context::route::Route;

/// What carries a client's messages; the last piece of the path says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CentrifugeTransport {
    WebSocket,
    /// A response whose lines are messages.
    HttpStream,
    /// A response of server-sent events.
    Events,
    /// Commands for one of these responses, which may be another worker's.
    Emulation,
    /// The same three for clients that only listen.
    OneWayWebSocket,
    OneWayHttpStream,
    OneWayEvents,
}

impl CentrifugeTransport {
    /// `None`: nothing is there.
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

    /// As back ends are told.
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

    /// The methods that it takes.
    pub(crate) fn methods(self) -> &'static str {
        match self {
            Self::WebSocket | Self::Events | Self::OneWayWebSocket => "GET",
            Self::HttpStream | Self::Emulation | Self::OneWayHttpStream => "POST",
            Self::OneWayEvents => "GET, POST",
        }
    }

    /// Whether it takes this one.
    pub(crate) fn takes(self, method: &str) -> bool {
        self.methods().split(", ").any(|one| one == method)
    }

    /// Whether its clients only listen.
    pub(crate) fn is_one_way(self) -> bool {
        matches!(
            self,
            Self::OneWayWebSocket | Self::OneWayHttpStream | Self::OneWayEvents
        )
    }

    /// Whether it is a response of server-sent events.
    pub(crate) fn is_events(self) -> bool {
        matches!(self, Self::Events | Self::OneWayEvents)
    }
}

/// So many bytes of relays wait behind commands that wait for something, and this is what one takes beside its own.
const RELAYED_BYTES_MAX: usize = 256 << 10;
const RELAY_BYTES: usize = 64;

/// Relays to one client that wait for commands before them. Each is as much of a message as one that came in time.
#[derive(Debug, Default)]
pub(super) struct RelayQueue {
    all: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl RelayQueue {
    /// Keeps one; `false`: too many wait.
    pub(super) fn keep(&mut self, commands: &[u8]) -> bool {
        let bytes = self.bytes + commands.len() + RELAY_BYTES;
        if bytes > RELAYED_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        // Whoever takes it sees by its capacity that it is there.
        let mut kept = Vec::with_capacity(commands.len().max(1));
        kept.extend_from_slice(commands);
        self.all.push_back(kept);
        true
    }

    /// Takes the oldest.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let commands = self.all.pop_front()?;
        self.bytes -= commands.len() + RELAY_BYTES;
        Some(commands)
    }
}

/// Most relays that wait to be posted, an equal share for each worker; beyond that clients are told to come back.
pub(crate) const RELAYS_MAX: usize = 1024;

/// Whether commands that came in a URL are one connect command. Where not even the first can be read, nothing is carried
/// out, and the session says so.
pub(crate) fn only_connects(commands: &[u8]) -> bool {
    let limits = DecodeLimits {
        message_bytes_max: usize::MAX,
        ..DecodeLimits::default()
    };
    let mut commands = Encoding::Json.commands(commands, limits);
    match commands.next() {
        Some(Ok(first)) => {
            matches!(first.request, Request::Connect(_)) && commands.next().is_none()
        }
        Some(Err(_)) | None => true,
    }
}

/// What a request's body, or what is asked for, is written in.
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
            assert!(!relays.keep(b""), "nothing has room");
            for _ in 0..4 {
                assert_eq!(relays.next().as_ref(), Some(&commands));
            }
            assert_eq!(relays.next(), None);
        }
        // One that goes makes room for one.
        (0..4).for_each(|_| assert!(relays.keep(&commands)));
        for _ in 0..4 {
            assert!(relays.next().is_some());
            assert!(relays.keep(&commands) && !relays.keep(b""));
        }
        while relays.next().is_some() {}
        assert!(!relays.keep(&vec![b'x'; RELAYED_BYTES_MAX - RELAY_BYTES + 1]));
        assert!(relays.keep(&vec![b'x'; RELAYED_BYTES_MAX - RELAY_BYTES]));
        // Also of nothing it can be seen that it is there.
        let mut relays = RelayQueue::default();
        assert!(relays.keep(b""));
        assert!(
            relays
                .next()
                .is_some_and(|kept| kept.is_empty() && kept.capacity() > 0)
        );
    }
}
