//! Who a client says it is: from the query, a cookie or a header of its handshake.
//!
//! None of these proves anything by itself: a cookie or a header can be trusted where something in front sets it,
//! the query is for demos and trusted networks. A certificate that was shown for the connection does: whoever carries the
//! bytes has judged it and says what it is about ([`Certified`]). Tokens and hooks to the back end are further variants
//! of the same question.

use veche_proto::http::Head;

/// Longest user name, in bytes: a personal channel's name is `#` and the user, at most 255 bytes together.
pub const USER_BYTES_MAX: usize = 254;

/// Where the user's name comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Identity {
    /// The user named by a handshake, and by the client's certificate if it has shown one; `Ok(None)` where the route
    /// asks for none.
    pub fn user(
        &self,
        head: &Head<'_>,
        certified: Option<&Certified>,
    ) -> Result<Option<String>, Unknown> {
        let name = match self {
            Self::None => return Ok(None),
            Self::Query(name) => head.query(name).map(|value| value.into_owned()),
            Self::Cookie(name) => head.cookie(name).map(str::to_owned),
            Self::Header(name) => head.header(name).map(str::to_owned),
            Self::Certificate(field) => certified.and_then(|its| its.field(*field)).cloned(),
        };
        let name = name
            .filter(|name| !name.is_empty())
            .ok_or(Unknown::Missing)?;
        if !is_valid_user(&name) {
            return Err(Unknown::Malformed);
        }
        Ok(Some(name))
    }
}

/// Whether `name` can be a user: 1 to 254 bytes, no control characters.
pub fn is_valid_user(name: &str) -> bool {
    (1..=USER_BYTES_MAX).contains(&name.len()) && !name.bytes().any(|byte| byte.is_ascii_control())
}
