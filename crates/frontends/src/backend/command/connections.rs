//! The command that lists connections.

use serde::Deserialize;

use super::inquiry::read;
use super::mistakes::bad;
use super::{BadCommand, Text};

/// A query for connections of a user or channel, optionally by client name.
#[derive(Debug)]
pub struct Listing<'a> {
    /// Restricts the connections to a user or channel.
    pub of: Of<'a>,
    /// The client name that SDKs send in their connect command.
    pub name: Option<Text<'a>>,
}

/// The user or channel of a [`Listing`].
#[derive(Debug)]
pub enum Of<'a> {
    /// Connections of this user.
    User(Text<'a>),
    /// Subscribers of this channel.
    Channel(Text<'a>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    user: Option<Text<'a>>,
    #[serde(borrow)]
    channel: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    /// The query language of Centrifugo's commercial edition.
    #[serde(borrow)]
    expression: Option<Text<'a>>,
}

/// Parses `connections`: `user` or `channel`, and `name`.
pub fn parse_connections(bytes: &[u8]) -> Result<Listing<'_>, BadCommand> {
    let wire: Wire<'_> = read(bytes)?;
    let is_said = |text: &Text<'_>| !text.0.is_empty();
    if wire.expression.as_ref().is_some_and(is_said) {
        return bad(
            "\"expression\" is not supported: filter by \"user\", \"channel\" and \"name\"",
        );
    }
    let user = wire.user.filter(is_said);
    let of = match (user, wire.channel) {
        (Some(user), None) => Of::User(user),
        (None, Some(channel)) => Of::Channel(channel),
        _ => return bad("this call takes \"user\" or \"channel\""),
    };
    Ok(Listing {
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
        assert!(matches!(listing.of, Of::User(user) if user.0 == "ann"));
        assert_eq!(listing.name.map(|name| name.0).as_deref(), Some("js"));
        let listing = parse_connections(br#"{"channel":"chat:1"}"#).expect("good");
        assert!(matches!(listing.of, Of::Channel(channel) if channel.0 == "chat:1"));
        let error = parse_connections(br#"{"user":"ann","expression":"1"}"#).expect_err("bad");
        assert!(error.why.contains("is not there"), "{error}");
        for text in [
            "{}",
            r#"{"user":"","expression":""}"#,
            r#"{"user":"ann","channel":"c"}"#,
        ] {
            let error = parse_connections(text.as_bytes()).expect_err("bad");
            assert!(error.why.contains("\"user\" or \"channel\""), "{error}");
        }
    }
}
