//! Request methods (RFC 9110 section 9, and PATCH of RFC 5789).

/// A request method. Methods are case-sensitive: `get` is `Other("get")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method<'b> {
    /// Transfers a representation of the target.
    Get,
    /// Like GET, without the body.
    Head,
    /// Processes the request's body.
    Post,
    /// Replaces the target by the body.
    Put,
    /// Removes the target resource.
    Delete,
    /// Establishes a tunnel. [`parse_head`](super::parse_head) refuses it with 501.
    Connect,
    /// Describes what may be done with the target.
    Options,
    /// Loops the request back.
    Trace,
    /// Changes the target in part.
    Patch,
    /// A method with another token.
    Other(&'b str),
}

impl<'b> Method<'b> {
    /// Returns the method for a token.
    #[inline]
    #[must_use]
    pub fn from_token(token: &'b str) -> Self {
        match token {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            "OPTIONS" => Self::Options,
            "TRACE" => Self::Trace,
            "PATCH" => Self::Patch,
            other => Self::Other(other),
        }
    }

    /// Returns the method's token.
    #[must_use]
    pub const fn as_str(&self) -> &'b str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other(token) => token,
        }
    }
}
