//! Which connections a back end wants to know of.

use serde::Deserialize;

use super::bad_command::bad;
use super::channel_command::read;
use super::{BadCommand, JsonText};

/// Those of a user, or of a channel; all of them, or those whose clients call themselves so.
#[derive(Debug)]
pub struct ConnectionsQuery<'a> {
    /// Of whom, or of what.
    pub of: ConnectionsOf<'a>,
    /// As SDKs say in their connect command.
    pub name: Option<JsonText<'a>>,
}

/// See [`ConnectionsQuery`].
#[derive(Debug)]
pub enum ConnectionsOf<'a> {
    /// This user's.
    User(JsonText<'a>),
    /// Those that hear this channel.
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
    /// That of the original's commercial edition is a language of its own.
    #[serde(borrow)]
    expression: Option<JsonText<'a>>,
}

/// Reads `connections`: `user` or `channel`, and `name`.
pub fn parse_connections(bytes: &[u8]) -> Result<ConnectionsQuery<'_>, BadCommand> {
    let wire: Wire<'_> = read(bytes)?;
    let is_said = |text: &JsonText<'_>| !text.0.is_empty();
    if wire.expression.as_ref().is_some_and(is_said) {
        return bad("\"expression\" is not there: ask by \"user\", \"channel\" and \"name\"");
    }
    let user = wire.user.filter(is_said);
    let of = match (user, wire.channel) {
        (Some(user), None) => ConnectionsOf::User(user),
        (None, Some(channel)) => ConnectionsOf::Channel(channel),
        _ => return bad("this call takes \"user\" or \"channel\""),
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
        assert!(error.reason.contains("is not there"), "{error}");
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
