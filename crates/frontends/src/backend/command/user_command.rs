//! Parsing of back end commands that address a user's connections.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use veche_hub::{ChannelName, Namespaces, Payload, PayloadKind, Since, UserAction, UserCommand};
use veche_types::codes::{APPLICATION_CODES, CloseCode, REASON_BYTES_MAX};

use super::bad_command::bad;
use super::channel_command::SincePosition;
use super::{BadCommand, JsonText, decode, json_or_binary, read};
use crate::context::overrides::NamespaceOverride;

/// Maximum number of connections that a command may exclude.
const EXCEPT_MAX: usize = 128;

/// A command and the user that it addresses.
#[derive(Debug)]
pub struct AddressedCommand<'a> {
    /// The name of the user.
    pub user: JsonText<'a>,
    /// The command to be executed.
    pub command: UserCommand,
}

/// The body of `disconnect`: the connections to close, and the close code.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disconnect<'a> {
    #[serde(borrow)]
    user: JsonText<'a>,
    #[serde(borrow)]
    client: Option<JsonText<'a>>,
    #[serde(borrow)]
    session: Option<JsonText<'a>>,
    /// Ids of connections that stay open. The aliases are for the Go client gocent, which sends this field and
    /// `disconnect` under the names of its Go struct.
    #[serde(borrow, alias = "ClientWhitelist")]
    whitelist: Option<Vec<JsonText<'a>>>,
    #[serde(borrow, alias = "Disconnect")]
    disconnect: Option<CodeAndReason<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeAndReason<'a> {
    code: Option<u16>,
    #[serde(borrow)]
    reason: Option<JsonText<'a>>,
    /// A field of Centrifugo before version 4, ignored: the close code now decides whether the client reconnects.
    #[serde(rename = "reconnect")]
    _reconnect: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscribe<'a> {
    #[serde(borrow)]
    user: JsonText<'a>,
    #[serde(borrow)]
    client: Option<JsonText<'a>>,
    #[serde(borrow)]
    session: Option<JsonText<'a>>,
    #[serde(borrow)]
    channel: JsonText<'a>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(borrow)]
    b64info: Option<JsonText<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    b64data: Option<JsonText<'a>>,
    #[serde(borrow)]
    recover_since: Option<SincePosition<'a>>,
    expire_at: Option<u64>,
    r#override: Option<Overrides>,
}

/// The `override` field: subscription options that take precedence over those of the namespace.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overrides {
    presence: Option<Flag>,
    join_leave: Option<Flag>,
    force_push_join_leave: Option<Flag>,
    force_positioning: Option<Flag>,
    force_recovery: Option<Flag>,
}

/// `{"value": true}`; a missing `value` is false.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flag {
    #[serde(default)]
    value: bool,
}

impl From<Overrides> for NamespaceOverride {
    fn from(overrides: Overrides) -> Self {
        let value = |flag: Option<Flag>| flag.map(|flag| flag.value);
        Self {
            presence: value(overrides.presence),
            join_leave: value(overrides.join_leave),
            force_push_join_leave: value(overrides.force_push_join_leave),
            force_positioning: value(overrides.force_positioning),
            force_recovery: value(overrides.force_recovery),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unsubscribe<'a> {
    #[serde(borrow)]
    user: JsonText<'a>,
    #[serde(borrow)]
    client: Option<JsonText<'a>>,
    #[serde(borrow)]
    session: Option<JsonText<'a>>,
    #[serde(borrow)]
    channel: JsonText<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refresh<'a> {
    #[serde(borrow)]
    user: JsonText<'a>,
    #[serde(borrow)]
    client: Option<JsonText<'a>>,
    #[serde(borrow)]
    session: Option<JsonText<'a>>,
    #[serde(default)]
    expired: bool,
    expire_at: Option<u64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
}

/// Parses the body of `disconnect`: `user`, and optionally `client`, `session`, `whitelist`, `disconnect`.
pub fn parse_disconnect(bytes: &[u8]) -> Result<AddressedCommand<'_>, BadCommand> {
    let wire: Disconnect<'_> = read(bytes)?;
    let whitelist = wire.whitelist.unwrap_or_default();
    if whitelist.len() > EXCEPT_MAX {
        return Err(BadCommand::new(format!(
            "\"whitelist\" may have at most {EXCEPT_MAX} names"
        )));
    }
    let (code, reason) = CloseCode::Disconnected.parts();
    let (mut code, mut reason): (u16, Arc<str>) = (code, Arc::from(reason));
    if let Some(wanted) = wire.disconnect {
        // A code of 0 is treated as missing.
        code = wanted.code.filter(|code| *code > 0).unwrap_or(code);
        reason = Arc::from(wanted.reason.as_ref().map_or("", |reason| &reason.0));
        if !APPLICATION_CODES.contains(&code) {
            return bad("the disconnect code must be from 3000 to 4999");
        }
        if reason.len() > REASON_BYTES_MAX {
            return Err(BadCommand::new(format!(
                "the reason may have at most {REASON_BYTES_MAX} bytes"
            )));
        }
    }
    let except = whitelist.iter().map(|client| client.0.as_ref().into());
    Ok(AddressedCommand {
        user: wire.user,
        command: UserCommand {
            except: except.collect(),
            ..user_command(
                (wire.client, wire.session),
                UserAction::Disconnect { code, reason },
            )
        },
    })
}

/// Parses the body of `subscribe`: `user`, `channel`, and optionally `client`, `session`, `info` or `b64info`, `data`
/// or `b64data`, `recover_since`, `expire_at`, `override`.
pub fn parse_subscribe<'a>(
    bytes: &'a [u8],
    namespaces: &Namespaces,
) -> Result<AddressedCommand<'a>, BadCommand> {
    let wire: Subscribe<'_> = read(bytes)?;
    let channel = channel(&wire.channel, namespaces)?;
    let overrides = NamespaceOverride::from(wire.r#override.unwrap_or_default());
    let presence_overrides = overrides
        .presence_overrides(&namespaces.of(&channel))
        .map_err(BadCommand::new)?;
    let subscribing = veche_hub::SubscribeAction {
        channel,
        since: wire.recover_since.map(Since::from),
        chan_info: payload(wire.info, ("b64info", wire.b64info))?,
        data: payload(wire.data, ("b64data", wire.b64data))?,
        expires_at_s: wire.expire_at.filter(|at_s| *at_s > 0),
        is_hidden: presence_overrides.is_hidden,
        push_join_leave: presence_overrides.receives_join_leave,
    };
    let action = UserAction::Subscribe(Box::new(subscribing));
    Ok(AddressedCommand {
        user: wire.user,
        command: user_command((wire.client, wire.session), action),
    })
}

