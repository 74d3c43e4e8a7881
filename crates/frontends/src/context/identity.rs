//! Authentication: how a route determines the user of a connection. The user's name comes from the query, a cookie or
//! a header of the handshake, from a client certificate or a token, or from the back end.
//!
//! A name that a client merely sends proves nothing: cookies and headers can be trusted only if a proxy sets them,
//! and the query only in demos and trusted networks. A client certificate is proof: the TLS layer has verified it and
//! passes its names ([`CertificateNames`]). A signed [token](token), the answer of the back end to an identity
//! [hook](hook) and a verified [password](basic) are proof too; their results may be asynchronous and arrive as an
//! [`IdentityResult`].

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
use crate::context::process::ProcessServices;
use basic::PasswordVerifier;
use hook::{IdentityBackend, IdentityRequest};
pub use result::{AuthError, CompletionSink, IdentityResult, VerifiedUser};
use token::TokenAuth;

/// Maximum length of a user name in bytes. The user's personal channel is named `#` and the user, and a channel name
/// has at most 255 bytes.
pub const USER_BYTES_MAX: usize = 254;

/// How a route determines the user.
#[derive(Clone, Debug)]
pub enum Identity {
    /// The route determines no user, so connections are anonymous and pushes to users don't reach them.
    None,
    /// A query parameter with this name in the handshake's target contains the user's name.
    Query(String),
    /// A cookie with this name contains the user's name.
    Cookie(String),
    /// A header with this name contains the user's name.
    Header(String),
    /// A field of the client's certificate contains the user's name.
    Certificate(CertificateField),
    /// A token that the client sends contains the user's name.
    Token(Arc<TokenAuth>),
    /// The back end's answer to an identity request contains the user's name.
    Hook(Arc<dyn IdentityBackend>),
    /// The client sends the user's name and a password, which are verified.
    Basic(Arc<dyn PasswordVerifier>),
}

/// The result of a successful authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// The user; `None` for anonymous clients.
    pub user: Option<String>,
    /// The identity from a token or hook, which may expire; `None` for all other identities.
    pub lease: Option<Box<IdentityLease>>,
    /// All claims of the token, if the client was authenticated by one.
    pub claims: Option<Box<Map<String, Value>>>,
    /// The [`disconnect_count`](crate::ProcessServices::disconnect_count) when authentication began. For an anonymous
    /// client, `None` until an application is asked to decide on its handshake.
    pub disconnects_seen: Option<u64>,
}

/// An identity from a token or hook, which may expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLease {
    /// The user in the token or the hook's answer; an application may have assigned another user to the session.
    pub user: String,
    /// How long the identity is valid.
    pub validity: Validity,
    /// Whether the identity can't be renewed by a new token.
    pub is_final: bool,
}

/// How long a granted permission or an identity is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// The end of the validity in milliseconds since 1970, as [`Now::wall_ms`](crate::Now::wall_ms); `None`: valid
    /// indefinitely.
    pub until_ms: Option<u64>,
    /// The tolerance for clock differences. `until_ms` includes it; the time of expiry sent to clients does not.
    pub leeway_ms: u64,
}

impl Validity {
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

    /// Returns the number of seconds until the client should renew its token, at least 1; `None`: never.
    pub(crate) fn ttl_s(self, now: Now) -> Option<u32> {
        let left_ms = self.until_ms?.saturating_sub(now.wall_ms);
        let left_s = left_ms.saturating_sub(self.leeway_ms).div_ceil(1000);
        // A value of 0 would tell the client that its token never expires.
        Some(u32::try_from(left_s.max(1)).unwrap_or(u32::MAX))
    }
}

/// The field of a certificate that contains the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateField {
    /// The common name of the certificate's subject; if it has none, the first mail address, DNS name or URI.
    Any,
    /// The subject's common name.
    CommonName,
    /// The first mail address of the subject alternative names.
    Email,
    /// The first DNS name of the subject alternative names.
    Name,
    /// The first URI of the subject alternative names.
    Uri,
}

/// The names in a client certificate. Of several names of one kind only the first is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// The first mail address of the subject alternative names.
    pub email: Option<String>,
    /// The first DNS name of the subject alternative names.
    pub name: Option<String>,
    /// The first URI of the subject alternative names, such as `spiffe://example.org/worker`.
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

/// The parts of the worker that authentication needs.
#[derive(Clone, Copy)]
pub(crate) struct IdentityChecks<'a> {
    /// Provides the banned users and revoked tokens.
    pub(crate) process: &'a dyn ProcessServices,
    pub(crate) completions: &'a Arc<dyn CompletionSink>,
    /// The time at which the current turn began.
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

