//! What becomes of the question which user a client is, where the answer has to be waited for.

use std::fmt;

use veche_hub::ConnectionId;
use veche_jwt::Refusal;
use veche_proto::http::Status;

/// The identity that a hook or PAM answers with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Who it is.
    pub user: String,
    /// Until when, in seconds since 1970; `None`: for as long as the connection.
    pub until_s: Option<u64>,
    /// The [endings](crate::Process::endings) when he was asked.
    pub asked: u64,
}

/// What has become of a question that had to be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// There may be other keys now: the token is to be looked at again.
    Keys,
    /// The back end knows the client.
    Named(Word),
    /// It does not, or was not to be asked.
    Unknown(Unknown),
}

/// Where a worker hears of findings.
pub trait Desk: Send + Sync + fmt::Debug {
    /// Tells the worker what has become of the question of one of its connections, which may be gone by now. From any
    /// thread.
    fn tell(&self, id: ConnectionId, finding: Finding);
}

/// Why a handshake names no usable user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The place where the name should stand is empty.
    #[error("no user in the handshake")]
    Missing,
    /// The name is too long or has control characters.
    #[error("bad user name: 1 to 254 bytes without control characters")]
    Malformed,
    /// No token in any of the places where one is looked for.
    #[error("no token")]
    NoToken,
    /// A token that does not hold.
    #[error("the token is refused: {0}")]
    Token(Refusal),
    /// Its issuer, or the back end, has revoked it.
    #[error("the token was revoked")]
    Revoked,
    /// The back end does not want this user.
    #[error("this user is blocked")]
    Blocked,
    /// The back end has ended the user's connections while it was asked who this is.
    #[error("this user was disconnected meanwhile")]
    Ended,
    /// The back end's word held until a time that is over.
    #[error("what the back end says of this client is over")]
    Over,
    /// A token for a channel, of clients that speak Centrifugo's protocol: it opens no connection.
    #[error("the token is refused: it is for a channel")]
    OfChannel,
    /// There are no keys to check a token with.
    #[error("no token can be checked at the moment")]
    NoKeys,
    /// The back end does not know the client: 401.
    #[error("the back end does not know who connects")]
    Stranger,
    /// The back end does not want the client: 403.
    #[error("the back end does not let this client in")]
    Unwanted,
    /// The back end gave no answer of use, or is not asked for the time being.
    #[error("the back end can't be asked who connects")]
    NoAnswer,
    /// Neither name nor password.
    #[error("no name and password")]
    NoPassword,
    /// They break RFC 7617, or are longer than any.
    #[error("name and password can't be read")]
    BadPassword,
    /// They are not right, or the account is not in order: which of these is not for strangers to know.
    #[error("name or password is wrong")]
    WrongPassword,
    /// Whoever judges passwords can't.
    #[error("passwords can't be checked at the moment")]
    NoJudge,
    /// Too many passwords wait to be judged.
    #[error("too many passwords are being checked")]
    Crowded,
    /// So many of the client's address were wrong that it has to wait.
    #[error("too many wrong passwords of this address")]
    Guessing {
        /// Until another one is judged, in seconds.
        wait_s: u32,
    },
}

impl Unknown {
    /// Whether keys that were not fetched yet may verify the token.
    pub(crate) fn is_without_key(&self) -> bool {
        matches!(self, Self::NoKeys | Self::Token(Refusal::UnknownKey))
    }

    /// What a handshake gets.
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

    /// When to come back, in seconds, where that is worth saying.
    pub(crate) fn wait_s(self) -> Option<u32> {
        match self {
            Self::NoJudge | Self::Crowded => Some(1),
            Self::Guessing { wait_s } => Some(wait_s),
            _ => None,
        }
    }

    /// Whether it says nothing of the client: another try may do.
    pub fn is_ours(self) -> bool {
        matches!(
            self,
            Self::NoKeys | Self::NoAnswer | Self::NoJudge | Self::Crowded
        )
    }
}
