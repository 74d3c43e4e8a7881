//! Client tokens: where a request contains them, and which identity they give.
//!
//! `veche_jwt` verifies them with the issuer keys that a [`KeyProvider`] currently has.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_hub::ConnectionId;
use veche_jwt::{ClaimRules, Keys, TokenError, VerifiedClaims, verify_open};
use veche_proto::http::Head;

use super::{
    AuthError, Authenticated, CompletionSink, IdentityChecks, IdentityClient, IdentityLease,
    Validity, is_valid_user,
};
use crate::context::app::MaybeDeferred;
use crate::context::issued_token::IssuedToken;

/// Prefix of a subprotocol that contains a token: `bearer.eyJ…`. The subprotocols are the only header of a WebSocket
/// handshake that a page can set.
pub const PROTOCOL_PREFIX: &str = "bearer.";

/// Where a route finds tokens, and how it verifies them.
#[derive(Clone, Debug)]
pub struct TokenAuth {
    /// The places to look for a token, in order. The first place with a token counts, even if the token is invalid.
    pub sources: Vec<TokenSource>,
    /// How connection tokens are verified.
    pub connections: TokenVerifier,
    /// How subscription tokens are verified; `None`: like connection tokens.
    pub subscriptions: Option<TokenVerifier>,
    /// Which clients may be anonymous.
    pub anonymous: Anonymous,
}

/// The issuer keys, and the rules for the claims of a token.
#[derive(Clone, Debug)]
pub struct TokenVerifier {
    /// The rules for the claims of a token.
    pub rules: ClaimRules,
    /// Source of the keys.
    pub keys: Arc<dyn KeyProvider>,
}

/// Which clients of a route with tokens may be anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// No client is anonymous: each needs a token with a user.
    #[default]
    None,
    /// Clients whose token has no user are anonymous; a token is required.
    Token,
    /// Clients whose token has no user, and clients without a token, are anonymous.
    All,
}

/// A place where a token may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
    Bearer,
    /// An offered subprotocol that begins with [`PROTOCOL_PREFIX`].
    Protocol,
    /// A parameter of the query.
    Query(String),
    /// A cookie with this name.
    Cookie(String),
    /// A header that contains only the token.
    Header(String),
}

/// Provides the keys of an issuer. All workers share one instance; its methods never block.
pub trait KeyProvider: Send + Sync + fmt::Debug {
    /// Returns the current keys; `None` if none were ever fetched.
    fn keys(&self) -> Option<Arc<Keys>>;

    /// Requests keys newer than `seen`, for a token that was signed with an unknown key. Returns whether
    /// [`IdentityResult::KeysFetched`](super::IdentityResult::KeysFetched) follows, exactly once: true if there are
    /// newer keys already, or if the request waits for a fetch.
    fn fetch(
        &self,
        id: ConnectionId,
        sink: &Arc<dyn CompletionSink>,
        seen: Option<&Arc<Keys>>,
    ) -> bool;
}

impl TokenAuth {
    /// Creates the default configuration: each token must have a user, and subscription tokens are verified like
    /// connection tokens.
    #[must_use]
    pub fn new(places: Vec<TokenSource>, connections: TokenVerifier) -> Self {
        Self {
            sources: places,
            connections,
            subscriptions: None,
            anonymous: Anonymous::None,
        }
    }

    pub(super) fn authenticate(
        &self,
        client: &IdentityClient<'_>,
        checks: &IdentityChecks<'_>,
    ) -> MaybeDeferred<Result<Authenticated, AuthError>> {
        let keys = &self.connections.keys;
        let seen = keys.keys();
        let named = self.authenticate_by(seen.as_deref(), client.head, checks);
        let is_without_key = named.as_ref().is_err_and(AuthError::may_need_keys);
        if is_without_key && keys.fetch(client.id, checks.completions, seen.as_ref()) {
            return MaybeDeferred::Deferred;
        }
        MaybeDeferred::Ready(named)
    }

    /// Authenticates a client with the current keys, without requesting newer ones.
    pub(super) fn authenticate_with_fetched_keys(
        &self,
        head: &Head<'_>,
        checks: &IdentityChecks<'_>,
    ) -> Result<Authenticated, AuthError> {
        self.authenticate_by(self.connections.keys.keys().as_deref(), head, checks)
    }

    fn authenticate_by(
        &self,
        keys: Option<&Keys>,
        head: &Head<'_>,
        checks: &IdentityChecks<'_>,
    ) -> Result<Authenticated, AuthError> {
        let Some(token) = self.find(head) else {
            return match self.anonymous {
                Anonymous::All => Ok(Authenticated::default()),
                Anonymous::None | Anonymous::Token => Err(AuthError::NoToken),
            };
        };
        let (lease, claims) = self.verify_by(keys, &token, checks)?;
        Ok(Authenticated {
            user: Some(lease.user.clone()).filter(|user| !user.is_empty()),
            lease: Some(Box::new(lease)),
            claims: Some(Box::new(claims)),
            disconnects_seen: None,
        })
    }

    /// Verifies a connection token with the current keys; returns its identity and all claims.
    ///
    /// # Errors
    /// The token is refused, or no keys are available.
    pub(crate) fn verify(
        &self,
        token: &str,
        checks: &IdentityChecks<'_>,
    ) -> Result<(IdentityLease, Map<String, Value>), AuthError> {
        self.verify_by(self.connections.keys.keys().as_deref(), token, checks)
    }