/// The client to be authenticated.
pub(crate) struct IdentityClient<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) head: &'a Head<'a>,
    pub(crate) certificate_names: Option<&'a CertificateNames>,
    pub(crate) address: IpAddr,
}

impl Identity {
    /// Authenticates a client by its request and certificate. If the result is deferred, it follows as an
    /// [`IdentityResult`].
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
            Self::Certificate(field) => client
                .certificate_names
                .and_then(|its| its.field(*field))
                .cloned(),
            Self::Token(tokens) => return tokens.authenticate(client, checks),
            Self::Hook(hook) => {
                let request = IdentityRequest {
                    head,
                    client: client.address,
                };
                return match hook.begin(&request, client.id, checks.completions, checks.now) {
                    MaybeDeferred::Ready(identity_result) => {
                        MaybeDeferred::Ready(authenticate(identity_result))
                    }
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
                    MaybeDeferred::Ready(identity_result) => {
                        MaybeDeferred::Ready(authenticate(identity_result))
                    }
                    MaybeDeferred::Deferred => MaybeDeferred::Deferred,
                };
            }
        };
        let name = name.filter(|name| !name.is_empty());
        MaybeDeferred::Ready(name.ok_or(AuthError::NoUser).and_then(Authenticated::plain))
    }

    /// Completes an authentication with its asynchronous result.
    pub(crate) fn finish_authentication(
        &self,
        identity_result: IdentityResult,
        client: &IdentityClient<'_>,
        checks: &IdentityChecks<'_>,
    ) -> Result<Authenticated, AuthError> {
        let named = match (self, identity_result) {
            (Self::Token(tokens), IdentityResult::KeysFetched) => {
                tokens.authenticate_with_fetched_keys(client.head, checks)
            }
            (_, identity_result) => authenticate(identity_result),
        };
        named.and_then(|named| named.check_not_banned(checks))
    }

    /// Returns the value of `WWW-Authenticate` for a 401 response; `None` for identities without a challenge.
    pub(crate) fn challenge(&self, why: AuthError) -> Option<String> {
        match (self, why) {
            (Self::Basic(login), _) => Some(basic::challenge(&**login)),
            // RFC 6750 section 3: a request without a token gets a challenge without an error code.
            (_, AuthError::NoToken) => Some("Bearer".to_owned()),
            (_, AuthError::InvalidToken(_) | AuthError::ChannelToken | AuthError::Revoked) => {
                Some("Bearer error=\"invalid_token\"".to_owned())
            }
            _ => None,
        }
    }

    /// Returns whether plain HTTP requests of the route need a user; handshakes always need one. With passwords, plain
    /// requests need a user too, because a browser asks for a password only if the page itself is answered with 401.
    pub(crate) fn is_for_requests(&self) -> bool {
        matches!(self, Self::Basic(_))
    }

    /// Returns whether `Authorization` contains a password on this route. Such a header must not be passed on.
    pub(crate) fn has_password(&self) -> bool {
        matches!(self, Self::Basic(_))
    }

    /// Returns whether an offered subprotocol contains the client's token. The server must not select such a
    /// subprotocol.
    pub(crate) fn is_token(&self, protocol: &str) -> bool {
        match self {
            Self::Token(tokens) => tokens.is_token(protocol),
            _ => false,
        }
    }
}

/// Converts an asynchronous result to a user or an error.
fn authenticate(identity_result: IdentityResult) -> Result<Authenticated, AuthError> {
    match identity_result {
        IdentityResult::Verified(word) => Authenticated::from_hook_identity(word),
        IdentityResult::Failed(unknown) => Err(unknown),
        // This result means that new issuer keys were fetched; it never answers a request for an identity.
        IdentityResult::KeysFetched => Err(AuthError::HookUnavailable),
    }
}

impl Authenticated {
    /// Refuses a user that is banned, that was disconnected during authentication, or whose identity has expired.
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

    /// Converts the answer of an identity hook or of PAM.
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

    /// Creates an identity that stays valid until the connection closes.
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

/// Returns whether `name` is a valid user: 1 to 254 bytes without control characters.
pub fn is_valid_user(name: &str) -> bool {
    (1..=USER_BYTES_MAX).contains(&name.len()) && !name.bytes().any(|byte| byte.is_ascii_control())
}

#[cfg(test)]
mod tests;
