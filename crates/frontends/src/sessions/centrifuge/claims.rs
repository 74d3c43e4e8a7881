//! The token claims that Centrifugo defines. A token with a claim that is not supported is refused; supported claims
//! are applied. Claims that Centrifugo does not define are ignored (RFC 7519 section 4).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};
use veche_hub::{NamespaceOptions, Namespaces, Payload, PayloadKind};
use veche_jwt::TokenError;

use crate::context::overrides::{NamespaceOverride, PresenceOverrides};

type Claims = Map<String, Value>;

/// The claims of a connection token, except for the user and the expiry.
#[derive(Debug, Default)]
pub(super) struct ConnectionClaims {
    /// Public data of the connection.
    pub(super) info: Option<Payload>,
    /// Data that is included in the route's hook requests.
    pub(super) meta: Option<Payload>,
    pub(super) channels: Vec<ChannelClaim>,
}

/// A server-side subscription that a connection token grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChannelClaim {
    pub(super) channel: String,
    /// Public data of the client in the channel.
    pub(super) info: Option<Payload>,
    /// Data that the client receives with the subscription.
    pub(super) data: Option<Payload>,
    /// When the subscription expires, in milliseconds since 1970; `None`: never.
    pub(super) expires_ms: Option<u64>,
    pub(super) overrides: PresenceOverrides,
    /// Whether a token granted the subscription.
    pub(super) is_by_token: bool,
}

/// The claims of a subscription token, except for the user, the channel and the expiry.
#[derive(Debug, Default)]
pub(super) struct SubscriptionClaims {
    /// The id of the only connection that may use the token; `None`: any connection of the user.
    pub(super) client: Option<String>,
    /// Public data of the client in the channel.
    pub(super) info: Option<Payload>,
    /// Data that the client receives with the subscription.
    pub(super) data: Option<Payload>,
    pub(super) presence_overrides: PresenceOverrides,
}

impl ConnectionClaims {
    /// Parses the claims of a connection token.
    ///
    /// # Errors
    /// A claim has a wrong type or is unsupported.
    pub(super) fn read(claims: &Claims, namespaces: &Namespaces) -> Result<Self, TokenError> {
        if has(claims, "caps") {
            // Capabilities restrict what a connection may do. A token with capabilities must not be accepted as if it
            // had none.
            return Err(TokenError::Claim("caps: capabilities are not supported"));
        }
        Ok(Self {
            info: payload(claims, INFO)?,
            meta: given(claims, "meta").map(json),
            channels: channels(claims, namespaces)?,
        })
    }
}

impl SubscriptionClaims {
    /// Parses the claims of a subscription token.
    ///
    /// # Errors
    /// A claim has a wrong type or is unsupported.
    pub(super) fn read(claims: &Claims, options: &NamespaceOptions) -> Result<Self, TokenError> {
        let client = match given(claims, "client") {
            None => None,
            Some(Value::String(client)) => Some(client.clone()).filter(|client| !client.is_empty()),
            Some(_) => return Err(TokenError::Claim("client has to be a string")),
        };
        let one = one(String::new(), claims, options)?;
        Ok(Self {
            client,
            info: one.info,
            data: one.data,
            presence_overrides: one.overrides,
        })
    }
}

/// The name of a claim, the name of its base64 alternative, and the error text for an invalid value
/// of the alternative.
type Base64Claim = (&'static str, &'static str, &'static str);

const INFO: Base64Claim = ("info", "b64info", "b64info has to be a string of base64");
const DATA: Base64Claim = ("data", "b64data", "b64data has to be a string of base64");

/// Returns whether a claim is present; a claim that is null counts as absent.
fn has(claims: &Claims, name: &str) -> bool {
    given(claims, name).is_some()
}

fn given<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    claims.get(name).filter(|value| !value.is_null())
}

fn json(value: &Value) -> Payload {
    Payload {
        kind: PayloadKind::Json,
        bytes: Bytes::from(value.to_string()),
    }
}

