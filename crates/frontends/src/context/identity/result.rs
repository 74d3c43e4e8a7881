//! What becomes of the question which user a client is, where the answer has to be waited for.

use std::fmt;

use veche_hub::ConnectionId;
use veche_jwt::TokenError;
use veche_proto::http::Status;

/// The identity that a hook or PAM answers with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedUser {
    /// Who it is.
    pub user: String,
    /// Until when, in seconds since 1970; `None`: for as long as the connection.
    pub until_s: Option<u64>,
    /// The [endings](crate::Process::endings) when he was asked.
    pub disconnects_seen: u64,
}

/// What has become of a question that had to be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityResult {
    /// There may be other keys now: the token is to be looked at again.
    KeysFetched,
    /// The back end knows the client.
    Verified(VerifiedUser),
    /// It does not, or was not to be asked.
    Failed(AuthError),
}

/// Where a worker hears of findings.
pub trait CompletionSink: Send + Sync + fmt::Debug {
    /// Tells the worker what has become of the question of one of its connections, which may be gone by now. From any
    /// thread.
    fn complete(&self, id: ConnectionId, finding: IdentityResult);
}

/// Why a handshake names no usable user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The place where the name should stand is empty.
    #[error("no user: the handshake does not say who connects")]
    NoUser,
    /// The name is too long or has control characters.
    #[error("bad user name: 1 to 254 bytes without control characters")]
    MalformedUser,
    /// No token in any of the places where one is looked for.
    #[error("no token")]
    NoToken,
    /// A token that does not hold.
    #[error("the token is refused: {0}")]
    InvalidToken(TokenError),
    /// Its issuer, or the back end, has revoked it.
    #[error("the token was revoked")]
    Revoked,
    /// The back end does not want this user.
    #[error("this user is blocked")]
    Blocked,
    /// The back end has ended the user's connections while it was asked who this is.
    #[error("this user was disconnected meanwhile")]
    Disconnected,
    /// The back end's word held until a time that is over.
    #[error("what the back end says of this client is over")]
    Expired,
    /// A token for a channel, of clients that speak Centrifugo's protocol: it opens no connection.
    #[error("the token is refused: it is for a channel")]
    ChannelToken,
    /// There are no keys to check a token with.
    #[error("no token can be checked at the moment")]
    KeysUnavailable,
    /// The back end does not know the client: 401.
    #[error("the back end does not know who connects")]
    RejectedByHook,
    /// The back end does not want the client: 403.
    #[error("the back end does not let this client in")]
    ForbiddenByHook,
    /// The back end gave no answer of use, or is not asked for the time being.
    #[error("the back end can't be asked who connects")]
    HookUnavailable,
    /// Neither name nor password.
    #[error("no name and password")]
    NoCredentials,
    /// They break RFC 7617, or are longer than any.
    #[error("name and password can't be read")]
    MalformedCredentials,
    /// They are not right, or the account is not in order: which of these is not for strangers to know.
    #[error("name or password is wrong")]
    WrongCredentials,
    /// Whoever judges passwords can't.
    #[error("passwords can't be checked at the moment")]
    VerifierUnavailable,
    /// Too many passwords wait to be judged.
    #[error("too many passwords are being checked")]
    VerifierBusy,
    /// So many of the client's address were wrong that it has to wait.
    #[error("too many wrong passwords of this address")]
    TooManyAttempts {
        /// Until another one is judged, in seconds.
        retry_after_s: u32,
    },
}

impl AuthError {
    /// Whether keys that were not fetched yet may verify the token.
    pub(crate) fn may_need_keys(&self) -> bool {
        matches!(
            self,
            Self::KeysUnavailable | Self::InvalidToken(TokenError::UnknownKey)
        )
    }

    /// What a handshake gets.
    pub fn status(self) -> Status {
        match self {
            Self::NoUser
            | Self::NoToken
            | Self::InvalidToken(_)
            | Self::Revoked
            | Self::ChannelToken
            | Self::Disconnected
            | Self::Expired
            | Self::RejectedByHook
            | Self::NoCredentials
            | Self::MalformedCredentials
            | Self::WrongCredentials => Status::UNAUTHORIZED,
            Self::MalformedUser => Status::BAD_REQUEST,
            Self::ForbiddenByHook | Self::Blocked => Status::FORBIDDEN,
            Self::KeysUnavailable
            | Self::HookUnavailable
            | Self::VerifierUnavailable
            | Self::VerifierBusy => Status::SERVICE_UNAVAILABLE,
            Self::TooManyAttempts { .. } => Status::TOO_MANY_REQUESTS,
        }
    }

    /// When to come back, in seconds, where that is worth saying.
    pub(crate) fn retry_after_s(self) -> Option<u32> {
        match self {
            Self::VerifierUnavailable | Self::VerifierBusy => Some(1),
            Self::TooManyAttempts {
                retry_after_s: wait_s,
            } => Some(wait_s),
            _ => None,
        }
    }

    /// Whether it says nothing of the client: another try may do.
    pub fn is_server_fault(self) -> bool {
        matches!(
            self,
            Self::KeysUnavailable
                | Self::HookUnavailable
                | Self::VerifierUnavailable
                | Self::VerifierBusy
        )
    }
}
