//! Which connections a back end wants to know of.

use serde::Deserialize;

use super::inquiry::read;
use super::mistakes::bad;
use super::{BadCommand, Text};

/// Those of a user, or of a channel; all of them, or those whose clients call themselves so.
#[derive(Debug)]
pub struct Listing<'a> {
    /// Of whom, or of what.
    pub of: Of<'a>,
    /// As SDKs say in their connect command.
    pub name: Option<Text<'a>>,
}

/// See [`Listing`].
#[derive(Debug)]
pub enum Of<'a> {
    /// This user's.
    User(Text<'a>),
    /// Those that hear this channel.
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
    /// That of the original's commercial edition is a language of its own.
    #[serde(borrow)]
    expression: Option<Text<'a>>,
}

/// Reads `connections`: `user` or `channel`, and `name`.
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
