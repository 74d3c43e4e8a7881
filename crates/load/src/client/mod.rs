//! One client: a connection from its first packet to its last, and what it speaks.

mod response;
pub(crate) mod tls;

use veche_net::ConnectionId;
use veche_proto::websocket::{Decoder, Encoder};
use veche_tls::TlsStream;

pub(crate) use response::{LoadResponse, ResponseExpectation, ResponseReader, says_error};
pub(crate) use tls::ClientTls;

/// One client. A closed one can be opened again.
#[derive(Debug)]
pub(crate) struct LoadClient {
    pub(crate) transport: ConnectionId,
    pub(crate) state: State,
    pub(crate) tls: Option<Box<TlsStream>>,
    /// When the connect began.
    pub(crate) began_ns: u64,
    pub(crate) endpoint: u16,
    /// Its number among the clients of its endpoint, over all threads: its `{i}`.
    pub(crate) number: u32,
    pub(crate) was_open: bool,
    pub(crate) family: AddressFamilyChoice,
}

/// Which of its endpoint's two address families a client connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressFamilyChoice {
    /// The first or the second, which has answered last.
    First,
    Second,
    /// The same, after the other one did not answer.
    FirstAfterSecond,
    SecondAfterFirst,
}

impl AddressFamilyChoice {
    pub(crate) fn index(self) -> usize {
        match self {
            Self::First | Self::FirstAfterSecond => 0,
            Self::Second | Self::SecondAfterFirst => 1,
        }
    }

    /// The one to begin with, if this one has answered.
    pub(crate) fn preferred(self) -> Self {
        match self.index() {
            0 => Self::First,
            _ => Self::Second,
        }
    }

    /// The one to try when this one does not answer.
    pub(crate) fn fallback(self) -> Option<Self> {
        match self {
            Self::First => Some(Self::SecondAfterFirst),
            Self::Second => Some(Self::FirstAfterSecond),
            Self::FirstAfterSecond | Self::SecondAfterFirst => None,
        }
    }
}

/// How far it is, and what it is in the middle of.
#[derive(Debug)]
pub(crate) enum State {
    /// No transport.
    Closed,
    /// TCP, then TLS.
    Connecting,
    /// The response to the handshake.
    Handshaking(Box<WebSocketHandshake>),
    /// Frames.
    WebSocket(Decoder, Encoder),
    /// Responses.
    Http(Box<ResponseReader>),
    /// Lines, of which one may be incomplete.
    Lines(Vec<u8>),
    /// We have said good-bye, or had reason not to.
    Leaving,
}

/// A WebSocket handshake under way.
#[derive(Debug)]
pub(crate) struct WebSocketHandshake {
    pub(crate) key: String,
    pub(crate) response: Vec<u8>,
}

impl State {
    /// Whether the load has been told that it is open, and not that it is closed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::WebSocket(..) | Self::Http(_) | Self::Lines(_))
    }

    /// Whether a handshake is under way.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self, Self::Connecting | Self::Handshaking(_))
    }
}

/// Beside buffers that the network has filled: what a connection costs us.
const _: () = assert!(size_of::<LoadClient>() <= 104);
