//! Tokens that come in commands: what the one of a connection and that of a subscription say.
//!
//! Whether they hold is judged with the keys of the route's identity. Where these may lie elsewhere the command waits for
//! them, once.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};
use veche_centrifuge::{DisconnectCode, ErrorCode};
use veche_hub::{Payload, PayloadKind, SessionId};
use veche_jwt::{Claimed, Refusal};

use crate::identity::token::Tokens;
use crate::identity::{Identity, Lease, Unknown, is_valid_user};
use crate::route::Route;
use crate::shared::{Now, Shared};

/// Why a token is of no use now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Other keys are on their way.
    Later,
    /// It was good once.
    Expired,
    /// It does not hold, or is for something else.
    Bad,
    /// It can't be judged: our fault.
    NoKeys,
    /// Nothing here goes by tokens.
    Unused,
}

impl Denied {
    /// What becomes of a connect command.
    pub(super) fn to_connect(self) -> Result<ErrorCode, DisconnectCode> {
        match self {
            Self::Expired => Ok(ErrorCode::TokenExpired),
            Self::NoKeys => Ok(ErrorCode::Internal),
            Self::Later | Self::Bad | Self::Unused => Err(DisconnectCode::InvalidToken),
        }
    }

    /// What becomes of a command about one channel.
    pub(super) fn to_channel(self) -> ErrorCode {
        match self {
            Self::Expired => ErrorCode::TokenExpired,
            Self::NoKeys => ErrorCode::Internal,
            Self::Later | Self::Bad | Self::Unused => ErrorCode::PermissionDenied,
        }
    }
}

/// What a connection's token says.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) lease: Lease,
    /// Of the connection, for others to see.
    pub(super) info: Option<Payload>,
    /// Channels that the client is subscribed to.
    pub(super) channels: Vec<Granted>,
}

/// A channel that a connection's token names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) channel: String,
    /// Of the client in it, for others to see.
    pub(super) info: Option<Payload>,
    /// What the client is told.
    pub(super) data: Option<Payload>,
    /// Until when it is, in milliseconds since 1970; `None`: for ever.
    pub(super) expires_ms: Option<u64>,
}

/// What a subscription's token says.
#[derive(Debug)]
pub(super) struct Grant {
    /// Of the client in the channel, for others to see.
    pub(super) info: Option<Payload>,
    /// Milliseconds since 1970.
    pub(super) expires_ms: u64,
}

/// Who judges, and who asks.
pub(super) struct Judge<'a> {
    pub(super) id: SessionId,
    pub(super) route: &'a Route,
    /// Other keys have been asked for already.
    pub(super) has_asked: bool,
}

impl Judge<'_> {
    /// A connection's token.
    pub(super) fn connection(&self, token: &str, shared: &Shared) -> Result<Pass, Denied> {
        let mut claimed = self.claimed(token, shared)?;
        let user = claimed.user.take().filter(|user| is_valid_user(user));
        // A subscription's token says who may hear something, not who somebody is.
        let is_for_channel = claimed.all.contains_key("channel");
        let (Some(user), false) = (user, is_for_channel) else {
            return Err(Denied::Bad);
        };
        Ok(Pass {
            lease: Lease {
                user,
                expires_ms: claimed.expires_s.saturating_mul(1000),
            },
            info: info(&claimed.all),
            channels: granted(&claimed.all),
        })
    }

    /// A subscription's token: for this channel and this user.
    pub(super) fn subscription(
        &self,
        token: &str,
        channel: &str,
        user: &str,
        shared: &Shared,
    ) -> Result<Grant, Denied> {
        let claimed = self.claimed(token, shared)?;
        let is_it = claimed.all.get("channel").and_then(Value::as_str) == Some(channel)
            && claimed.user.as_deref().unwrap_or_default() == user;
        if !is_it {
            return Err(Denied::Bad);
        }
        Ok(Grant {
            info: info(&claimed.all),
            expires_ms: claimed.expires_s.saturating_mul(1000),
        })
    }

    fn claimed(&self, token: &str, shared: &Shared) -> Result<Claimed, Denied> {
        let Identity::Token(tokens) = &self.route.identity else {
            return Err(Denied::Unused);
        };
        let unknown = match tokens.judge_open(token, shared) {
            Ok(claimed) => return Ok(claimed),
            Err(unknown) => unknown,
        };
        if self.looks_for_keys(tokens, unknown, shared) {
            return Err(Denied::Later);
        }
        if let Unknown::Token(refusal) = unknown {
            shared.stats.token_refused(refusal);
        }
        Err(match unknown {
            Unknown::Token(Refusal::Expired) => Denied::Expired,
            Unknown::NoKeys => Denied::NoKeys,
            _ => Denied::Bad,
        })
    }

    fn looks_for_keys(&self, tokens: &Arc<Tokens>, unknown: Unknown, shared: &Shared) -> bool {
        let lacks_keys = matches!(
            unknown,
            Unknown::NoKeys | Unknown::Token(Refusal::UnknownKey)
        );
        let keys = &tokens.keys;
        lacks_keys && !self.has_asked && keys.look_for_more(self.id, &shared.desk, shared.now)
    }

    /// In how many seconds a client should hand in another token, for one that holds until then: clocks may differ, so
    /// it holds a little longer than it says itself.
    pub(super) fn ttl_s(&self, expires_ms: u64, now: Now) -> u32 {
        let leeway_s = match &self.route.identity {
            Identity::Token(tokens) => tokens.rules.leeway_s,
            _ => 0,
        };
        let left_s = expires_ms.saturating_sub(now.wall_ms).div_ceil(1000);
        // 0 would mean that it does not end.
        let left_s = left_s.saturating_sub(leeway_s).max(1);
        u32::try_from(left_s).unwrap_or(u32::MAX)
    }
}

