//! The request target's four forms (RFC 9112 section 3.2) and the Host rules.

use std::borrow::Cow;

use super::{HttpError, Method, Status, path};

/// The parts of a target.
pub(super) struct TargetParts<'b> {
    /// The authority of an absolute-form target; it overrides the Host header (RFC 9112 section 3.2.2).
    pub(super) authority: Option<&'b str>,
    /// The path from its first `/`, in normal form; `*` for `OPTIONS *`.
    pub(super) path: Cow<'b, str>,
    /// The part after `?`.
    pub(super) query: &'b str,
}

impl<'b> TargetParts<'b> {
    pub(super) fn split(method: &Method<'_>, target: &'b str) -> Result<Self, HttpError> {
        if *method == Method::Connect {
            return Err(HttpError::new(
                Status::NOT_IMPLEMENTED,
                "CONNECT is not implemented",
            ));
        }
        if target.starts_with('/') {
            let (path, query) = path::split(target)?;
            return Ok(Self {
                authority: None,
                path,
                query,
            });
        }
        if target == "*" && *method == Method::Options {
            return Ok(Self {
                authority: None,
                path: Cow::Borrowed(target),
                query: "",
            });
        }
        Self::split_absolute(target)
    }

    #[cold]
    fn split_absolute(target: &'b str) -> Result<Self, HttpError> {
        let rest = ["http://", "https://"]
            .iter()
            .find_map(|scheme| {
                let head = target.get(..scheme.len())?;
                head.eq_ignore_ascii_case(scheme)
                    .then(|| &target[scheme.len()..])
            })
            .ok_or(HttpError::bad(
                "the request target is neither a path nor a URL",
            ))?;
        let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(authority_end);
        // RFC 9110 section 4.2.4: user information in a URL is used for deception. `check_host`
        // refuses the `@` after it.
        check_host(authority)?;
        let (path, query) = path::split(rest)?;
        Ok(Self {
            authority: Some(authority),
            path: match path.is_empty() {
                true => Cow::Borrowed("/"),
                false => path,
            },
            query,
        })
    }
}

/// Checks `uri-host [ ":" port ]` (RFC 9110 section 7.2). The host must not be empty, since an http URL always has one.
pub(super) fn check_host(host: &str) -> Result<(), HttpError> {
    let bytes = host.as_bytes();
    let name_end = if bytes.first() == Some(&b'[') {
        let end = bytes.iter().position(|&byte| byte == b']').unwrap_or(0);
        let inside = bytes.get(1..end).unwrap_or_default();
        if inside.is_empty()
            || !inside
                .iter()
                .all(|&b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        {
            return Err(BAD_HOST);
        }
        end + 1
    } else {
        let end = bytes
            .iter()
            .position(|&byte| !HOST[byte as usize])
            .unwrap_or(bytes.len());
        if end == 0 {
            return Err(BAD_HOST);
        }
        end
    };
    match &bytes[name_end..] {
        [] => Ok(()),
        [b':', port @ ..] if port.len() <= 5 && port.iter().all(u8::is_ascii_digit) => Ok(()),
        _ => Err(BAD_HOST),
    }
}

const BAD_HOST: HttpError = HttpError::bad("the header Host is not a valid name");

/// Characters of `reg-name` (RFC 3986 section 3.2.2).
static HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'%'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b','
                    | b';'
                    | b'='
            );
        byte += 1;
    }
    table
};
