//! The tokens in commands: checks of connection tokens and subscription tokens.
//!
//! Tokens are verified with the keys of the route's identity. If newer keys may be available, the command waits for
//! them, at most once.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use veche_centrifuge::{DisconnectCode, ErrorCode};
use veche_hub::ConnectionId;
use veche_jwt::{Keys, TokenError, VerifiedClaims};

use super::claims::{ConnectionClaims, SubscriptionClaims};
use crate::context::identity::token::{TokenAuth, TokenVerifier};
use crate::context::identity::{AuthError, Identity, IdentityLease, Validity, is_valid_user};
use crate::context::log_note::{AuthDecision, NoteLevel};
use crate::context::route::Route;
use crate::context::worker_context::Context;

/// Why a token is not accepted at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenDenied {
    /// The token may be valid with newer keys, which are being fetched.
    Later,
    /// The token has expired.
    Expired,
    /// The token is valid, but what it grants has expired (`expire_at`).
    Revoked,
    /// The token is invalid.
    Bad(AuthError),
    /// The token is valid, but for another purpose.
    NotFor(&'static str),
    /// The token can't be verified because there are no keys, which is not the client's fault.
    NoKeys,
    /// The route does not use tokens.
    Unused,
}

impl fmt::Display for TokenDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later | Self::NoKeys => AuthError::KeysUnavailable.fmt(f),
            Self::Expired => AuthError::InvalidToken(TokenError::Expired).fmt(f),
            Self::Revoked => f.write_str("the token is refused: its expire_at has passed"),
            Self::Bad(unknown) => unknown.fmt(f),
            Self::NotFor(what) => write!(f, "the token is refused: {what}"),
            Self::Unused => f.write_str("tokens are not used on this route"),
        }
    }
}

impl From<TokenError> for TokenDenied {
    fn from(refusal: TokenError) -> Self {
        Self::Bad(AuthError::InvalidToken(refusal))
    }
}

impl TokenDenied {
    /// Returns the error of a connect command with this token, or the close code if the connection can't continue.
    pub(super) fn connect_error(self) -> Result<ErrorCode, DisconnectCode> {
        match self {
            Self::Expired => Ok(ErrorCode::TokenExpired),
            Self::Revoked => Ok(ErrorCode::Expired),
            Self::NoKeys => Ok(ErrorCode::Internal),
            Self::Later | Self::Bad(_) | Self::NotFor(_) | Self::Unused => {
                Err(DisconnectCode::InvalidToken)
            }
        }
    }

    /// Returns the error of a subscribe or `sub_refresh` command with this token.
    pub(super) fn subscribe_error(self) -> ErrorCode {
        match self {
            Self::Expired => ErrorCode::TokenExpired,
            Self::Revoked => ErrorCode::Expired,
            Self::NoKeys => ErrorCode::Internal,
            Self::Later | Self::Bad(_) | Self::NotFor(_) | Self::Unused => {
                ErrorCode::PermissionDenied
            }
        }
    }

    /// Logs the refusal; the level is a warning if only the issuer can have caused it.
    pub(super) fn note(self, id: ConnectionId, shared: &mut Context) {
        let level = match self {
            Self::Bad(AuthError::InvalidToken(TokenError::Claim(_))) => NoteLevel::Warn,
            _ => NoteLevel::Info,
        };
        let why = self.to_string();
        refused_token(id, &why, shared);
        shared.log(id, level, why);
    }
}

/// The content of a verified connection token.
#[derive(Debug)]
pub(super) struct ConnectionToken {
    pub(super) lease: IdentityLease,
    pub(super) claims: ConnectionClaims,
}

/// The content of a verified subscription token.
#[derive(Debug)]
pub(super) struct SubscriptionToken {
    pub(super) validity: Validity,
    pub(super) claims: SubscriptionClaims,
}

/// The channel, user and connection for which a subscription token has to be issued.
#[derive(Clone, Copy)]
pub(super) struct TokenSubject<'a> {
    pub(super) channel: &'a str,
    pub(super) user: &'a str,
    pub(super) client: &'a str,
}

/// Verifies tokens of a session.
pub(super) struct TokenCheck<'a> {
    pub(super) id: ConnectionId,
    pub(super) route: &'a Route,
    /// Whether newer keys were already requested for the current command.
    pub(super) has_asked: bool,
}