/// `info` as it stands, or the bytes of `b64info`.
fn info(claims: &Map<String, Value>) -> Option<Payload> {
    value(claims, "info", "b64info")
}

fn value(claims: &Map<String, Value>, plain: &str, base64: &str) -> Option<Payload> {
    let encoded = claims.get(base64).and_then(Value::as_str);
    if let Some(bytes) = encoded.and_then(|text| STANDARD.decode(text).ok()) {
        let kind = PayloadKind::Binary;
        let bytes = Bytes::from(bytes);
        return Some(Payload { kind, bytes });
    }
    let json = claims.get(plain).filter(|value| !value.is_null())?;
    Some(Payload {
        kind: PayloadKind::Json,
        bytes: Bytes::from(json.to_string()),
    })
}

/// `channels`, and `subs` with what they say of each.
fn granted(claims: &Map<String, Value>) -> Vec<Granted> {
    let mut all: Vec<Granted> = Vec::new();
    let subs = claims.get("subs").and_then(Value::as_object);
    for (channel, sub) in subs.into_iter().flatten() {
        let nothing = Map::new();
        let sub = sub.as_object().unwrap_or(&nothing);
        all.push(Granted {
            channel: channel.clone(),
            info: info(sub),
            data: value(sub, "data", "b64data"),
            expires_ms: None,
        });
    }
    let channels = claims.get("channels").and_then(Value::as_array);
    for channel in channels.into_iter().flatten().filter_map(Value::as_str) {
        if !all.iter().any(|one| one.channel == channel) {
            all.push(Granted {
                channel: channel.to_owned(),
                ..Granted::default()
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(payload: Option<&Payload>) -> Option<(PayloadKind, String)> {
        let payload = payload?;
        let text = String::from_utf8_lossy(&payload.bytes).into_owned();
        Some((payload.kind, text))
    }

    #[test]
    fn claims_name_channels_with_what_is_said_of_them() {
        let claims = json!({
            "info": {"name": "Ann"},
            "channels": ["news", 7, "chat:1", "news"],
            "subs": {"chat:1": {"info": "here", "b64data": "AP8="}, "chat:2": null},
        });
        let claims = claims.as_object().expect("an object");
        let name = (PayloadKind::Json, r#"{"name":"Ann"}"#.to_owned());
        assert_eq!(text(info(claims).as_ref()), Some(name));
        let granted = granted(claims);
        let names: Vec<&str> = granted.iter().map(|one| &*one.channel).collect();
        assert_eq!(names, ["chat:1", "chat:2", "news"]);
        let here = (PayloadKind::Json, "\"here\"".to_owned());
        assert_eq!(text(granted[0].info.as_ref()), Some(here));
        let data = granted[0].data.as_ref().expect("data");
        assert_eq!(
            (data.kind, &data.bytes[..]),
            (PayloadKind::Binary, &[0, 255][..])
        );
    }
}
