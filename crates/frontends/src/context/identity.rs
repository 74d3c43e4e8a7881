//! Who a client says it is: from the query, a cookie or a header of its handshake, from its certificate, from a token, or
//! from the back end, which is asked.
//!
//! A name alone proves nothing: a cookie or a header can be trusted where something in front sets it, the query is for
//! demos and trusted networks. A certificate that was shown for the connection does prove it: whoever carries the bytes
//! has judged it and says what it is about ([`Certified`]). So does a [token](token), which its issuer has signed, the
//! word of the back end behind a [hook](hook), and a [password](basic) that somebody has judged. The last three may have
//! to be waited for: what has become of it comes as a [`Finding`].

pub mod basic;
pub mod hook;
pub mod token;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_centrifuge::DisconnectCode;
use veche_hub::ConnectionId;
use veche_jwt::Refusal;
use veche_proto::http::{Head, Status};

use crate::context::app::Outcome;
use crate::context::shared::{Now, Shared};
use basic::Login;
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

/// Why a handshake names no usable user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The place where the name should stand is empty.
    #[error("no user: the handshake does not say who connects")]
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

    /// The code by which clients of Centrifugo's protocol learn that another try will not do.
    pub(crate) fn disconnect(self) -> Option<DisconnectCode> {
        match self {
            Self::Stranger => Some(DisconnectCode::InvalidToken),
            Self::Unwanted | Self::Blocked => Some(DisconnectCode::PermissionDenied),
            _ => None,
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
        shared: &Shared,
    ) -> Outcome<Result<Named, Unknown>> {
        match self.ask(client, shared) {
            Outcome::Now(named) => Outcome::Now(named.and_then(|named| named.let_in(shared))),
            Outcome::Later => Outcome::Later,
        }
    }

    fn ask(&self, client: &Client<'_>, shared: &Shared) -> Outcome<Result<Named, Unknown>> {
        let head = client.head;
        let name = match self {
            Self::None => return Outcome::Now(Ok(Named::default())),
            Self::Query(name) => head.query(name).map(|value| value.into_owned()),
            Self::Cookie(name) => head.cookie(name).map(str::to_owned),
            Self::Header(name) => head.header(name).map(str::to_owned),
            Self::Certificate(field) => client.certified.and_then(|its| its.field(*field)).cloned(),
            Self::Token(tokens) => return tokens.name(client, shared),
            Self::Hook(hook) => {
                let question = Question {
                    head,
                    client: client.address,
                };
                return match hook.ask(&question, client.id, &shared.desk, shared.now) {
                    Outcome::Now(finding) => Outcome::Now(finding.named()),
                    Outcome::Later => Outcome::Later,
                };
            }
            Self::Basic(login) => {
                let credentials = match basic::read(head) {
                    Ok(credentials) => credentials,
                    Err(unknown) => return Outcome::Now(Err(unknown)),
                };
                let (id, address) = (client.id, client.address);
                return match login.judge(credentials, address, id, &shared.desk, shared.now) {
                    Outcome::Now(finding) => Outcome::Now(finding.named()),
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
        shared: &Shared,
    ) -> Result<Named, Unknown> {
        let named = match (self, finding) {
            (Self::Token(tokens), Finding::Keys) => tokens.name_at_last(client.head, shared),
            (_, finding) => finding.named(),
        };
        named.and_then(|named| named.let_in(shared))
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

impl Finding {
    fn named(self) -> Result<Named, Unknown> {
        match self {
            Self::Named(word) => Named::by_word(word),
            Self::Unknown(unknown) => Err(unknown),
            // An answer to a question that nobody has asked.
            Self::Keys => Err(Unknown::NoAnswer),
        }
    }
}

impl Named {
    /// What was found out may be over by now, or have been taken back.
    fn let_in(mut self, shared: &Shared) -> Result<Self, Unknown> {
        let Some(user) = &self.user else {
            return Ok(self);
        };
        if shared.is_blocked(user) {
            return Err(Unknown::Blocked);
        }
        if shared.is_ended_since(user, self.asked, "") {
            return Err(Unknown::Ended);
        }
        let lease = self.lease.as_deref();
        if lease.is_some_and(|lease| lease.term.is_over(shared.now)) {
            return Err(Unknown::Over);
        }
        self.asked.get_or_insert_with(|| shared.process.endings());
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