/// Returns the decoded bytes of the claim's base64 alternative if it is present, otherwise the claim's JSON.
fn payload(
    claims: &Claims,
    (plain, base64, wrong): Base64Claim,
) -> Result<Option<Payload>, TokenError> {
    let text = match given(claims, base64) {
        None => "",
        Some(Value::String(text)) => text,
        Some(_) => return Err(TokenError::Claim(wrong)),
    };
    if text.is_empty() {
        return Ok(given(claims, plain).map(json));
    }
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| TokenError::Claim(wrong))?;
    Ok(Some(Payload {
        kind: PayloadKind::Binary,
        bytes: Bytes::from(bytes),
    }))
}

/// Parses the server-side subscriptions in `channels`, and those with options in `subs`.
fn channels(claims: &Claims, namespaces: &Namespaces) -> Result<Vec<ChannelClaim>, TokenError> {
    let mut all: Vec<ChannelClaim> = Vec::new();
    let nothing = Map::new();
    let subs = match given(claims, "subs") {
        None => &nothing,
        Some(Value::Object(subs)) => subs,
        Some(_) => return Err(TokenError::Claim("subs has to be an object")),
    };
    for (channel, sub) in subs {
        let sub = match sub {
            Value::Null => &nothing,
            Value::Object(sub) => sub,
            _ => return Err(TokenError::Claim("each member of subs has to be an object")),
        };
        all.push(one(channel.clone(), sub, &namespaces.of(channel))?);
        if let (Some(one), Some(at)) = (all.last_mut(), given(sub, "expire_at")) {
            let seconds = at.as_u64().ok_or(TokenError::Claim(
                "expire_at in subs has to be a whole number of seconds since 1970, or 0",
            ))?;
            one.expires_ms = (seconds > 0).then(|| seconds.saturating_mul(1000));
        }
    }
    let names = match given(claims, "channels") {
        None => &[][..],
        Some(Value::Array(names)) => names,
        Some(_) => return Err(TokenError::Claim("channels has to be an array")),
    };
    for name in names {
        let Value::String(channel) = name else {
            return Err(TokenError::Claim("channels has to be an array of strings"));
        };
        if !subs.contains_key(channel) {
            all.push(ChannelClaim {
                channel: channel.clone(),
                is_by_token: true,
                ..ChannelClaim::default()
            });
        }
    }
    Ok(all)
}

/// Parses the options that a subscription token and an entry of `subs` have in common.
fn one(
    channel: String,
    claims: &Claims,
    options: &NamespaceOptions,
) -> Result<ChannelClaim, TokenError> {
    if has(claims, "allow") {
        // Capabilities restrict what a client may do in the channel, so they must not be ignored.
        return Err(TokenError::Claim("allow: capabilities are not supported"));
    }
    Ok(ChannelClaim {
        channel,
        info: payload(claims, INFO)?,
        data: payload(claims, DATA)?,
        expires_ms: None,
        overrides: match given(claims, "override") {
            None => PresenceOverrides::default(),
            Some(Value::Object(wanted)) => presence_overrides(wanted, options)?,
            Some(_) => return Err(TokenError::Claim("override has to be an object")),
        },
        is_by_token: true,
    })
}

/// Parses the value of `override`, which replaces namespace options for one subscription.
///
/// # Errors
/// It contains an option that a subscription can't override, or a value of a wrong type.
fn presence_overrides(
    wanted: &Claims,
    options: &NamespaceOptions,
) -> Result<PresenceOverrides, TokenError> {
    const KNOWN: [&str; 5] = [
        "presence",
        "join_leave",
        "force_push_join_leave",
        "force_positioning",
        "force_recovery",
    ];
    if wanted.keys().any(|name| !KNOWN.contains(&&**name)) {
        return Err(TokenError::Claim("override has an unknown member"));
    }
    let [presence, joins, pushes_joins, positioned, recovers] =
        KNOWN.map(|name| flag(wanted, name));
    let wanted = NamespaceOverride {
        presence: presence?,
        join_leave: joins?,
        force_push_join_leave: pushes_joins?,
        force_positioning: positioned?,
        force_recovery: recovers?,
    };
    wanted
        .presence_overrides(options)
        .map_err(TokenError::Claim)
}

