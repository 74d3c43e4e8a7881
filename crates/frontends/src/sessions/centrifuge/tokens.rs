//! Tokens in commands: checks for connections and subscriptions.
//!
//! They are verified with the keys of the route's identity. If newer keys may be available, the command waits for them
//! once.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use veche_centrifuge::{DisconnectCode, ErrorCode};
use veche_hub::ConnectionId;
use veche_jwt::{Claimed, Keys, Refusal};

use super::claims::{Connection, Subscription};
use crate::context::identity::token::{Tokens, Verifier};
use crate::context::identity::{Identity, Lease, Term, Unknown, is_valid_user};
use crate::context::note::{Decision, NoteLevel};
use crate::context::route::Route;
use crate::context::shared::Shared;

/// Why a token is not accepted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// New keys are being fetched.
    Later,
    /// The token has expired.
    Expired,
    /// The token is valid, but its grant has expired.
    Over,
    /// The token is invalid.
    Bad(Unknown),
    /// The token is for something else.
    NotFor(&'static str),
    /// The token can't be verified, through no fault of the client.
    NoKeys,
    /// The route does not use tokens.
    Unused,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later | Self::NoKeys => Unknown::NoKeys.fmt(f),
            Self::Expired => Unknown::Token(Refusal::Expired).fmt(f),
            Self::Over => f.write_str("the token is refused: its expire_at is over"),
            Self::Bad(unknown) => unknown.fmt(f),
            Self::NotFor(what) => write!(f, "the token is refused: {what}"),
            Self::Unused => f.write_str("tokens are not used on this route"),
        }
    }
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Bad(Unknown::Token(refusal))
    }
}

impl Denied {
    /// Returns the error of a connect command, or a close code.
    pub(super) fn to_connect(self) -> Result<ErrorCode, DisconnectCode> {
        match self {
            Self::Expired => Ok(ErrorCode::TokenExpired),
            Self::Over => Ok(ErrorCode::Expired),
            Self::NoKeys => Ok(ErrorCode::Internal),
            Self::Later | Self::Bad(_) | Self::NotFor(_) | Self::Unused => {
                Err(DisconnectCode::InvalidToken)
            }
        }
    }

    /// Returns the error of a command for one channel.
    pub(super) fn to_channel(self) -> ErrorCode {
        match self {
            Self::Expired => ErrorCode::TokenExpired,
            Self::Over => ErrorCode::Expired,
            Self::NoKeys => ErrorCode::Internal,
            Self::Later | Self::Bad(_) | Self::NotFor(_) | Self::Unused => {
                ErrorCode::PermissionDenied
            }
        }
    }

    /// Logs the refusal, as a warning if only the issuer can be at fault.
    pub(super) fn note(self, id: ConnectionId, shared: &mut Shared) {
        let level = match self {
            Self::Bad(Unknown::Token(Refusal::Claim(_))) => NoteLevel::Warn,
            _ => NoteLevel::Info,
        };
        let why = self.to_string();
        refused_token(id, &why, shared);
        shared.note(id, level, why);
    }
}

/// The content of a connection token.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) lease: Lease,
    pub(super) says: Connection,
}

/// The content of a subscription token.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) term: Term,
    pub(super) says: Subscription,
}

/// The channel, user and connection that a token must be for.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) channel: &'a str,
    pub(super) user: &'a str,
    pub(super) client: &'a str,
}

/// Verifies tokens of a session.
pub(super) struct Judge<'a> {
    pub(super) id: ConnectionId,
    pub(super) route: &'a Route,
    /// Newer keys were already requested.
    pub(super) has_asked: bool,
}

impl Judge<'_> {
    /// Verifies a connection token.
    pub(super) fn connection(&self, token: &str, shared: &Shared) -> Result<Pass, Denied> {
        let tokens = self.tokens()?;
        let (mut claimed, term) = self.claimed(&tokens.connections, token, shared)?;
        // A subscription token authorises a subscription; it does not identify a user.
        if claimed.all.contains_key("channel") {
            return Err(Denied::Bad(Unknown::OfChannel));
        }
        let user = tokens.user_of(claimed.user.take())?;
        if !user.is_empty() && !is_valid_user(&user) {
            return Err(Refusal::NoUser.into());
        }
        Ok(Pass {
            lease: Lease {
                user,
                term,
                is_final: false,
            },
            says: counted(
                Connection::read(&claimed.all, &shared.site.namespaces),
                shared,
            )?,
        })
    }

    /// Verifies a subscription token: for this channel and user, and for this connection if it names one.
    pub(super) fn subscription(
        &self,
        token: &str,
        place: Place<'_>,
        shared: &Shared,
    ) -> Result<Grant, Denied> {
        let verifier = self.tokens()?.of_subscriptions();
        let (claimed, term) = self.claimed(verifier, token, shared)?;
        if claimed.all.get("channel").and_then(Value::as_str) != Some(place.channel) {
            return Err(Denied::NotFor("it is not for this channel"));
        }
        if claimed.user.as_deref().unwrap_or_default() != place.user {
            return Err(Denied::NotFor("it belongs to another user"));
        }
        let options = shared.site.namespaces.of(place.channel);
        let says = counted(Subscription::read(&claimed.all, &options), shared)?;
        let client = says.client.as_deref();
        if client.is_some_and(|client| client != place.client) {
            return Err(Denied::NotFor("it is for another connection"));
        }
        Ok(Grant { term, says })
    }

    fn tokens(&self) -> Result<&Tokens, Denied> {
        match &self.route.identity {
            Identity::Token(tokens) => Ok(tokens),
            _ => Err(Denied::Unused),
        }
    }

    fn claimed(
        &self,
        verifier: &Verifier,
        token: &str,
        shared: &Shared,
    ) -> Result<(Claimed, Term), Denied> {
        let seen = verifier.keys.keys();
        let judged = verifier.judge(seen.as_deref(), token, &shared.checks());
        let judged = judged.and_then(|claimed| {
            let term = verifier.term(&claimed).map_err(Unknown::Token)?;
            Ok((claimed, term))
        });
        let unknown = match judged {
            Ok((_, term)) if term.is_over(shared.now) => return Err(Denied::Over),
            Ok(judged) => return Ok(judged),
            Err(unknown) => unknown,
        };
        if self.looks_for_keys(verifier, seen.as_ref(), unknown, shared) {
            return Err(Denied::Later);
        }
        if let Unknown::Token(refusal) = unknown {
            shared.stats.token_refused(refusal);
        }
        Err(match unknown {
            Unknown::Token(Refusal::Expired) => Denied::Expired,
            Unknown::NoKeys => Denied::NoKeys,
            other => Denied::Bad(other),
        })
    }

    fn looks_for_keys(
        &self,
        verifier: &Verifier,
        seen: Option<&Arc<Keys>>,
        unknown: Unknown,
        shared: &Shared,
    ) -> bool {
        let may_ask = unknown.is_without_key() && !self.has_asked;
        may_ask && verifier.keys.look_for_more(self.id, &shared.desk, seen)
    }
}

/// Counts a token with invalid claims.
pub(super) fn counted<T>(read: Result<T, Refusal>, shared: &Shared) -> Result<T, Denied> {
    read.map_err(|refusal| {
        shared.stats.token_refused(refusal);
        refusal.into()
    })
}

/// Reports a refused token to the decision log, with the connection's user if known.
fn refused_token(id: ConnectionId, reason: &str, shared: &Shared) {
    shared.decided(&Decision {
        what: "token",
        user: shared.hub.user_of(id).unwrap_or_default(),
        reason,
        ..Decision::default()
    });
}
