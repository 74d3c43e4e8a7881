//! Authentication: the user comes from the query, a cookie or a header of the handshake, from a certificate, a token,
//! or the back end.
//!
//! A name alone proves nothing: cookies and headers can be trusted only if a proxy sets them, and the query only in
//! demos and trusted networks. A client certificate is proof: the TLS layer has verified it and passes its names
//! ([`Certified`]). So are a signed [token](token), the answer of the back end behind a [hook](hook), and a verified
//! [password](basic). The last three may be asynchronous: the result arrives as an [`Finding`].

pub mod basic;
mod finding;
pub mod hook;
pub mod token;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::Now;

use crate::context::app::Outcome;
use crate::context::process::Process;
use basic::Login;
pub use finding::{Desk, Finding, Unknown, Word};
use hook::{Hook, Question};
use token::Tokens;

/// Maximum length of a user name in bytes: the name of a personal channel is `#` and the user, at most 255 bytes.
pub const USER_BYTES_MAX: usize = 254;

/// How a route determines the user.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Not at all: connections are anonymous and can't be pushed to by user.
    None,
    /// `?NAME=` of the handshake's target.
    Query(String),
    /// A cookie with this name.
    Cookie(String),
    /// A header with this name.
    Header(String),
    /// A field of the client's certificate.
    Certificate(Field),
    /// A token of the client.
    Token(Arc<Tokens>),
    /// A request to the back end.
    Hook(Arc<dyn Hook>),
    /// A verified name and password.
    Basic(Arc<dyn Login>),
}

/// The result of a successful authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The user; `None` for anonymous clients.
    pub user: Option<String>,
    /// The expiring identity, if any.
    pub lease: Option<Box<Lease>>,
    /// All claims of its token.
    pub claims: Option<Box<Map<String, Value>>>,
    /// The [`endings`](crate::Process::endings) when authentication began.
    pub asked: Option<u64>,
}

/// An identity from a token or hook, which may expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its user; an application may have given the session another one.
    pub user: String,
    /// How long it is valid.
    pub term: Term,
    /// It can't be renewed by a token.
    pub is_final: bool,
}

/// How long something granted is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term {
    /// Milliseconds since 1970, as [`Now::wall_ms`]; `None`: indefinitely.
    pub until_ms: Option<u64>,
    /// The part of it that allows for clock differences; clients are sent an end that is earlier by this.
    pub leeway_ms: u64,
}

impl Term {
    /// Creates a validity until a time in seconds since 1970; `None`: indefinitely.
    #[must_use]
    pub fn until_s(at_s: Option<u64>) -> Self {
        Self {
            until_ms: at_s.map(|at_s| at_s.saturating_mul(1000)),
            leeway_ms: 0,
        }
    }

    pub(crate) fn is_over(self, now: Now) -> bool {
        self.until_ms
            .is_some_and(|until_ms| until_ms <= now.wall_ms)
    }

    /// Returns the seconds until a client should renew its token, at least 1; `None`: never.
    pub(crate) fn ttl_s(self, now: Now) -> Option<u32> {
        let left_ms = self.until_ms?.saturating_sub(now.wall_ms);
        let left_s = left_ms.saturating_sub(self.leeway_ms).div_ceil(1000);
        // 0 would mean unlimited.
        Some(u32::try_from(left_s.max(1)).unwrap_or(u32::MAX))
    }
}

/// The field of a certificate that contains the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The common name; without one the first mail address, DNS name or URI.
    Any,
    /// The subject's common name.
    CommonName,
    /// The first mail address of the alternative names.
    Email,
    /// The first DNS name there.
    Name,
    /// The first URI there.
    Uri,
}

/// The names of a client certificate; the first of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certified {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// The first mail address of the alternative names.
    pub email: Option<String>,
    /// The first DNS name.
    pub name: Option<String>,
    /// The first URI, such as `spiffe://example.org/worker`.
    pub uri: Option<String>,
}

impl Certified {
    fn field(&self, field: Field) -> Option<&String> {
        match field {
            Field::CommonName => self.common_name.as_ref(),
            Field::Email => self.email.as_ref(),
            Field::Name => self.name.as_ref(),
            Field::Uri => self.uri.as_ref(),
            Field::Any => [Field::CommonName, Field::Email, Field::Name, Field::Uri]
                .into_iter()
                .find_map(|field| self.field(field)),
        }
    }
}

/// What authentication needs of the worker.
#[derive(Clone, Copy)]
pub(crate) struct Checks<'a> {
    /// Knows banned users and revoked tokens.
    pub(crate) process: &'a dyn Process,
    pub(crate) desk: &'a Arc<dyn Desk>,
    /// The time of the turn.
    pub(crate) now: Now,
}

impl Checks<'_> {
    fn is_blocked(&self, user: &str) -> bool {
        self.process.is_blocked(user, self.now.wall_ms / 1000)
    }

    fn is_ended_since(&self, user: &str, asked: Option<u64>) -> bool {
        asked.is_some_and(|asked| self.process.is_ended_since(user, asked, ""))
    }
}

/// The client to be authenticated.
pub(crate) struct Client<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) head: &'a Head<'a>,
    pub(crate) certified: Option<&'a Certified>,
    pub(crate) address: IpAddr,
}

impl Identity {
    /// Authenticates a client by its request and certificate. A deferred result follows as an [`Finding`].
    pub(crate) fn name(
        &self,
        client: &Client<'_>,
        checks: &Checks<'_>,
    ) -> Outcome<Result<Named, Unknown>> {
        match self.ask(client, checks) {
            Outcome::Now(named) => Outcome::Now(named.and_then(|named| named.let_in(checks))),
            Outcome::Later => Outcome::Later,
        }
    }

