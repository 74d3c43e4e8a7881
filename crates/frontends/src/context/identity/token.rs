//! Client tokens: where they are found in a request, and their results.
//!
//! `veche_jwt` verifies them with the current keys of a [`Keychain`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_hub::ConnectionId;
use veche_jwt::{Claimed, Keys, Refusal, Rules, verify_open};
use veche_proto::http::Head;

use super::{Checks, Client, Desk, Lease, Named, Term, Unknown, is_valid_user};
use crate::context::app::Outcome;
use crate::context::blocks::Issued;

/// Prefix of a token among the subprotocols: `bearer.eyJ…`. Browsers can set no other header.
pub const PROTOCOL_PREFIX: &str = "bearer.";

/// How tokens are found and verified.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Token sources; the first one with a token counts, even if that is invalid.
    pub places: Vec<Place>,
    /// How connection tokens are verified.
    pub connections: Verifier,
    /// Verifies subscription tokens; `None`: like those of connections.
    pub subscriptions: Option<Verifier>,
    /// Which clients may be anonymous.
    pub anonymous: Anonymous,
}

/// Keys and claim rules for tokens.
#[derive(Clone, Debug)]
pub struct Verifier {
    /// Rules for the claims.
    pub rules: Rules,
    /// Source of the keys.
    pub keys: Arc<dyn Keychain>,
}

/// Which clients of a route with tokens may be anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// None: every client needs a token with a user.
    #[default]
    None,
    /// Clients with a token without a user.
    Token,
    /// Also clients without a token.
    All,
}

/// A place where a token may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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

/// Provides the keys of an issuer. Shared by all workers; never blocks.
pub trait Keychain: Send + Sync + fmt::Debug {
    /// Returns the current keys; `None` if there have never been any.
    fn keys(&self) -> Option<Arc<Keys>>;

    /// Requests newer keys than those `seen`, for a token signed with an unknown key. Returns whether there are newer
    /// ones or a fetch is in progress: then [`Finding::Keys`](super::Finding::Keys) follows once.
    fn look_for_more(
        &self,
        id: ConnectionId,
        desk: &Arc<dyn Desk>,
        seen: Option<&Arc<Keys>>,
    ) -> bool;
}

impl Tokens {
    /// Creates the default configuration: each token has a user, and all are verified alike.
    #[must_use]
    pub fn new(places: Vec<Place>, connections: Verifier) -> Self {
        Self {
            places,
            connections,
            subscriptions: None,
            anonymous: Anonymous::None,
        }
    }

    pub(super) fn name(
        &self,
        client: &Client<'_>,
        checks: &Checks<'_>,
    ) -> Outcome<Result<Named, Unknown>> {
        let keys = &self.connections.keys;
        let seen = keys.keys();
        let named = self.name_by(seen.as_deref(), client.head, checks);
        let is_without_key = named.as_ref().is_err_and(Unknown::is_without_key);
        if is_without_key && keys.look_for_more(client.id, checks.desk, seen.as_ref()) {
            return Outcome::Later;
        }
        Outcome::Now(named)
    }

    /// Authenticates with the current keys, without a fetch.
    pub(super) fn name_at_last(
        &self,
        head: &Head<'_>,
        checks: &Checks<'_>,
    ) -> Result<Named, Unknown> {
        self.name_by(self.connections.keys.keys().as_deref(), head, checks)
    }

    fn name_by(
        &self,
        keys: Option<&Keys>,
        head: &Head<'_>,
        checks: &Checks<'_>,
    ) -> Result<Named, Unknown> {
        let Some(token) = self.find(head) else {
            return match self.anonymous {
                Anonymous::All => Ok(Named::default()),
                Anonymous::None | Anonymous::Token => Err(Unknown::NoToken),
            };
        };
        let (lease, claims) = self.judge_by(keys, &token, checks)?;
        Ok(Named {
            user: Some(lease.user.clone()).filter(|user| !user.is_empty()),
            lease: Some(Box::new(lease)),
            claims: Some(Box::new(claims)),
            asked: None,
        })
    }

    /// Verifies a connection token with the current keys; returns its identity and all claims.
    ///
    /// # Errors
    /// The token is refused, or there are no keys.
    pub(crate) fn judge(
        &self,
        token: &str,
        checks: &Checks<'_>,
    ) -> Result<(Lease, Map<String, Value>), Unknown> {
        self.judge_by(self.connections.keys.keys().as_deref(), token, checks)
    }

