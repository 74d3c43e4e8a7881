//! Parsing of the command that lists connections.

use serde::Deserialize;

use super::bad_command::bad;
use super::{BadCommand, JsonText, read};

/// A query for connections of a user or channel, optionally by client name.
#[derive(Debug)]
pub struct ConnectionsQuery<'a> {
    /// Restricts the connections to a user or channel.
    pub of: ConnectionsOf<'a>,
    /// The client name that SDKs send in their connect command.
    pub name: Option<JsonText<'a>>,
}

/// The user or channel of a [`ConnectionsQuery`].
#[derive(Debug)]
pub enum ConnectionsOf<'a> {
    /// Connections of this user.
    User(JsonText<'a>),
    /// Connections that subscribe to this channel.
    Channel(JsonText<'a>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    user: Option<JsonText<'a>>,
    #[serde(borrow)]
    channel: Option<JsonText<'a>>,
    #[serde(borrow)]
    name: Option<JsonText<'a>>,
    /// A filter in the query language of Centrifugo's commercial edition.
    #[serde(borrow)]
    expression: Option<JsonText<'a>>,
}

/// Parses the body of `connections`: `user` or `channel`, and optionally `name`.
pub fn parse_connections(bytes: &[u8]) -> Result<ConnectionsQuery<'_>, BadCommand> {
    let wire: Wire<'_> = read(bytes)?;
    let is_given = |text: &JsonText<'_>| !text.0.is_empty();
    if wire.expression.as_ref().is_some_and(is_given) {
        return bad(
            "\"expression\" is not supported: filter by \"user\", \"channel\" and \"name\"",
        );
    }
    let user = wire.user.filter(is_given);
    let of = match (user, wire.channel) {
        (Some(user), None) => ConnectionsOf::User(user),
        (None, Some(channel)) => ConnectionsOf::Channel(channel),
        _ => return bad("this call requires \"user\" or \"channel\""),
    };
    Ok(ConnectionsQuery {
        of,
        name: wire.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_is_asked_for() {
        let listing = parse_connections(br#"{"user":"ann","name":"js"}"#).expect("good");
        assert!(matches!(listing.of, ConnectionsOf::User(user) if user.0 == "ann"));
        assert_eq!(listing.name.map(|name| name.0).as_deref(), Some("js"));
        let listing = parse_connections(br#"{"channel":"chat:1"}"#).expect("good");
        assert!(matches!(listing.of, ConnectionsOf::Channel(channel) if channel.0 == "chat:1"));
        let error = parse_connections(br#"{"user":"ann","expression":"1"}"#).expect_err("bad");
        assert!(error.reason.contains("is not supported"), "{error}");
        for text in [
            "{}",
            r#"{"user":"","expression":""}"#,
            r#"{"user":"ann","channel":"c"}"#,
        ] {
            let error = parse_connections(text.as_bytes()).expect_err("bad");
            assert!(error.reason.contains("\"user\" or \"channel\""), "{error}");
        }
    }
}