/// Parses the body of `unsubscribe`: `user`, `channel`, and optionally `client`, `session`.
pub fn parse_unsubscribe<'a>(
    bytes: &'a [u8],
    namespaces: &Namespaces,
) -> Result<AddressedCommand<'a>, BadCommand> {
    let wire: Unsubscribe<'_> = read(bytes)?;
    let channel = channel(&wire.channel, namespaces)?;
    let action = UserAction::Unsubscribe { channel };
    Ok(AddressedCommand {
        user: wire.user,
        command: user_command((wire.client, wire.session), action),
    })
}

/// Parses the body of `refresh`: `user`, and optionally `client`, `session`, `expired`, `expire_at`, `info`.
pub fn parse_refresh(bytes: &[u8]) -> Result<AddressedCommand<'_>, BadCommand> {
    let wire: Refresh<'_> = read(bytes)?;
    let action = UserAction::Refresh {
        is_expired: wire.expired,
        expires_at_s: wire.expire_at.filter(|at_s| *at_s > 0),
        info: wire.info.map(json),
    };
    Ok(AddressedCommand {
        user: wire.user,
        command: user_command((wire.client, wire.session), action),
    })
}

/// Creates a command for the connection with these ids; without ids, for all connections of the user.
fn user_command(
    (client, session): (Option<JsonText<'_>>, Option<JsonText<'_>>),
    action: UserAction,
) -> UserCommand {
    let given = |id: Option<JsonText<'_>>| {
        id.filter(|id| !id.0.is_empty())
            .map(|id| id.0.as_ref().into())
    };
    UserCommand {
        client: given(client),
        session: given(session),
        ..UserCommand::to_all(action)
    }
}

fn channel(name: &JsonText<'_>, namespaces: &Namespaces) -> Result<Arc<str>, BadCommand> {
    match ChannelName::new(&name.0) {
        Ok(name) if !namespaces.knows(name.as_str()) => Err(BadCommand::unknown_channel()),
        Ok(name) if name.user().is_some() => {
            bad("a user's personal channel can't be subscribed or unsubscribed explicitly")
        }
        Ok(name) => Ok(Arc::from(name.as_str())),
        Err(error) => Err(BadCommand::new(format!(
            "bad channel {:?}: {error}",
            name.0
        ))),
    }
}

