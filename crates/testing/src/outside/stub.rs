//! Stubs: the calls that they match, and their responses.

use veche_calls::{CallError, CallErrorKind};
use veche_script::Plain;

/// The kind of a mocked service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StubKind {
    Http,
    Resolve,
    Mysql,
    Redis,
    WebSocket,
}

/// A call of the application that is compared with the stubs.
#[derive(Clone, Debug)]
pub(super) struct StubCall {
    pub(super) kind: StubKind,
    /// The HTTP method; empty for calls that are not HTTP requests.
    pub(super) method: String,
    /// A URL, a host, an SQL statement, or a Redis command with its arguments.
    pub(super) target: String,
    /// The arguments of the stub's function, as a list.
    pub(super) arguments: Plain,
}

/// A stub's answer: a value for the reply, or an error.
pub(super) type StubAnswer = Result<Plain, CallError>;

/// A stub of a test.
pub(super) struct Stub {
    kind: StubKind,
    /// The HTTP method; `*` matches any.
    method: String,
    /// The target that queries must have; a trailing `*` matches any remainder.
    target: String,
    pub(super) says: Says,
}

pub(super) enum Says {
    /// The same answer to every call.
    Always(StubAnswer),
    /// The answer that a function of the test returns.
    Asks,
}

impl StubKind {
    /// Returns the kind by its name in scripts.
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"http" => Self::Http,
            b"resolve" => Self::Resolve,
            b"mysql" => Self::Mysql,
            b"redis" => Self::Redis,
            b"websocket" => Self::WebSocket,
            _ => return None,
        })
    }

    /// Returns the prefix of the service's error texts.
    fn prefix(self) -> &'static str {
        match self {
            Self::Mysql => "mysql: ",
            Self::Redis => "redis: ",
            Self::Http | Self::Resolve | Self::WebSocket => "",
        }
    }
}

impl Stub {
    /// Parses a test's request for a stub.
    pub(super) fn read(request: &Plain) -> Result<Self, String> {
        let kind = StubKind::of(request.get("kind").bytes()).ok_or("unknown kind of stub")?;
        let says = match request.get("runs").is_true() {
            true => Says::Asks,
            false => Says::Always(answer(kind, request)),
        };
        let target = request.get("target").text();
        Ok(Self {
            kind,
            method: request.get("method").text(),
            target: canonical(kind, &target),
            says,
        })
    }

    pub(super) fn is_of(&self, stub_call: &StubCall) -> bool {
        let target = &stub_call.target;
        let is_target = match self.target.strip_suffix('*') {
            Some(beginning) => target.starts_with(beginning),
            None => *target == self.target,
        };
        let is_method = self.method == "*" || self.method == stub_call.method;
        self.kind == stub_call.kind && is_target && is_method
    }

    /// Returns whether the stub is a WebSocket server on a host. Applications resolve the name of such a host before they dial.
    pub(super) fn is_at(&self, host: &str) -> bool {
        let authority = self.target.split('/').nth(2).unwrap_or_default();
        let own = match authority.strip_prefix('[') {
            Some(address) => address.split(']').next(),
            None => authority.split(':').next(),
        };
        self.kind == StubKind::WebSocket
            && own.is_some_and(|own| own == host || own.ends_with('*') || own.is_empty())
    }
}

/// Converts the answer that a test has given for a stub, fixed or returned by a function.
pub(super) fn answer(kind: StubKind, reply: &Plain) -> StubAnswer {
    let fails = reply.get("fails").text();
    let fault = CallErrorKind::ALL
        .into_iter()
        .find(|kind| kind.name() == fails);
    match fault {
        None => Ok(reply.get("answer").clone()),
        Some(fault) => {
            let words = match reply.get("words") {
                Plain::Nil => format!("{fails}, as the test specifies"),
                words => words.text(),
            };
            Err(CallError::new(fault, format!("{}{words}", kind.prefix())))
        }
    }
}

/// Returns the canonical form of a target, for comparison.
pub(super) fn canonical(kind: StubKind, target: &str) -> String {
    match kind {
        StubKind::Mysql => squeezed(target),
        StubKind::Redis => {
            let (name, rest) = target.split_at(target.find(' ').unwrap_or(target.len()));
            name.to_uppercase() + rest
        }
        StubKind::WebSocket => canonical_url(target),
        StubKind::Http | StubKind::Resolve => target.to_owned(),
    }
}

/// Replaces white space by single spaces.
fn squeezed(text: &str) -> String {
    let ends_open = text.ends_with(" *");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut text = words.join(" ");
    if ends_open && !text.ends_with(" *") && text.ends_with('*') {
        text.insert(text.len() - 1, ' ');
    }
    text
}

/// Returns the canonical form of a URL: without the default port, and with a path.
fn canonical_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let default = if scheme == "wss" { ":443" } else { ":80" };
    let authority = authority.strip_suffix(default).unwrap_or(authority);
    let is_open = path.is_empty() && authority.ends_with('*');
    let slash = if path.starts_with('/') || is_open {
        ""
    } else {
        "/"
    };
    format!("{scheme}://{}{slash}{path}", authority.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_compared_in_one_way() {
        for (kind, target, same) in [
            (
                StubKind::Mysql,
                " select a\n\t from b  where c = ? ",
                "select a from b where c = ?",
            ),
            (StubKind::Mysql, "insert  into *", "insert into *"),
            (StubKind::Redis, "get Key a", "GET Key a"),
            (StubKind::Redis, "*", "*"),
            (StubKind::WebSocket, "wss://Host:443", "wss://host/"),
            (StubKind::WebSocket, "ws://host:80?a=b", "ws://host/?a=b"),
            (StubKind::WebSocket, "ws://host:443/A*", "ws://host:443/A*"),
            (StubKind::WebSocket, "wss://*", "wss://*"),
        ] {
            assert_eq!(canonical(kind, target), same, "{target}");
        }
    }
}
