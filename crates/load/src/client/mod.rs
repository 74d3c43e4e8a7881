//! A client: one connection and its protocol state.

mod response;
pub(crate) mod tls;

use veche_net::ConnectionId;
use veche_proto::websocket::{Decoder, Encoder};
use veche_tls::TlsStream;

pub(crate) use response::{LoadResponse, ResponseExpectation, ResponseReader, says_error};
pub(crate) use tls::ClientTls;

/// A client, which can be opened again after it was closed.
#[derive(Debug)]
pub(crate) struct LoadClient {
    pub(crate) transport: ConnectionId,
    pub(crate) state: ClientState,
    pub(crate) tls: Option<Box<TlsStream>>,
    /// The time at which the connect began, in nanoseconds.
    pub(crate) began_ns: u64,
    pub(crate) endpoint: u16,
    /// The client's `{i}`: its number among all clients of its endpoint, over all threads.
    pub(crate) number: u32,
    pub(crate) was_open: bool,
    pub(crate) family: AddressFamilyChoice,
}

/// The address family to which a client connects. An endpoint has at most two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressFamilyChoice {
    /// The first address family. It is the initial choice, and the choice after this family has
    /// answered.
    First,
    Second,
    /// The first address family, because the second did not answer.
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

    /// Returns the choice for the next connect after the server has answered on this address
    /// family: the next connect tries the same family first.
    pub(crate) fn preferred(self) -> Self {
        match self.index() {
            0 => Self::First,
            _ => Self::Second,
        }
    }

    /// Returns the choice to try if the server does not answer on this address family; `None` if both were tried.
    pub(crate) fn fallback(self) -> Option<Self> {
        match self {
            Self::First => Some(Self::SecondAfterFirst),
            Self::Second => Some(Self::FirstAfterSecond),
            Self::FirstAfterSecond | Self::SecondAfterFirst => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum ClientState {
    Closed,
    /// The TCP connection or the TLS handshake is in progress.
    Connecting,
    /// The client waits for the response to its handshake.
    Handshaking(Box<WebSocketHandshake>),
    WebSocket(Decoder, Encoder),
    Http(Box<ResponseReader>),
    /// A protocol of lines, with the incomplete last line received so far.
    Lines(Vec<u8>),
    /// The tester has sent a Close frame and waits for the server to end the connection.
    Leaving,
}

/// A WebSocket handshake in progress.
#[derive(Debug)]
pub(crate) struct WebSocketHandshake {
    pub(crate) key: String,
    pub(crate) response: Vec<u8>,
}

impl ClientState {
    /// Returns whether the load has been notified that the client is open, but not that it has
    /// closed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::WebSocket(..) | Self::Http(_) | Self::Lines(_))
    }

    /// Returns whether a handshake is in progress.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self, Self::Connecting | Self::Handshaking(_))
    }
}

/// Limits the memory of a client without its buffers.
const _: () = assert!(size_of::<LoadClient>() <= 104);
