//! Who a client says it is: from the query, a cookie or a header of its handshake, from its certificate, from a token, or
//! from the back end, which is asked.
//!
//! A name alone proves nothing: a cookie or a header can be trusted where something in front sets it, the query is for
//! demos and trusted networks. A certificate that was shown for the connection does prove it: whoever carries the bytes
//! has judged it and says what it is about ([`Certified`]). So does a [token](token), which its issuer has signed, the
//! word of the back end behind a [hook](hook), and a [password](basic) that somebody has judged. The last three may have
//! to be waited for: what has become of it comes as a [`Finding`].

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

/// Longest user name, in bytes: a personal channel's name is `#` and the user, at most 255 bytes together.
pub const USER_BYTES_MAX: usize = 254;

/// Where the user's name comes from.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Nobody: the connection has no user and can't be pushed to by one.
    None,
    /// `?NAME=` of the handshake's target.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// A header.
    Header(String),
    /// The certificate that the client has shown.
    Certificate(Field),
    /// A token that it brings along.
    Token(Arc<Tokens>),
    /// The back end, which is asked.
    Hook(Arc<dyn Hook>),
    /// Name and password, which are judged.
    Basic(Arc<dyn Login>),
}

/// Whom a client was found to be, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// `None` where the route asks for nobody.
    pub user: Option<String>,
    /// Until when a token says so.
    pub lease: Option<Box<Lease>>,
    /// All that the token says.
    pub claims: Option<Box<Map<String, Value>>>,
    /// The [endings](crate::Process::endings) when the question was asked.
    pub asked: Option<u64>,
}

/// An identity from a token or from a hook: it may expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whom it names; the session's own user may be another, by the word of its application.
    pub user: String,
    /// How long.
    pub term: Term,
    /// No token can go on with it.
    pub is_final: bool,
}

/// How long something holds that was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term {
    /// Milliseconds since 1970, as [`Now::wall_ms`]; `None`: for ever.
    pub until_ms: Option<u64>,
    /// So much of that is there because clocks may differ; clients are told an end that is so much earlier.
    pub leeway_ms: u64,
}

impl Term {
    /// Until a time in seconds since 1970; `None`: for ever.
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

    /// In how many seconds a client should hand in another token, from 1 on; `None`: it need not.
    pub(crate) fn ttl_s(self, now: Now) -> Option<u32> {
        let left_ms = self.until_ms?.saturating_sub(now.wall_ms);
        let left_s = left_ms.saturating_sub(self.leeway_ms).div_ceil(1000);
        // 0 would mean that it does not end.
        Some(u32::try_from(left_s.max(1)).unwrap_or(u32::MAX))
    }
}

/// What in a certificate is the user's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The common name; without one the first mail address, name of a host or URI.
    Any,
    /// The common name of its subject.
    CommonName,
    /// The first mail address of its alternative names.
    Email,
    /// The first name of a host there.
    Name,
    /// The first URI there.
    Uri,
}

/// What a client's certificate is about; the first of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certified {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// Among the alternative names, as the others below.
    pub email: Option<String>,
    /// The name of a host.
    pub name: Option<String>,
    /// Such as `spiffe://example.org/worker`.
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

/// What identities are checked with.
#[derive(Clone, Copy)]
pub(crate) struct Checks<'a> {
    /// Knows blocked users and revoked tokens.
    pub(crate) process: &'a dyn Process,
    /// Receives findings that have to be waited for.
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

/// Who asks, as far as it matters for who it is.
pub(crate) struct Client<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) head: &'a Head<'a>,
    pub(crate) certified: Option<&'a Certified>,
    pub(crate) address: IpAddr,
}

impl Identity {
    /// Whom a client is by its request, and by what it has shown before. [`Outcome::Later`]: a finding comes.
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

    /// What a finding makes of it.
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

    /// What an answer with 401 asks for: the value of `WWW-Authenticate`.
    pub(crate) fn challenge(&self, why: Unknown) -> Option<String> {
        match (self, why) {
            (Self::Basic(login), _) => Some(basic::challenge(&**login)),
            // RFC 6750, section 3: without a token nothing is said of an error.
            (_, Unknown::NoToken) => Some("Bearer".to_owned()),
            (_, Unknown::Token(_) | Unknown::OfChannel | Unknown::Revoked) => {
                Some("Bearer error=\"invalid_token\"".to_owned())
            }
            _ => None,
        }
    }

    /// Whether plain requests are for those only who are known, as handshakes are. A browser asks its user for a password
    /// when it is told to, so the page itself has to tell it.
    pub(crate) fn is_for_requests(&self) -> bool {
        matches!(self, Self::Basic(_))
    }

    /// Whether the header `Authorization` holds a password, which is nobody else's business.
    pub(crate) fn has_password(&self) -> bool {
        matches!(self, Self::Basic(_))
    }

    /// Whether a subprotocol that a client offers is its token: nobody may choose it.
    pub(crate) fn is_token(&self, protocol: &str) -> bool {
        match self {
            Self::Token(tokens) => tokens.is_token(protocol),
            _ => false,
        }
    }
}

/// Returns the client that a finding names.
fn named_by(finding: Finding) -> Result<Named, Unknown> {
    match finding {
        Finding::Named(word) => Named::by_word(word),
        Finding::Unknown(unknown) => Err(unknown),
        // An answer to a question that nobody has asked.
        Finding::Keys => Err(Unknown::NoAnswer),
    }
}

impl Named {
    /// What was found out may be over by now, or have been taken back.
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

    /// By the answer of a hook or of PAM.
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

    /// By a name that holds as long as the connection does.
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

/// Whether `name` can be a user: 1 to 254 bytes, no control characters.
pub fn is_valid_user(name: &str) -> bool {
    (1..=USER_BYTES_MAX).contains(&name.len()) && !name.bytes().any(|byte| byte.is_ascii_control())
}

#[cfg(test)]
mod tests;