/// Parses the member `name`, an object such as `{"value": true}`. A missing `value` means false. Returns `None` if the
/// member itself is missing.
fn flag(wanted: &Claims, name: &str) -> Result<Option<bool>, TokenError> {
    let wrong =
        TokenError::Claim("each member of override has to be an object with a boolean value");
    match given(wanted, name) {
        None => Ok(None),
        Some(Value::Object(flag)) => match given(flag, "value") {
            None => Ok(Some(false)),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(wrong),
        },
        Some(_) => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use veche_hub::{HistoryOptions, RecoveryMode};

    use super::*;

    fn text(payload: Option<&Payload>) -> Option<(PayloadKind, String)> {
        let payload = payload?;
        let text = String::from_utf8_lossy(&payload.bytes).into_owned();
        Some((payload.kind, text))
    }

    fn claims(value: Value) -> Claims {
        match value {
            Value::Object(claims) => claims,
            other => panic!("{other}"),
        }
    }

    fn namespaces() -> Namespaces {
        let mut all = Namespaces::new();
        all.insert("seen", seen());
        all
    }

    /// Returns options in which everything that a subscription can override is enabled.
    fn seen() -> NamespaceOptions {
        NamespaceOptions {
            history: Some(HistoryOptions {
                size: 1,
                ttl_ms: 1000,
                position_ttl_ms: 1000,
                recovery: RecoveryMode::Missed,
                budget: veche_hub::Budget::COMMON,
            }),
            presence: true,
            join_leave: true,
            ..NamespaceOptions::default()
        }
    }

    fn connection(value: Value) -> Result<ConnectionClaims, TokenError> {
        ConnectionClaims::read(&claims(value), &namespaces())
    }

    fn subscription(
        value: Value,
        options: &NamespaceOptions,
    ) -> Result<SubscriptionClaims, TokenError> {
        SubscriptionClaims::read(&claims(value), options)
    }

    #[test]
    fn claims_name_channels_and_their_options() {
        let grant = connection(json!({
            "info": {"name": "Ann"},
            "meta": {"tier": 1},
            "channels": ["news", "chat:1"],
            "subs": {"chat:1": {"info": "here", "b64data": "AP8=", "expire_at": 7},
                "chat:2": null, "seen:1": {"override": {
                "presence": {"value": false}, "join_leave": {}, "force_push_join_leave": {"value": true}}}},
            "something": ["else"], "override": 7, "allow": ["pub"], "data": 1,
        }));
        let grant = grant.expect("good");
        let name = (PayloadKind::Json, r#"{"name":"Ann"}"#.to_owned());
        assert_eq!(text(grant.info.as_ref()), Some(name));
        let meta = (PayloadKind::Json, r#"{"tier":1}"#.to_owned());
        assert_eq!(text(grant.meta.as_ref()), Some(meta));
        let granted = grant.channels;
        let names: Vec<&str> = granted.iter().map(|one| &*one.channel).collect();
        assert_eq!(names, ["chat:1", "chat:2", "seen:1", "news"]);
        let here = (PayloadKind::Json, "\"here\"".to_owned());
        assert_eq!(text(granted[0].info.as_ref()), Some(here));
        assert_eq!(granted[0].expires_ms, Some(7000));
        let data = granted[0].data.as_ref().expect("data");
        assert_eq!(
            (data.kind, &data.bytes[..]),
            (PayloadKind::Binary, &[0, 255][..])
        );
        let hidden = PresenceOverrides {
            is_hidden: true,
            receives_join_leave: Some(true),
        };
        assert_eq!(granted[2].overrides, hidden);
        assert!(connection(json!({"info": null, "subs": null, "caps": null})).is_ok());
    }

    #[test]
    fn invalid_and_missing_claims_reject_the_token() {
        for wrong in [
            json!({"caps": []}),
            json!({"b64info": 7}),
            json!({"b64info": "*"}),
            json!({"channels": "news"}),
            json!({"channels": {"news": true}}),
            json!({"channels": ["news", 7]}),
            json!({"subs": ["news"]}),
            json!({"subs": {"news": []}}),
            json!({"subs": {"news": {"b64data": 1}}}),
            json!({"subs": {"news": {"allow": ["pub"]}}}),
            json!({"subs": {"news": {"expire_at": -1}}}),
            json!({"subs": {"news": {"override": true}}}),
            json!({"subs": {"news": {"override": {"presence": {"value": true}}}}}),
        ] {
            let refusal = connection(wrong.clone()).expect_err(&wrong.to_string());
            assert!(matches!(refusal, TokenError::Claim(_)), "{refusal}");
        }
        for wrong in [
            json!({"client": 7}),
            json!({"allow": []}),
            json!({"b64data": []}),
            json!({"override": []}),
            json!({"override": {"presence": true}}),
            json!({"override": {"presence": {"value": "no"}}}),
            json!({"override": {"allow_publish": {"value": true}}}),
        ] {
            let refusal = subscription(wrong.clone(), &seen()).expect_err(&wrong.to_string());
            assert!(matches!(refusal, TokenError::Claim(_)), "{refusal}");
        }
        let good = json!({"client": "c1", "data": [1], "caps": 7, "channels": 7, "subs": 7});
        let good = subscription(good, &seen()).expect("good");
        assert_eq!(good.client.as_deref(), Some("c1"));
        let data = (PayloadKind::Json, "[1]".to_owned());
        assert_eq!(text(good.data.as_ref()), Some(data));
    }

    #[test]
    fn overrides_are_honoured_or_refused() {
        let of = |options: &NamespaceOptions, wanted: Value| {
            subscription(json!({"override": wanted}), options).map(|grant| grant.presence_overrides)
        };
        let (yes, no) = (json!({"value": true}), json!({"value": false}));
        let (seen, plain) = (seen(), NamespaceOptions::default());
        let presence_overrides = |is_hidden, receives_join_leave| PresenceOverrides {
            is_hidden,
            receives_join_leave,
        };
        for (wanted, here, elsewhere) in [
            (
                json!({}),
                Some(presence_overrides(false, None)),
                Some(presence_overrides(false, None)),
            ),
            (
                json!({"presence": yes}),
                Some(presence_overrides(false, None)),
                None,
            ),
            (
                json!({"presence": no}),
                None,
                Some(presence_overrides(false, None)),
            ),
            (
                json!({"join_leave": yes}),
                Some(presence_overrides(false, None)),
                None,
            ),
            (
                json!({"join_leave": no}),
                None,
                Some(presence_overrides(false, None)),
            ),
            (
                json!({"presence": no, "join_leave": no}),
                Some(presence_overrides(true, None)),
                Some(presence_overrides(false, None)),
            ),
            (json!({"presence": yes, "join_leave": no}), None, None),
            (
                json!({"force_push_join_leave": yes}),
                Some(presence_overrides(false, Some(true))),
                Some(presence_overrides(false, Some(true))),
            ),
            (
                json!({"force_push_join_leave": no}),
                Some(presence_overrides(false, Some(false))),
                Some(presence_overrides(false, Some(false))),
            ),
            (
                json!({"force_recovery": yes}),
                Some(presence_overrides(false, None)),
                None,
            ),
            (
                json!({"force_recovery": no}),
                None,
                Some(presence_overrides(false, None)),
            ),
            (
                json!({"force_positioning": yes}),
                Some(presence_overrides(false, None)),
                None,
            ),
            (
                json!({"force_positioning": no}),
                None,
                Some(presence_overrides(false, None)),
            ),
            (
                json!({"force_recovery": null}),
                Some(presence_overrides(false, None)),
                Some(presence_overrides(false, None)),
            ),
        ] {
            assert_eq!(of(&seen, wanted.clone()).ok(), here, "{wanted}");
            assert_eq!(of(&plain, wanted.clone()).ok(), elsewhere, "{wanted}");
        }
    }
}