/// Returns the decoded bytes of the field `base64`, which may be JSON or binary. If that field is empty or missing,
/// returns the JSON `value` unchanged.
fn payload(
    value: Option<&RawValue>,
    (name, base64): (&str, Option<JsonText<'_>>),
) -> Result<Option<Payload>, BadCommand> {
    let Some(base64) = base64.filter(|base64| !base64.0.is_empty()) else {
        return Ok(value.map(json));
    };
    let mut bytes = Vec::new();
    decode(name, &base64, &mut bytes)?;
    Ok(Some(Payload {
        kind: json_or_binary(&mut bytes),
        bytes: bytes.into(),
    }))
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
        let expected = UserAction::Disconnect {
            code: 4001,
            reason: Arc::from("out"),
        };
        assert_eq!(command.command.action, expected);
        assert!(command.command.applies_to("c1") && !command.command.applies_to("c2"));
        // The request body as gocent sends it.
        let text = br#"{"user":"ann","Disconnect":{"reason":"out","reconnect":true},"ClientWhitelist":null,"client":""}"#;
        let all = parse_disconnect(text).expect("good");
        assert!(all.command.applies_to_all());
        let code = CloseCode::Disconnected.code();
        let reason = Arc::from("out");
        assert_eq!(all.command.action, UserAction::Disconnect { code, reason });

        let text = br#"{"user":"ann","channel":"chat:1","info":{"a": 1},"recover_since":{"offset":7},"expire_at":0}"#;
        let none = Namespaces::new();
        let command = parse_subscribe(text, &none).expect("good");
        let UserAction::Subscribe(subscribing) = command.command.action else {
            panic!("{:?}", command.command);
        };
        assert_eq!(&*subscribing.channel, "chat:1");
        assert_eq!(subscribing.since.map(|since| since.offset), Some(7));
        assert_eq!(subscribing.expires_at_s, None);
        assert_eq!(
            (subscribing.is_hidden, subscribing.push_join_leave),
            (false, None)
        );

        let text = br#"{"user":"ann","channel":"chat:1","session":"s","b64info":"AP8=","b64data":"eyJhIjogMX0=",
            "override":{"force_push_join_leave":{"value":true},"presence":{}}}"#;
        let command = parse_subscribe(text, &none).expect("good");
        assert_eq!(command.command.session.as_deref(), Some("s"));
        assert!(!command.command.applies_to_all());
        let UserAction::Subscribe(subscribing) = command.command.action else {
            panic!("{:?}", command.command);
        };
        let of = |payload: Option<Payload>| payload.map(|one| (one.kind, one.bytes.to_vec()));
        assert_eq!(
            of(subscribing.chan_info),
            Some((PayloadKind::Binary, vec![0, 255]))
        );
        let data = Some((PayloadKind::Json, b"{\"a\":1}".to_vec()));
        assert_eq!(of(subscribing.data), data);
        assert_eq!(
            (subscribing.is_hidden, subscribing.push_join_leave),
            (false, Some(true))
        );

        let text = br#"{"user":"ann","expire_at":1700000000,"info":{"a":1}}"#;
        let command = parse_refresh(text).expect("good");
        let expected = UserAction::Refresh {
            is_expired: false,
            expires_at_s: Some(1_700_000_000),
            info: Some(Payload {
                kind: PayloadKind::Json,
                bytes: b"{\"a\":1}"[..].into(),
            }),
        };
        assert_eq!(command.command.action, expected);
    }

    #[test]
    fn mistakes_are_named() {
        let long = format!(
            r#"{{"user":"a","disconnect":{{"code":4000,"reason":"{}"}}}}"#,
            "x".repeat(124)
        );
        let mut closed = Namespaces::new();
        closed.deny_unknown();
        let none = &Namespaces::new();
        for (result, expected) in [
            (parse_disconnect(b"{}"), "missing field `user`"),
            (
                parse_refresh(br#"{"user":"a","expire_at":-1}"#),
                "integer `-1`",
            ),
            (
                parse_subscribe(br#"{"user":"a","channel":"b","expire_at":-1}"#, none),
                "integer `-1`",
            ),
            (
                parse_disconnect(br#"{"user":"a","disconnect":{"code":1000}}"#),
                "from 3000 to 4999",
            ),
            (parse_disconnect(long.as_bytes()), "at most 123 bytes"),
            (
                parse_disconnect(br#"{"user":"a","sesion":"s"}"#),
                "unknown field `sesion`; did you mean `session`?",
            ),
            (
                parse_subscribe(br#"{"user":"a"}"#, none),
                "missing field `channel`",
            ),
            (
                parse_subscribe(br##"{"user":"a","channel":"#b"}"##, none),
                "personal channel",
            ),
            (
                parse_unsubscribe(br#"{"user":"a","channel":""}"#, none),
                "bad channel",
            ),
            (
                parse_subscribe(br#"{"user":"a","channel":"b","b64info":"*"}"#, none),
                "\"b64info\" is not base64",
            ),
            (
                parse_subscribe(
                    br#"{"user":"a","channel":"b","override":{"presence":{"value":true}}}"#,
                    none,
                ),
                "override.presence: the namespace has no presence",
            ),
            (
                parse_subscribe(br#"{"user":"a","channel":"b:1"}"#, &closed),
                "unknown channel",
            ),
        ] {
            let error = result.expect_err("bad");
            assert!(error.reason.contains(expected), "{error}");
        }
    }
}