impl TokenCheck<'_> {
    /// Verifies a connection token.
    pub(super) fn connection(
        &self,
        token: &str,
        shared: &Context,
    ) -> Result<ConnectionToken, TokenDenied> {
        let tokens = self.tokens()?;
        let (mut claimed, term) = self.claimed(&tokens.connections, token, shared)?;
        // A token with a channel is a subscription token: it authorises a subscription and does not identify a user.
        if claimed.all.contains_key("channel") {
            return Err(TokenDenied::Bad(AuthError::ChannelToken));
        }
        let user = tokens.user_of(claimed.user.take())?;
        if !user.is_empty() && !is_valid_user(&user) {
            return Err(TokenError::NoUser.into());
        }
        Ok(ConnectionToken {
            lease: IdentityLease {
                user,
                validity: term,
                is_final: false,
            },
            claims: counted(
                ConnectionClaims::read(&claimed.all, &shared.config.namespaces),
                shared,
            )?,
        })
    }

    /// Verifies a subscription token. It has to be for this channel and this user. If it names a connection, it has
    /// to name this connection.
    pub(super) fn subscription(
        &self,
        token: &str,
        place: TokenSubject<'_>,
        shared: &Context,
    ) -> Result<SubscriptionToken, TokenDenied> {
        let verifier = self.tokens()?.subscription_verifier();
        let (claimed, term) = self.claimed(verifier, token, shared)?;
        if claimed.all.get("channel").and_then(Value::as_str) != Some(place.channel) {
            return Err(TokenDenied::NotFor("it is for another channel"));
        }
        if claimed.user.as_deref().unwrap_or_default() != place.user {
            return Err(TokenDenied::NotFor("it belongs to another user"));
        }
        let options = shared.config.namespaces.of(place.channel);
        let says = counted(SubscriptionClaims::read(&claimed.all, &options), shared)?;
        let client = says.client.as_deref();
        if client.is_some_and(|client| client != place.client) {
            return Err(TokenDenied::NotFor("it is for another connection"));
        }
        Ok(SubscriptionToken {
            validity: term,
            claims: says,
        })
    }

    fn tokens(&self) -> Result<&TokenAuth, TokenDenied> {
        match &self.route.identity {
            Identity::Token(tokens) => Ok(tokens),
            _ => Err(TokenDenied::Unused),
        }
    }

    fn claimed(
        &self,
        verifier: &TokenVerifier,
        token: &str,
        shared: &Context,
    ) -> Result<(VerifiedClaims, Validity), TokenDenied> {
        let seen = verifier.keys.keys();
        let verified = verifier.verify(seen.as_deref(), token, &shared.identity_checks());
        let verified = verified.and_then(|claimed| {
            let term = verifier
                .validity(&claimed)
                .map_err(AuthError::InvalidToken)?;
            Ok((claimed, term))
        });
        let unknown = match verified {
            Ok((_, term)) if term.is_over(shared.now) => return Err(TokenDenied::Revoked),
            Ok(verified) => return Ok(verified),
            Err(unknown) => unknown,
        };
        if self.fetches_keys(verifier, seen.as_ref(), unknown, shared) {
            return Err(TokenDenied::Later);
        }
        if let AuthError::InvalidToken(refusal) = unknown {
            shared.stats.token_refused(refusal);
        }
        Err(match unknown {
            AuthError::InvalidToken(TokenError::Expired) => TokenDenied::Expired,
            AuthError::KeysUnavailable => TokenDenied::NoKeys,
            other => TokenDenied::Bad(other),
        })
    }

    fn fetches_keys(
        &self,
        verifier: &TokenVerifier,
        seen: Option<&Arc<Keys>>,
        unknown: AuthError,
        shared: &Context,
    ) -> bool {
        let may_ask = unknown.may_need_keys() && !self.has_asked;
        may_ask && verifier.keys.fetch(self.id, &shared.completions, seen)
    }
}

/// Returns the result of reading a token's claims. An error is counted as a refused token and converted.
pub(super) fn counted<T>(read: Result<T, TokenError>, shared: &Context) -> Result<T, TokenDenied> {
    read.map_err(|refusal| {
        shared.stats.token_refused(refusal);
        refusal.into()
    })
}

/// Reports a refused token to the decision log, with the user of the connection if that is known.
fn refused_token(id: ConnectionId, reason: &str, shared: &Context) {
    shared.log_decision(&AuthDecision {
        what: "token",
        user: shared.hub.user_of(id).unwrap_or_default(),
        reason,
        ..AuthDecision::default()
    });
}
