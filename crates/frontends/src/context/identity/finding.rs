//! Results of asynchronous authentication.

use std::fmt;

use veche_hub::ConnectionId;
use veche_jwt::Refusal;
use veche_proto::http::Status;

/// The identity returned by a hook or PAM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// The name of the user.
    pub user: String,
    /// Expiry in seconds since 1970; `None`: valid as long as the connection.
    pub until_s: Option<u64>,
    /// The [`endings`](crate::Process::endings) when authentication began.
    pub asked: u64,
}

/// The result of asynchronous authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// New keys may be available: verify the token again.
    Keys,
    /// The client was authenticated.
    Named(Word),
    /// Authentication failed or was unavailable.
    Unknown(Unknown),
}

/// Receives authentication results for a worker.
pub trait Desk: Send + Sync + fmt::Debug {
    /// Sends the result for a connection, which may be closed by now, to its worker. May be called on any thread.
    fn tell(&self, id: ConnectionId, finding: Finding);
}

/// Why a client was not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The configured source of the name is empty.
    #[error("no user in the handshake")]
    Missing,
    /// The name is too long or has control characters.
    #[error("bad user name: 1 to 254 bytes without control characters")]
    Malformed,
    /// None of the token sources has a token.
    #[error("no token")]
    NoToken,
    /// The token is invalid.
    #[error("the token is refused: {0}")]
    Token(Refusal),
    /// The token was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// The user is banned.
    #[error("this user is blocked")]
    Blocked,
    /// The user was disconnected during authentication.
    #[error("this user was disconnected meanwhile")]
    Ended,
    /// The identity from the back end has expired.
    #[error("what the back end says of this client is over")]
    Over,
    /// A channel token of Centrifugo's protocol, which can't open a connection.
    #[error("the token is refused: it is for a channel")]
    OfChannel,
    /// No keys to verify a token.
    #[error("no token can be checked at the moment")]
    NoKeys,
    /// The back end rejected the client: 401.
    #[error("the back end does not know who connects")]
    Stranger,
    /// The back end denied access: 403.
    #[error("the back end does not let this client in")]
    Unwanted,
    /// The back end gave no valid answer, or its hook is paused.
    #[error("the back end can't be asked who connects")]
    NoAnswer,
    /// No name and password.
    #[error("no name and password")]
    NoPassword,
    /// Malformed credentials by RFC 7617, or too long.
    #[error("name and password can't be read")]
    BadPassword,
    /// Wrong credentials or an invalid account, without distinction for the client.
    #[error("name or password is wrong")]
    WrongPassword,
    /// The password verifier is unavailable.
    #[error("passwords can't be checked at the moment")]
    NoJudge,
    /// Too many passwords are waiting for verification.
    #[error("too many passwords are being checked")]
    Crowded,
    /// Too many wrong passwords from the client's address.
    #[error("too many wrong passwords of this address")]
    Guessing {
        /// Seconds until the next attempt is checked.
        wait_s: u32,
    },
}

impl Unknown {
    /// Returns whether keys that were not fetched yet may verify the token.
    pub(crate) fn is_without_key(&self) -> bool {
        matches!(self, Self::NoKeys | Self::Token(Refusal::UnknownKey))
    }

    /// Returns the status of the refused handshake.
    pub fn status(self) -> Status {
        match self {
            Self::Missing
            | Self::NoToken
            | Self::Token(_)
            | Self::Revoked
            | Self::OfChannel
            | Self::Ended
            | Self::Over
            | Self::Stranger
            | Self::NoPassword
            | Self::BadPassword
            | Self::WrongPassword => Status::UNAUTHORIZED,
            Self::Malformed => Status::BAD_REQUEST,
            Self::Unwanted | Self::Blocked => Status::FORBIDDEN,
            Self::NoKeys | Self::NoAnswer | Self::NoJudge | Self::Crowded => {
                Status::SERVICE_UNAVAILABLE
            }
            Self::Guessing { .. } => Status::TOO_MANY_REQUESTS,
        }
    }

    /// Returns the seconds for `Retry-After`, if useful.
    pub(crate) fn wait_s(self) -> Option<u32> {
        match self {
            Self::NoJudge | Self::Crowded => Some(1),
            Self::Guessing { wait_s } => Some(wait_s),
            _ => None,
        }
    }

    /// Returns whether the failure is independent of the client, so that a retry may succeed.
    pub fn is_ours(self) -> bool {
        matches!(
            self,
            Self::NoKeys | Self::NoAnswer | Self::NoJudge | Self::Crowded
        )
    }
}
