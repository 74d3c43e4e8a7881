//! Tokens of clients: where in a request one is looked for, and what comes of it.
//!
//! Whether a token holds is `veche_jwt`'s to say, with the keys that a [`Keychain`] has at the moment.

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

/// What stands before a token among the subprotocols: `bearer.eyJ…`. Browsers can set no header, but these.
pub const PROTOCOL_PREFIX: &str = "bearer.";

/// How tokens are looked for and judged.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Where a token may be; the first place with one counts, whether it holds or not.
    pub places: Vec<Place>,
    /// How connection tokens are judged.
    pub connections: Verifier,
    /// How subscription tokens are judged; `None`: as those of connections.
    pub subscriptions: Option<Verifier>,
    /// Which clients may have no user.
    pub anonymous: Anonymous,
}

/// The keys of tokens, and the rules for their claims.
#[derive(Clone, Debug)]
pub struct Verifier {
    /// The rules for the claims of a token.
    pub rules: Rules,
    /// The keys that it is checked with.
    pub keys: Arc<dyn Keychain>,
}

/// Which clients of a route with tokens may have no user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Every client has a token that names a user.
    #[default]
    None,
    /// A token may name no user.
    Token,
    /// As [`Self::Token`], and a client may have no token.
    All,
}

/// A place for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
    Bearer,
    /// An offered subprotocol that begins with [`PROTOCOL_PREFIX`].
    Protocol,
    /// A parameter of the query.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// A header that holds nothing else.
    Header(String),
}

/// Has the keys of an issuer. Shared by all workers; never waits.
pub trait Keychain: Send + Sync + fmt::Debug {
    /// Those of the moment; `None` where there have never been any.
    fn keys(&self) -> Option<Arc<Keys>>;

    /// A token was signed with a key that is not among those `seen`. Returns whether other keys have come since or are
    /// being fetched: then [`Finding::Keys`](super::Finding::Keys) comes to the desk once.
    fn look_for_more(
        &self,
        id: ConnectionId,
        desk: &Arc<dyn Desk>,
        seen: Option<&Arc<Keys>>,
    ) -> bool;
}

impl Tokens {
    /// Creates the usual ones: each names a user, and all are judged alike.
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

    /// The same by the current keys, without a fetch.
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

    /// Checks a connection's token by the current keys; returns its lease and all claims.
    ///
    /// # Errors
    /// [`Unknown`]: the token is refused, or there are no keys.
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
        // A subscription's token says who may hear something, not who somebody is.
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
    /// There is none, and there has to be one.
    pub(crate) fn user_of(&self, user: Option<String>) -> Result<String, Refusal> {
        match (user, self.anonymous) {
            (Some(user), _) => Ok(user),
            (None, Anonymous::None) => Err(Refusal::NoUser),
            (None, Anonymous::Token | Anonymous::All) => Ok(String::new()),
        }
    }

    /// Returns how subscription tokens are judged.
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
    /// How long that holds which a token opens: until its `expire_at`, as Centrifugo has it, 0 being for ever; without
    /// one as long as the token itself.
    ///
    /// # Errors
    /// `expire_at` is no such number.
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

    /// Verifies a token by these keys and returns its claims, also of one without a user.
    ///
    /// # Errors
    /// [`Unknown`]: it is refused or revoked, or there are no keys.
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

/// A NumericDate may have a fraction (RFC 7519, section 2).
fn seconds(value: &Value) -> Option<u64> {
    let whole = value.as_u64();
    whole.or_else(|| value.as_f64().map(|seconds| seconds.max(0.0) as u64))
}

/// RFC 9110, section 11.4: the scheme in whatever letters, then spaces.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start_matches(' '))
}
