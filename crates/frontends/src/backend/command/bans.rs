//! Commands that ban users and revoke tokens.

use serde::Deserialize;

use super::bad_command::bad;
use super::{BadCommand, JsonText, read};
use crate::context::identity::is_valid_user;
use crate::context::issued_token::{Ban, TOKEN_ID_BYTES_MAX};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User<'a> {
    #[serde(borrow)]
    user: JsonText<'a>,
    expire_at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token<'a> {
    #[serde(borrow)]
    uid: JsonText<'a>,
    expire_at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens<'a> {
    #[serde(borrow)]
    user: JsonText<'a>,
    issued_before: Option<u64>,
    expire_at: Option<u64>,
}

/// Parses the body of `block_user`, whose fields are `user` and optionally `expire_at`.
pub fn parse_block_user(bytes: &[u8]) -> Result<Ban, BadCommand> {
    let wire: User<'_> = read(bytes)?;
    Ok(Ban::User {
        user: user(&wire.user)?,
        until_s: until(wire.expire_at),
    })
}

/// Parses the body of `unblock_user`, whose only field is `user`.
pub fn parse_unblock_user(bytes: &[u8]) -> Result<Ban, BadCommand> {
    let name = super::parse_user(bytes)?;
    Ok(Ban::UserAllowed { user: user(&name)? })
}

/// Parses the body of `revoke_token`, whose fields are `uid` and optionally `expire_at`.
pub fn parse_revoke_token(bytes: &[u8]) -> Result<Ban, BadCommand> {
    let wire: Token<'_> = read(bytes)?;
    if !(1..=TOKEN_ID_BYTES_MAX).contains(&wire.uid.0.len()) {
        return Err(BadCommand::new(format!(
            "\"uid\" must be the token's jti, of 1 to {TOKEN_ID_BYTES_MAX} bytes"
        )));
    }
    Ok(Ban::Token {
        id: wire.uid.0.into_owned(),
        until_s: until(wire.expire_at),
    })
}

/// Parses the body of `invalidate_user_tokens`: `user`, and optionally `issued_before` (by default now) and
/// `expire_at`.
pub fn parse_invalidate_user_tokens(bytes: &[u8], now_s: u64) -> Result<Ban, BadCommand> {
    let wire: Tokens<'_> = read(bytes)?;
    Ok(Ban::TokensOf {
        user: user(&wire.user)?,
        issued_before_s: wire.issued_before.unwrap_or(now_s),
        until_s: until(wire.expire_at),
    })
}

fn user(name: &JsonText<'_>) -> Result<String, BadCommand> {
    match is_valid_user(&name.0) {
        true => Ok(name.0.clone().into_owned()),
        false => bad("bad user: must have 1 to 254 bytes and no control characters"),
    }
}

/// Returns the time in seconds since 1970 at which a ban expires; `None`: never. Callers send 0 for a missing value.
fn until(expire_at: Option<u64>) -> Option<u64> {
    expire_at.filter(|at_s| *at_s > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read() {
        let user = || "ann".to_owned();
        for (block, expected) in [
            (
                parse_block_user(br#"{"user":"ann"}"#),
                Ban::User {
                    user: user(),
                    until_s: None,
                },
            ),
            (
                parse_block_user(br#"{"user":"ann","expire_at":7}"#),
                Ban::User {
                    user: user(),
                    until_s: Some(7),
                },
            ),
            (
                parse_unblock_user(br#"{"user":"ann"}"#),
                Ban::UserAllowed { user: user() },
            ),
            (
                parse_revoke_token(br#"{"uid":"t-1","expire_at":0}"#),
                Ban::Token {
                    id: "t-1".to_owned(),
                    until_s: None,
                },
            ),
            (
                parse_invalidate_user_tokens(br#"{"user":"ann"}"#, 42),
                Ban::TokensOf {
                    user: user(),
                    issued_before_s: 42,
                    until_s: None,
                },
            ),
        ] {
            assert_eq!(block.expect("good"), expected);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (block, expected) in [
            (parse_block_user(b"{}"), "missing field `user`"),
            (
                parse_block_user(br#"{"user":"ann","expire_at":-1}"#),
                "integer `-1`",
            ),
            (
                parse_revoke_token(br#"{"uid":"t","expire_at":1.5}"#),
                "floating point",
            ),
            (parse_block_user(br#"["ann"]"#), "expected a JSON object"),
            (parse_block_user(br#"{"user":""}"#), "bad user"),
            (
                parse_unblock_user(br#"{"user":"ann","expire_at":1}"#),
                "unknown field",
            ),
            (parse_revoke_token(br#"{"uid":""}"#), "of 1 to 255 bytes"),
            (
                parse_invalidate_user_tokens(br#"{"user":"ann","channel":"a"}"#, 1),
                "unknown field `channel`",
            ),
        ] {
            let error = block.expect_err("bad");
            assert!(error.reason.contains(expected), "{error}");
        }
    }
}
