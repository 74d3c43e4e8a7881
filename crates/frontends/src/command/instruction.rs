//! What a back end has done to a user's connections.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use veche_hub::{ChannelName, Deed, Instruction, Payload, PayloadKind, Since};

use super::inquiry::{Place, read};
use super::{BadCommand, Text, bad};

/// Longest reason of a disconnect, in bytes: what a Close frame takes (RFC 6455, section 5.5).
const REASON_BYTES_MAX: usize = 123;

/// Most connections that may be named as excepted.
const EXCEPT_MAX: usize = 128;

/// An instruction, and for whose connections.
#[derive(Debug)]
pub struct Instructing<'a> {
    /// The user.
    pub user: Text<'a>,
    /// What is to be done.
    pub instruction: Instruction,
}

/// What is to be closed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disconnect<'a> {
    #[serde(borrow)]
    user: Text<'a>,
    #[serde(borrow)]
    client: Option<Text<'a>>,
    #[serde(borrow, default)]
    whitelist: Vec<Text<'a>>,
    #[serde(borrow)]
    disconnect: Option<CodeAndReason<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeAndReason<'a> {
    code: u16,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscribe<'a> {
    #[serde(borrow)]
    user: Text<'a>,
    #[serde(borrow)]
    client: Option<Text<'a>>,
    #[serde(borrow)]
    channel: Text<'a>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    recover_since: Option<Place<'a>>,
    expire_at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unsubscribe<'a> {
    #[serde(borrow)]
    user: Text<'a>,
    #[serde(borrow)]
    client: Option<Text<'a>>,
    #[serde(borrow)]
    channel: Text<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refresh<'a> {
    #[serde(borrow)]
    user: Text<'a>,
    #[serde(borrow)]
    client: Option<Text<'a>>,
    #[serde(default)]
    expired: bool,
    expire_at: Option<u64>,
}

/// Reads `disconnect`: `user`, and `client`, `whitelist`, `disconnect`.
pub fn parse_disconnect(bytes: &[u8]) -> Result<Instructing<'_>, BadCommand> {
    let wire: Disconnect<'_> = read(bytes)?;
    if wire.whitelist.len() > EXCEPT_MAX {
        return Err(BadCommand(format!(
            "\"whitelist\" has at most {EXCEPT_MAX} names"
        )));
    }
    let (code, reason) = crate::close::DISCONNECTED;
    let (mut code, mut reason): (u16, Arc<str>) = (code, Arc::from(reason));
    if let Some(wanted) = wire.disconnect {
        code = wanted.code;
        reason = Arc::from(wanted.reason.as_ref().map_or("", |reason| &reason.0));
        if !(3000..5000).contains(&code) {
            return bad("a connection is closed with a code from 3000 to 4999");
        }
        if reason.len() > REASON_BYTES_MAX {
            return Err(BadCommand(format!(
                "a reason has at most {REASON_BYTES_MAX} bytes"
            )));
        }
    }
    let except = wire.whitelist.iter().map(|client| client.0.as_ref().into());
    Ok(Instructing {
        user: wire.user,
        instruction: Instruction {
            except: except.collect(),
            ..instruction(wire.client.as_ref(), Deed::Disconnect { code, reason })
        },
    })
}

/// Reads `subscribe`: `user`, `channel`, and `client`, `info`, `data`, `recover_since`, `expire_at`.
pub fn parse_subscribe(bytes: &[u8]) -> Result<Instructing<'_>, BadCommand> {
    let wire: Subscribe<'_> = read(bytes)?;
    let subscribing = veche_hub::Subscribe {
        channel: channel(&wire.channel)?,
        since: wire.recover_since.map(Since::from),
        chan_info: wire.info.map(json),
        data: wire.data.map(json),
        expires_at_s: wire.expire_at.filter(|at_s| *at_s > 0),
    };
    let deed = Deed::Subscribe(Box::new(subscribing));
    Ok(Instructing {
        user: wire.user,
        instruction: instruction(wire.client.as_ref(), deed),
    })
}

/// Reads `unsubscribe`: `user`, `channel`, and `client`.
pub fn parse_unsubscribe(bytes: &[u8]) -> Result<Instructing<'_>, BadCommand> {
    let wire: Unsubscribe<'_> = read(bytes)?;
    let channel = channel(&wire.channel)?;
    Ok(Instructing {
        user: wire.user,
        instruction: instruction(wire.client.as_ref(), Deed::Unsubscribe { channel }),
    })
}

