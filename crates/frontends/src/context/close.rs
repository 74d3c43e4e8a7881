//! Why a session is closed: the codes that a client sees, in one place.
//!
//! 1000 to 1015 are RFC 6455's; 3000 to 3999 are those that Centrifuge clients know.

/// The server stops; come back (RFC 6455, section 7.4.1).
pub const GOING_AWAY: (u16, &str) = (1001, "server is going away");
/// Another server process has taken over: come back, to that one (the registry of RFC 6455, section 11.7: "Service
/// Restart").
pub const RESTARTING: (u16, &str) = (1012, "server is restarting");
/// No message in either direction for longer than the route allows.
pub const IDLE: (u16, &str) = (1001, "idle for too long");
/// The client does not read what it is sent.
pub const SLOW_CONSUMER: (u16, &str) = (1013, "too slow: try again later");
/// The client's address has as many connections as it may have.
pub const TOO_MANY: (u16, &str) = (1013, "too many connections of this address");
/// The client says more than its route allows.
pub const TOO_FAST: (u16, &str) = (1008, "too much too fast");
/// The token that said who the client is holds no more, and no other came; come back with a new one.
pub const EXPIRED: (u16, &str) = (3005, "connection expired");
/// Publications may be missing, and can't be had any more; come back, and recover or load the state.
pub const INSUFFICIENT_STATE: (u16, &str) = (3010, "insufficient state");
/// Channels of the session can't be subscribed to for now.
pub const UNAVAILABLE: (u16, &str) = (1013, "channels are not available: try again later");
/// The back end asked for it; no reconnect.
pub const DISCONNECTED: (u16, &str) = (3503, "disconnected by the back end");

/// The back end does not let this user in any more; no reconnect.
pub const BLOCKED: (u16, &str) = (3507, "permission denied");

/// Why the server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// It stops.
    Stopping,
    /// Another server process has taken over.
    Replaced,
}

impl Parting {
    /// The close code and its reason.
    pub fn words(self) -> (u16, &'static str) {
        match self {
            Self::Stopping => GOING_AWAY,
            Self::Replaced => RESTARTING,
        }
    }
}
