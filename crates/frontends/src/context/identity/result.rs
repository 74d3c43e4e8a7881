//! Results of asynchronous authentication.

use std::fmt;

use veche_hub::ConnectionId;
use veche_jwt::TokenError;
use veche_proto::http::Status;

/// The identity returned by a hook or PAM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedUser {
    /// The name of the user.
    pub user: String,
    /// When the identity expires, in seconds since 1970; `None`: it is valid as long as the connection.
    pub until_s: Option<u64>,
    /// The [`disconnect_count`](crate::ProcessServices::disconnect_count) when authentication began.
    pub disconnects_seen: u64,
}

/// The result of asynchronous authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityResult {
    /// New issuer keys may be available, so the token has to be verified again.
    KeysFetched,
    /// The client was authenticated.
    Verified(VerifiedUser),
    /// The client was not authenticated, or authentication is unavailable.
    Failed(AuthError),
}

/// Receives authentication results for a worker.
pub trait CompletionSink: Send + Sync + fmt::Debug {
    /// Sends the result for a connection to that connection's worker; the connection may be closed by then. May be
    /// called on any thread.
    fn complete(&self, id: ConnectionId, identity_result: IdentityResult);
}

/// Why a client was not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The request has no name in the place that the route configures.
    #[error("no user name in the handshake")]
    NoUser,
    /// The name is too long or has control characters.
    #[error("bad user name: must have 1 to 254 bytes and no control characters")]
    MalformedUser,
    /// The request has no token in any of the configured places.
    #[error("no token")]
    NoToken,
    /// The token is invalid.
    #[error("the token is refused: {0}")]
    InvalidToken(TokenError),
    /// The token was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// The user is banned.
    #[error("this user is blocked")]
    Blocked,
    /// A back end disconnected the user while authentication was in progress.
    #[error("this user was disconnected during the handshake")]
    Disconnected,
    /// The identity in the back end's answer has already expired.
    #[error("the authorization of this client has expired")]
    Expired,
    /// The token is a channel token of Centrifugo's protocol, which can't open a connection.
    #[error("the token is refused: it is a subscription token")]
    ChannelToken,
    /// No issuer keys have been fetched yet, so the token can't be verified.
    #[error("tokens can't be verified at the moment")]
    KeysUnavailable,
    /// The back end rejected the client with 401.
    #[error("the back end rejected the credentials")]
    RejectedByHook,
    /// The back end denied access with 403.
    #[error("the back end refused this client")]
    ForbiddenByHook,
    /// The back end gave no valid answer, or requests to its hook are paused after failures.
    #[error("the identity hook is unavailable")]
    HookUnavailable,
    /// The request has no name and password.
    #[error("a user name and a password are required")]
    NoCredentials,
    /// The credentials are too long, or malformed according to RFC 7617.
    #[error("the credentials are malformed")]
    MalformedCredentials,
    /// The password is wrong or the account is invalid; the client is not told which.
    #[error("wrong user name or password")]
    WrongCredentials,
    /// The password verifier is unavailable.
    #[error("passwords can't be checked at the moment")]
    VerifierUnavailable,
    /// Too many passwords are waiting for verification.
    #[error("too many passwords are being checked")]
    VerifierBusy,
    /// Too many wrong passwords came from the client's address.
    #[error("too many wrong passwords of this address")]
    TooManyAttempts {
        /// Seconds until the next attempt is checked.
        retry_after_s: u32,
    },
}

impl AuthError {
    /// Returns whether verification failed because of keys that may be available after a fetch.
    pub(crate) fn may_need_keys(&self) -> bool {
        matches!(
            self,
            Self::KeysUnavailable | Self::InvalidToken(TokenError::UnknownKey)
        )
    }

    /// Returns the HTTP status of the response that refuses the handshake.
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

    /// Returns the number of seconds for `Retry-After`, if the header is useful.
    pub(crate) fn retry_after_s(self) -> Option<u32> {
        match self {
            Self::VerifierUnavailable | Self::VerifierBusy => Some(1),
            Self::TooManyAttempts {
                retry_after_s: wait_s,
            } => Some(wait_s),
            _ => None,
        }
    }

    /// Returns whether the failure is caused by the server or the back end rather than the client, so that a retry
    /// may succeed.
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
