//! Who a client says it is: from the query, a cookie or a header of its handshake, from its certificate, from a token, or
//! from the back end, which is asked.
//!
//! A name alone proves nothing: a cookie or a header can be trusted where something in front sets it, the query is for
//! demos and trusted networks. A certificate that was shown for the connection does prove it: whoever carries the bytes
//! has judged it and says what it is about ([`CertificateNames`]). So does a [token](token), which its issuer has signed, the
//! word of the back end behind a [hook](hook), and a [password](basic) that somebody has judged. The last three may have
//! to be waited for: what has become of it comes as a [`IdentityResult`].

pub mod basic;
pub mod hook;
mod result;
pub mod token;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::Now;

use crate::context::app::MaybeDeferred;
use crate::context::process::Process;
use basic::PasswordVerifier;
use hook::{IdentityBackend, IdentityRequest};
pub use result::{AuthError, CompletionSink, IdentityResult, VerifiedUser};
use token::TokenAuth;

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
    Certificate(CertificateField),
    /// A token that it brings along.
    Token(Arc<TokenAuth>),
    /// The back end, which is asked.
    Hook(Arc<dyn IdentityBackend>),
    /// Name and password, which are judged.
    Basic(Arc<dyn PasswordVerifier>),
}

/// Whom a client was found to be, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// `None` where the route asks for nobody.
    pub user: Option<String>,
    /// Until when a token says so.
    pub lease: Option<Box<IdentityLease>>,
    /// All that the token says.
    pub claims: Option<Box<Map<String, Value>>>,
    /// The [disconnect_count](crate::Process::disconnect_count) when the question was asked.
    pub disconnects_seen: Option<u64>,
}

/// An identity from a token or from a hook: it may expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLease {
    /// Whom it names; the session's own user may be another, by the word of its application.
    pub user: String,
    /// How long.
    pub validity: Validity,
    /// No token can go on with it.
    pub is_final: bool,
}

/// How long something holds that was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// Milliseconds since 1970, as [`Ready::wall_ms`]; `None`: for ever.
    pub until_ms: Option<u64>,
    /// So much of that is there because clocks may differ; clients are told an end that is so much earlier.
    pub leeway_ms: u64,
}

impl Validity {
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
pub enum CertificateField {
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
pub struct CertificateNames {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// Among the alternative names, as the others below.
    pub email: Option<String>,
    /// The name of a host.
    pub name: Option<String>,
    /// Such as `spiffe://example.org/worker`.
    pub uri: Option<String>,
}

impl CertificateNames {
    fn field(&self, field: CertificateField) -> Option<&String> {
        match field {
            CertificateField::CommonName => self.common_name.as_ref(),
            CertificateField::Email => self.email.as_ref(),
            CertificateField::Name => self.name.as_ref(),
            CertificateField::Uri => self.uri.as_ref(),
            CertificateField::Any => [
                CertificateField::CommonName,
                CertificateField::Email,
                CertificateField::Name,
                CertificateField::Uri,
            ]
            .into_iter()
            .find_map(|field| self.field(field)),
        }
    }
}

/// What identities are checked with.
#[derive(Clone, Copy)]
pub(crate) struct IdentityChecks<'a> {
    /// Knows blocked users and revoked tokens.
    pub(crate) process: &'a dyn Process,
    /// Receives findings that have to be waited for.
    pub(crate) completions: &'a Arc<dyn CompletionSink>,
    /// The time of the turn.
    pub(crate) now: Now,
}

impl IdentityChecks<'_> {
    fn is_blocked(&self, user: &str) -> bool {
        self.process.is_banned(user, self.now.wall_ms / 1000)
    }

    fn is_ended_since(&self, user: &str, asked: Option<u64>) -> bool {
        asked.is_some_and(|asked| self.process.is_disconnected_since(user, asked, ""))
    }
}

/// Who asks, as far as it matters for who it is.
pub(crate) struct IdentityClient<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) head: &'a Head<'a>,
    pub(crate) certified: Option<&'a CertificateNames>,
    pub(crate) address: IpAddr,
}

impl Identity {
    /// Whom a client is by its request, and by what it has shown before. [`MaybeDeferred::Deferred`]: a finding comes.
    pub(crate) fn name(
        &self,
        client: &IdentityClient<'_>,
        checks: &IdentityChecks<'_>,
    ) -> MaybeDeferred<Result<Authenticated, AuthError>> {
        match self.begin_authentication(client, checks) {
            MaybeDeferred::Ready(named) => {
                MaybeDeferred::Ready(named.and_then(|named| named.check_not_banned(checks)))
            }
            MaybeDeferred::Deferred => MaybeDeferred::Deferred,
        }
    }