/// Reads `refresh`: `user`, and `client`, `expired`, `expire_at`.
pub fn parse_refresh(bytes: &[u8]) -> Result<Instructing<'_>, BadCommand> {
    let wire: Refresh<'_> = read(bytes)?;
    let deed = Deed::Refresh {
        is_expired: wire.expired,
        expires_at_s: wire.expire_at.filter(|at_s| *at_s > 0),
    };
    Ok(Instructing {
        user: wire.user,
        instruction: instruction(wire.client.as_ref(), deed),
    })
}

fn instruction(client: Option<&Text<'_>>, deed: Deed) -> Instruction {
    Instruction {
        client: client
            .filter(|client| !client.0.is_empty())
            .map(|client| client.0.as_ref().into()),
        ..Instruction::to_all(deed)
    }
}

fn channel(name: &Text<'_>) -> Result<Arc<str>, BadCommand> {
    match ChannelName::new(&name.0) {
        Ok(name) if name.user().is_some() => {
            bad("a user's own channel comes and goes with the connection")
        }
        Ok(name) => Ok(Arc::from(name.as_str())),
        Err(error) => Err(BadCommand::new(format!(
            "bad channel {:?}: {error}",
            name.0
        ))),
    }
}

fn json(value: &RawValue) -> Payload {
    Payload {
        kind: PayloadKind::Json,
        bytes: bytes::Bytes::copy_from_slice(value.get().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read() {
        let text = br#"{"user":"ann","client":"c1","whitelist":["c2"],"disconnect":{"code":4001,"reason":"out"}}"#;
        let command = parse_disconnect(text).expect("good");
        let expected = Deed::Disconnect {
            code: 4001,
            reason: Arc::from("out"),
        };
        assert_eq!(command.instruction.deed, expected);
        assert!(command.instruction.means("c1") && !command.instruction.means("c2"));
        let all = parse_disconnect(br#"{"user":"ann","client":""}"#).expect("good");
        assert!(all.instruction.means_all());

        let text = br#"{"user":"ann","channel":"chat:1","info":{"a": 1},"recover_since":{"offset":7},"expire_at":0}"#;
        let command = parse_subscribe(text).expect("good");
        let Deed::Subscribe(subscribing) = command.instruction.deed else {
            panic!("{:?}", command.instruction);
        };
        assert_eq!(&*subscribing.channel, "chat:1");
        assert_eq!(subscribing.since.map(|since| since.offset), Some(7));
        assert_eq!(subscribing.expires_at_s, None);

        let command = parse_refresh(br#"{"user":"ann","expire_at":1700000000}"#).expect("good");
        let expected = Deed::Refresh {
            is_expired: false,
            expires_at_s: Some(1_700_000_000),
        };
        assert_eq!(command.instruction.deed, expected);
    }

    #[test]
    fn mistakes_are_named() {
        let long = format!(
            r#"{{"user":"a","disconnect":{{"code":4000,"reason":"{}"}}}}"#,
            "x".repeat(124)
        );
        for (result, expected) in [
            (parse_disconnect(b"{}"), "missing field `user`"),
            (
                parse_refresh(br#"{"user":"a","expire_at":-1}"#),
                "integer `-1`",
            ),
            (
                parse_subscribe(br#"{"user":"a","channel":"b","expire_at":-1}"#),
                "integer `-1`",
            ),
            (
                parse_disconnect(br#"{"user":"a","disconnect":{"code":1000}}"#),
                "from 3000 to 4999",
            ),
            (parse_disconnect(long.as_bytes()), "at most 123 bytes"),
            (
                parse_disconnect(br#"{"user":"a","session":"s"}"#),
                "unknown field `session`",
            ),
            (
                parse_subscribe(br#"{"user":"a"}"#),
                "missing field `channel`",
            ),
            (
                parse_subscribe(br##"{"user":"a","channel":"#b"}"##),
                "comes and goes with the connection",
            ),
            (
                parse_unsubscribe(br#"{"user":"a","channel":""}"#),
                "bad channel",
            ),
        ] {
            let error = result.expect_err("bad");
            assert!(error.0.contains(expected), "{error}");
        }
    }
}