    fn judge_by(
        &self,
        keys: Option<&Keys>,
        token: &str,
        checks: &Checks<'_>,
    ) -> Result<(Lease, Map<String, Value>), Unknown> {
        let claimed = self.connections.judge(keys, token, checks)?;
        // A subscription token authorises a subscription; it does not identify a user.
        if claimed.all.contains_key("channel") {
            return Err(Unknown::OfChannel);
        }
        let term = self.connections.term(&claimed).map_err(Unknown::Token)?;
        if term.is_over(checks.now) {
            return Err(Unknown::Token(Refusal::Expired));
        }
        let user = self.user_of(claimed.user).map_err(Unknown::Token)?;
        if !user.is_empty() && !is_valid_user(&user) {
            return Err(Unknown::Malformed);
        }
        let lease = Lease {
            user,
            term,
            is_final: false,
        };
        Ok((lease, claimed.all))
    }

    /// Returns the user of a connection token, `""` for an anonymous one.
    ///
    /// # Errors
    /// The token has no user but needs one.
    pub(crate) fn user_of(&self, user: Option<String>) -> Result<String, Refusal> {
        match (user, self.anonymous) {
            (Some(user), _) => Ok(user),
            (None, Anonymous::None) => Err(Refusal::NoUser),
            (None, Anonymous::Token | Anonymous::All) => Ok(String::new()),
        }
    }

    /// Returns the verifier of subscription tokens.
    pub(crate) fn of_subscriptions(&self) -> &Verifier {
        self.subscriptions.as_ref().unwrap_or(&self.connections)
    }

    fn find<'b>(&self, head: &Head<'b>) -> Option<Cow<'b, str>> {
        let found = self.places.iter().find_map(|place| match place {
            Place::Bearer => bearer(head.header("authorization")?).map(Cow::Borrowed),
            Place::Protocol => head
                .header_all("sec-websocket-protocol")
                .flat_map(|offered| offered.split(','))
                .find_map(|offered| offered.trim().strip_prefix(PROTOCOL_PREFIX))
                .map(Cow::Borrowed),
            Place::Query(name) => head.query(name),
            Place::Cookie(name) => head.cookie(name).map(Cow::Borrowed),
            Place::Header(name) => head.header(name).map(Cow::Borrowed),
        });
        found.filter(|token| !token.is_empty())
    }

    pub(super) fn is_token(&self, protocol: &str) -> bool {
        self.places.contains(&Place::Protocol) && protocol.starts_with(PROTOCOL_PREFIX)
    }
}

impl Verifier {
    /// Returns the validity of what a token opens: until its `expire_at` as defined by Centrifugo, where 0 is
    /// unlimited; without it, as long as the token.
    ///
    /// # Errors
    /// `expire_at` is invalid.
    pub(crate) fn term(&self, claimed: &Claimed) -> Result<Term, Refusal> {
        match claimed.all.get("expire_at") {
            None | Some(Value::Null) => Ok(Term {
                until_ms: claimed.expires_s.map(|at_s| at_s.saturating_mul(1000)),
                leeway_ms: self.rules.leeway_s.saturating_mul(1000),
            }),
            Some(at) => match at.as_u64() {
                Some(at_s) => Ok(Term::until_s((at_s > 0).then_some(at_s))),
                None => Err(Refusal::Claim(
                    "expire_at has to be a whole number of seconds since 1970, or 0",
                )),
            },
        }
    }

    /// Verifies a token with these keys and returns its claims; the token may have no user.
    ///
    /// # Errors
    /// It is invalid or revoked, or there are no keys.
    pub(crate) fn judge(
        &self,
        keys: Option<&Keys>,
        token: &str,
        checks: &Checks<'_>,
    ) -> Result<Claimed, Unknown> {
        let keys = keys.ok_or(Unknown::NoKeys)?;
        let now_s = checks.now.wall_ms / 1000;
        let claimed = verify_open(token, keys, &self.rules, now_s).map_err(Unknown::Token)?;
        let issued = Issued {
            user: claimed.user.as_deref(),
            id: claimed.all.get("jti").and_then(Value::as_str),
            at_s: claimed.all.get("iat").and_then(seconds),
        };
        match checks.process.is_revoked(&issued, now_s) {
            true => Err(Unknown::Revoked),
            false => Ok(claimed),
        }
    }
}

/// Parses a NumericDate, which may have a fraction (RFC 7519 section 2).
fn seconds(value: &Value) -> Option<u64> {
    let whole = value.as_u64();
    whole.or_else(|| value.as_f64().map(|seconds| seconds.max(0.0) as u64))
}

/// Parses a bearer token. RFC 9110 section 11.4: a case-insensitive scheme, then spaces.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start_matches(' '))
}