    fn begin_authentication(
        &self,
        client: &IdentityClient<'_>,
        checks: &IdentityChecks<'_>,
    ) -> MaybeDeferred<Result<Authenticated, AuthError>> {
        let head = client.head;
        let name = match self {
            Self::None => return MaybeDeferred::Ready(Ok(Authenticated::default())),
            Self::Query(name) => head.query(name).map(|value| value.into_owned()),
            Self::Cookie(name) => head.cookie(name).map(str::to_owned),
            Self::Header(name) => head.header(name).map(str::to_owned),
            Self::Certificate(field) => client.certified.and_then(|its| its.field(*field)).cloned(),
            Self::Token(tokens) => return tokens.authenticate(client, checks),
            Self::Hook(hook) => {
                let question = IdentityRequest {
                    head,
                    client: client.address,
                };
                return match hook.begin(&question, client.id, checks.completions, checks.now) {
                    MaybeDeferred::Ready(finding) => MaybeDeferred::Ready(authenticate(finding)),
                    MaybeDeferred::Deferred => MaybeDeferred::Deferred,
                };
            }
            Self::Basic(login) => {
                let credentials = match basic::read(head) {
                    Ok(credentials) => credentials,
                    Err(unknown) => return MaybeDeferred::Ready(Err(unknown)),
                };
                let (id, address) = (client.id, client.address);
                return match login.verify(credentials, address, id, checks.completions, checks.now)
                {
                    MaybeDeferred::Ready(finding) => MaybeDeferred::Ready(authenticate(finding)),
                    MaybeDeferred::Deferred => MaybeDeferred::Deferred,
                };
            }
        };
        let name = name.filter(|name| !name.is_empty());
        MaybeDeferred::Ready(name.ok_or(AuthError::NoUser).and_then(Authenticated::plain))
    }

    /// What a finding makes of it.
    pub(crate) fn finish_authentication(
        &self,
        finding: IdentityResult,
        client: &IdentityClient<'_>,
        checks: &IdentityChecks<'_>,
    ) -> Result<Authenticated, AuthError> {
        let named = match (self, finding) {
            (Self::Token(tokens), IdentityResult::KeysFetched) => {
                tokens.authenticate_with_fetched_keys(client.head, checks)
            }
            (_, finding) => authenticate(finding),
        };
        named.and_then(|named| named.check_not_banned(checks))
    }

    /// What an answer with 401 asks for: the value of `WWW-Authenticate`.
    pub(crate) fn challenge(&self, why: AuthError) -> Option<String> {
        match (self, why) {
            (Self::Basic(login), _) => Some(basic::challenge(&**login)),
            // RFC 6750, section 3: without a token nothing is said of an error.
            (_, AuthError::NoToken) => Some("Bearer".to_owned()),
            (_, AuthError::InvalidToken(_) | AuthError::ChannelToken | AuthError::Revoked) => {
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
fn authenticate(finding: IdentityResult) -> Result<Authenticated, AuthError> {
    match finding {
        IdentityResult::Verified(word) => Authenticated::from_hook_identity(word),
        IdentityResult::Failed(unknown) => Err(unknown),
        // An answer to a question that nobody has asked.
        IdentityResult::KeysFetched => Err(AuthError::HookUnavailable),
    }
}

impl Authenticated {
    /// What was found out may be over by now, or have been taken back.
    fn check_not_banned(mut self, checks: &IdentityChecks<'_>) -> Result<Self, AuthError> {
        let Some(user) = &self.user else {
            return Ok(self);
        };
        if checks.is_blocked(user) {
            return Err(AuthError::Blocked);
        }
        if checks.is_ended_since(user, self.disconnects_seen) {
            return Err(AuthError::Disconnected);
        }
        let lease = self.lease.as_deref();
        if lease.is_some_and(|lease| lease.validity.is_over(checks.now)) {
            return Err(AuthError::Expired);
        }
        self.disconnects_seen
            .get_or_insert_with(|| checks.process.disconnect_count());
        Ok(self)
    }

    /// By the answer of a hook or of PAM.
    fn from_hook_identity(word: VerifiedUser) -> Result<Self, AuthError> {
        let mut named = Self::plain(word.user.clone())?;
        named.disconnects_seen = Some(word.disconnects_seen);
        named.lease = word.until_s.map(|until_s| {
            Box::new(IdentityLease {
                user: word.user,
                validity: Validity::until_s(Some(until_s)),
                is_final: true,
            })
        });
        Ok(named)
    }

    /// By a name that holds as long as the connection does.
    fn plain(user: String) -> Result<Self, AuthError> {
        if !is_valid_user(&user) {
            return Err(AuthError::MalformedUser);
        }
        Ok(Self {
            user: Some(user),
            ..Self::default()
        })
    }
}

/// Whether `authenticate` can be a user: 1 to 254 bytes, no control characters.
pub fn is_valid_user(name: &str) -> bool {
    (1..=USER_BYTES_MAX).contains(&name.len()) && !name.bytes().any(|byte| byte.is_ascii_control())
}

#[cfg(test)]
mod tests;
