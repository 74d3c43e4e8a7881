//! Parsing of a name and password in `Authorization` (HTTP Basic, RFC 7617). They are verified by a
//! [`PasswordVerifier`].

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::Now;
use zeroize::Zeroizing;

use super::result::{AuthError, CompletionSink, IdentityResult};
use crate::context::app::MaybeDeferred;

/// Maximum length of a password in bytes: PAM's `PAM_MAX_RESP_SIZE` without the terminating NUL.
pub const PASSWORD_BYTES_MAX: usize = 511;

/// A client's name and password. They are masked in debug output and wiped from memory when dropped.
pub struct Credentials {
    /// The name: 1 to 254 bytes without control characters.
    pub user: String,
    /// The password: 1 to [`PASSWORD_BYTES_MAX`] bytes without control characters. It is UTF-8 only if the client
    /// respects the `charset` of the challenge.
    pub password: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Verifies names and passwords. All workers share one instance; its methods never block.
pub trait PasswordVerifier: Send + Sync + fmt::Debug {
    /// Verifies credentials. Either returns the result, or defers it and later sends it exactly once to the
    /// completion sink.
    fn verify(
        &self,
        credentials: Credentials,
        client: IpAddr,
        id: ConnectionId,
        sink: &Arc<dyn CompletionSink>,
        now: Now,
    ) -> MaybeDeferred<IdentityResult>;

    /// Returns the realm for the challenge: visible ASCII characters and spaces, without `"` and `\`.
    fn realm(&self) -> &str;
}

/// Parses the credentials of a request.
///
/// # Errors
/// The request has no credentials, or they violate RFC 7617 or a length limit.
pub(super) fn read(head: &Head<'_>) -> Result<Credentials, AuthError> {
    let Some(value) = head.header("authorization") else {
        return Err(AuthError::NoCredentials);
    };
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(AuthError::NoCredentials);
    }
    parse(rest.trim_matches(' ')).ok_or(AuthError::MalformedCredentials)
}

fn parse(encoded: &str) -> Option<Credentials> {
    // The decoder writes into this buffer, so no copy is left elsewhere.
    let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(encoded.len())]);
    let length = STANDARD.decode_slice(encoded, &mut bytes).ok()?;
    let bytes = &bytes[..length];
    // RFC 7617 section 2: the name contains no colon, and neither name nor password contains control characters.
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let (user, password) = (&bytes[..colon], &bytes[colon + 1..]);
    let user = std::str::from_utf8(user).ok()?;
    // An empty password is refused here: LDAP servers treat a name with an empty password as an anonymous login and
    // accept it.
    if !super::is_valid_user(user)
        || !(1..=PASSWORD_BYTES_MAX).contains(&password.len())
        || password.iter().any(u8::is_ascii_control)
    {
        return None;
    }
    Some(Credentials {
        user: user.to_owned(),
        password: Zeroizing::new(password.to_vec()),
    })
}

/// Returns the value of `WWW-Authenticate` with the verifier's realm.
pub(super) fn challenge(login: &dyn PasswordVerifier) -> String {
    format!("Basic realm=\"{}\", charset=\"UTF-8\"", login.realm())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(plain: &[u8]) -> Option<(String, Vec<u8>)> {
        let credentials = parse(&STANDARD.encode(plain))?;
        Some((credentials.user.clone(), credentials.password.to_vec()))
    }

    #[test]
    fn examples_of_the_rfc() {
        // The examples of RFC 7617, sections 2 and 2.1.
        for (encoded, user, password) in [
            ("QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Aladdin", "open sesame"),
            ("dGVzdDoxMjPCow==", "test", "123£"),
        ] {
            let credentials = parse(encoded).expect("well-formed");
            assert_eq!(credentials.user, user);
            assert_eq!(*credentials.password, password.as_bytes());
        }
    }

    #[test]
    fn the_first_colon_counts() {
        let expected = ("ann".to_owned(), b"a:b:".to_vec());
        assert_eq!(parsed(b"ann:a:b:"), Some(expected));
        // Some clients send Latin-1 despite `charset="UTF-8"`. Such a password is passed on, and the verifier
        // decides.
        assert!(parsed(b"ann:\xfcber").is_some());
    }

    #[test]
    fn what_is_refused() {
        for plain in [
            &b"ann"[..],
            b"",
            b":secret",
            b"ann:",
            b"ann:sec\0ret",
            b"an\0n:secret",
            b"ann:sec\nret",
            b"ann:\x7f",
            b"\xff:secret",
        ] {
            assert_eq!(parsed(plain), None, "{plain:?}");
        }
        for encoded in ["", "=", "QWxhZGRpbjpv!", "QWxhZGRpbjpvcGVuIHNlc2FtZQ"] {
            assert!(parse(encoded).is_none(), "{encoded}");
        }
        let longest = vec![b'x'; PASSWORD_BYTES_MAX];
        assert!(parsed(&[b"ann:", &longest[..]].concat()).is_some());
        assert_eq!(parsed(&[b"ann:x", &longest[..]].concat()), None);
        let long = [b"a".repeat(255), b":secret".to_vec()].concat();
        assert_eq!(parsed(&long), None);
    }

    #[test]
    fn a_password_is_not_shown() {
        let credentials = parse("QWxhZGRpbjpvcGVuIHNlc2FtZQ==").expect("well-formed");
        assert_eq!(format!("{credentials:?}"), "Credentials { .. }");
    }

    #[test]
    fn only_the_basic_scheme_is_accepted_in_any_case() {
        let from = |line: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n");
            let head = veche_proto::http::parse_head(text.as_bytes(), &Default::default());
            read(&head.expect("a head")).map(|credentials| credentials.user.clone())
        };
        for (line, expected) in [
            ("", Err(AuthError::NoCredentials)),
            (
                "Authorization: Bearer QWxhZGRpbjpvcGVu\r\n",
                Err(AuthError::NoCredentials),
            ),
            (
                "Authorization: Basic\r\n",
                Err(AuthError::MalformedCredentials),
            ),
            (
                "Authorization: Basic QWxh\r\n",
                Err(AuthError::MalformedCredentials),
            ),
            (
                "Authorization: Basic QWxhZGRpbjpvcGVu\r\n",
                Ok("Aladdin".to_owned()),
            ),
            (
                "Authorization: bASIC   QWxhZGRpbjpvcGVu\r\n",
                Ok("Aladdin".to_owned()),
            ),
        ] {
            assert_eq!(from(line), expected, "{line}");
        }
    }
}