    fn verify_by(
        &self,
        keys: Option<&Keys>,
        token: &str,
        checks: &IdentityChecks<'_>,
    ) -> Result<(IdentityLease, Map<String, Value>), AuthError> {
        let claimed = self.connections.verify(keys, token, checks)?;
        // A subscription token authorises a subscription; it does not identify a user.
        if claimed.all.contains_key("channel") {
            return Err(AuthError::ChannelToken);
        }
        let term = self
            .connections
            .validity(&claimed)
            .map_err(AuthError::InvalidToken)?;
        if term.is_over(checks.now) {
            return Err(AuthError::InvalidToken(TokenError::Expired));
        }
        let user = self
            .user_of(claimed.user)
            .map_err(AuthError::InvalidToken)?;
        if !user.is_empty() && !is_valid_user(&user) {
            return Err(AuthError::MalformedUser);
        }
        let lease = IdentityLease {
            user,
            validity: term,
            is_final: false,
        };
        Ok((lease, claimed.all))
    }

    /// Returns the user of a connection token, `""` if it is anonymous.
    ///
    /// # Errors
    /// The token has no user, although the route requires one.
    pub(crate) fn user_of(&self, user: Option<String>) -> Result<String, TokenError> {
        match (user, self.anonymous) {
            (Some(user), _) => Ok(user),
            (None, Anonymous::None) => Err(TokenError::NoUser),
            (None, Anonymous::Token | Anonymous::All) => Ok(String::new()),
        }
    }

    /// Returns the verifier of subscription tokens.
    pub(crate) fn subscription_verifier(&self) -> &TokenVerifier {
        self.subscriptions.as_ref().unwrap_or(&self.connections)
    }

    fn find<'b>(&self, head: &Head<'b>) -> Option<Cow<'b, str>> {
        let found = self.sources.iter().find_map(|place| match place {
            TokenSource::Bearer => bearer(head.header("authorization")?).map(Cow::Borrowed),
            TokenSource::Protocol => head
                .header_all("sec-websocket-protocol")
                .flat_map(|offered| offered.split(','))
                .find_map(|offered| offered.trim().strip_prefix(PROTOCOL_PREFIX))
                .map(Cow::Borrowed),
            TokenSource::Query(name) => head.query(name),
            TokenSource::Cookie(name) => head.cookie(name).map(Cow::Borrowed),
            TokenSource::Header(name) => head.header(name).map(Cow::Borrowed),
        });
        found.filter(|token| !token.is_empty())
    }

    pub(super) fn is_token(&self, protocol: &str) -> bool {
        self.sources.contains(&TokenSource::Protocol) && protocol.starts_with(PROTOCOL_PREFIX)
    }
}

impl TokenVerifier {
    /// Returns how long a connection or subscription opened by a token is valid. If the token has
    /// Centrifugo's claim `expire_at`, the validity ends then (0: never); otherwise it ends when
    /// the token expires.
    ///
    /// # Errors
    /// The value of `expire_at` is invalid.
    pub(crate) fn validity(&self, claimed: &VerifiedClaims) -> Result<Validity, TokenError> {
        match claimed.all.get("expire_at") {
            None | Some(Value::Null) => Ok(Validity {
                until_ms: claimed.expires_s.map(|at_s| at_s.saturating_mul(1000)),
                leeway_ms: self.rules.leeway_s.saturating_mul(1000),
            }),
            Some(at) => match at.as_u64() {
                Some(at_s) => Ok(Validity::until_s((at_s > 0).then_some(at_s))),
                None => Err(TokenError::Claim(
                    "expire_at has to be a whole number of seconds since 1970, or 0",
                )),
            },
        }
    }

    /// Verifies a token with `keys` and returns its claims. The token need not have a user.
    ///
    /// # Errors
    /// The token is invalid or revoked, or no keys are available.
    pub(crate) fn verify(
        &self,
        keys: Option<&Keys>,
        token: &str,
        checks: &IdentityChecks<'_>,
    ) -> Result<VerifiedClaims, AuthError> {
        let keys = keys.ok_or(AuthError::KeysUnavailable)?;
        let now_s = checks.now.wall_ms / 1000;
        let claimed =
            verify_open(token, keys, &self.rules, now_s).map_err(AuthError::InvalidToken)?;
        let issued = IssuedToken {
            user: claimed.user.as_deref(),
            id: claimed.all.get("jti").and_then(Value::as_str),
            issued_at_s: claimed.all.get("iat").and_then(seconds),
        };
        match checks.process.is_revoked(&issued, now_s) {
            true => Err(AuthError::Revoked),
            false => Ok(claimed),
        }
    }
}

/// Parses a NumericDate (RFC 7519 section 2) to whole seconds; the number may have a fraction.
fn seconds(value: &Value) -> Option<u64> {
    let whole = value.as_u64();
    whole.or_else(|| value.as_f64().map(|seconds| seconds.max(0.0) as u64))
}

/// Returns the token of an `Authorization` value with the scheme `Bearer`, which is case-insensitive and followed by
/// spaces (RFC 9110 section 11.4).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start_matches(' '))
}