    fn ask(&self, client: &Client<'_>, checks: &Checks<'_>) -> Outcome<Result<Named, Unknown>> {
        let head = client.head;
        let name = match self {
            Self::None => return Outcome::Now(Ok(Named::default())),
            Self::Query(name) => head.query(name).map(|value| value.into_owned()),
            Self::Cookie(name) => head.cookie(name).map(str::to_owned),
            Self::Header(name) => head.header(name).map(str::to_owned),
            Self::Certificate(field) => client.certified.and_then(|its| its.field(*field)).cloned(),
            Self::Token(tokens) => return tokens.name(client, checks),
            Self::Hook(hook) => {
                let question = Question {
                    head,
                    client: client.address,
                };
                return match hook.ask(&question, client.id, checks.desk, checks.now) {
                    Outcome::Now(finding) => Outcome::Now(named_by(finding)),
                    Outcome::Later => Outcome::Later,
                };
            }
            Self::Basic(login) => {
                let credentials = match basic::read(head) {
                    Ok(credentials) => credentials,
                    Err(unknown) => return Outcome::Now(Err(unknown)),
                };
                let (id, address) = (client.id, client.address);
                return match login.judge(credentials, address, id, checks.desk, checks.now) {
                    Outcome::Now(finding) => Outcome::Now(named_by(finding)),
                    Outcome::Later => Outcome::Later,
                };
            }
        };
        let name = name.filter(|name| !name.is_empty());
        Outcome::Now(name.ok_or(Unknown::Missing).and_then(Named::plain))
    }

    /// Evaluates an asynchronous result.
    pub(crate) fn found(
        &self,
        finding: Finding,
        client: &Client<'_>,
        checks: &Checks<'_>,
    ) -> Result<Named, Unknown> {
        let named = match (self, finding) {
            (Self::Token(tokens), Finding::Keys) => tokens.name_at_last(client.head, checks),
            (_, finding) => named_by(finding),
        };
        named.and_then(|named| named.let_in(checks))
    }

    /// Returns the value of `WWW-Authenticate` for a 401.
    pub(crate) fn challenge(&self, why: Unknown) -> Option<String> {
        match (self, why) {
            (Self::Basic(login), _) => Some(basic::challenge(&**login)),
            // RFC 6750 section 3: without a token there is no error code.
            (_, Unknown::NoToken) => Some("Bearer".to_owned()),
            (_, Unknown::Token(_) | Unknown::OfChannel | Unknown::Revoked) => {
                Some("Bearer error=\"invalid_token\"".to_owned())
            }
            _ => None,
        }
    }

    /// Returns whether plain requests need a user as handshakes do. A browser asks its user for a password when it gets
    /// a 401, so the page itself has to require it.
    pub(crate) fn is_for_requests(&self) -> bool {
        matches!(self, Self::Basic(_))
    }

    /// Returns whether `Authorization` contains a password, which must not be passed on.
    pub(crate) fn has_password(&self) -> bool {
        matches!(self, Self::Basic(_))
    }

    /// Returns whether an offered subprotocol is the client's token, which must not be selected.
    pub(crate) fn is_token(&self, protocol: &str) -> bool {
        match self {
            Self::Token(tokens) => tokens.is_token(protocol),
            _ => false,
        }
    }
}

/// Converts an asynchronous result.
fn named_by(finding: Finding) -> Result<Named, Unknown> {
    match finding {
        Finding::Named(word) => Named::by_word(word),
        Finding::Unknown(unknown) => Err(unknown),
        // An answer without a request.
        Finding::Keys => Err(Unknown::NoAnswer),
    }
}

impl Named {
    /// The result may have expired or been revoked in the meantime.
    fn let_in(mut self, checks: &Checks<'_>) -> Result<Self, Unknown> {
        let Some(user) = &self.user else {
            return Ok(self);
        };
        if checks.is_blocked(user) {
            return Err(Unknown::Blocked);
        }
        if checks.is_ended_since(user, self.asked) {
            return Err(Unknown::Ended);
        }
        let lease = self.lease.as_deref();
        if lease.is_some_and(|lease| lease.term.is_over(checks.now)) {
            return Err(Unknown::Over);
        }
        self.asked.get_or_insert_with(|| checks.process.endings());
        Ok(self)
    }

    /// Converts the answer of a hook or PAM.
    fn by_word(word: Word) -> Result<Self, Unknown> {
        let mut named = Self::plain(word.user.clone())?;
        named.asked = Some(word.asked);
        named.lease = word.until_s.map(|until_s| {
            Box::new(Lease {
                user: word.user,
                term: Term::until_s(Some(until_s)),
                is_final: true,
            })
        });
        Ok(named)
    }

    /// Creates an identity that is valid as long as the connection.
    fn plain(user: String) -> Result<Self, Unknown> {
        if !is_valid_user(&user) {
            return Err(Unknown::Malformed);
        }
        Ok(Self {
            user: Some(user),
            ..Self::default()
        })
    }
}

/// Returns whether `name` is a valid user: 1 to 254 bytes without control characters.
pub fn is_valid_user(name: &str) -> bool {
    (1..=USER_BYTES_MAX).contains(&name.len()) && !name.bytes().any(|byte| byte.is_ascii_control())
}

#[cfg(test)]
mod tests;
