//! Parses a back end's response in the format of a Centrifugo proxy: `{"result": …}`, `{"error": …}` or `{"disconnect":
//! …}`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use veche_calls::CallError;
use veche_frontends::hooks::{self, HookDecision, HookGrant, HookKind, HookSubscription};
use veche_hub::Payload;

use crate::{BackendResult, FetchResponse, Object};

use super::metrics::WebhookOutcome;

/// The decision, and its consequence for the circuit breaker.
pub(super) struct ParsedAnswer {
    pub(super) decision: HookDecision,
    pub(super) how: WebhookOutcome,
    /// The outcome that the circuit breaker counts; `None` if the response is not counted.
    pub(super) ending: Option<BackendResult>,
    /// A description of a problem, for the log.
    pub(super) problem: Option<String>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    result: Option<Object<Granted<'a>>>,
    #[serde(borrow, default)]
    error: Option<Object<Error<'a>>>,
    #[serde(borrow, default)]
    disconnect: Option<Object<Disconnect<'a>>>,
}

#[derive(Deserialize)]
struct Error<'a> {
    code: u32,
    #[serde(borrow, default)]
    message: std::borrow::Cow<'a, str>,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
struct Disconnect<'a> {
    code: u16,
    #[serde(borrow, default)]
    reason: std::borrow::Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Granted<'a> {
    user: Option<String>,
    expire_at: u64,
    expired: bool,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    channels: Option<Vec<String>>,
    #[serde(borrow)]
    subs: Option<BTreeMap<String, Option<Object<Sub<'a>>>>>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    skip_history: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sub<'a> {
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    expire_at: u64,
}

/// Parses the response to a hook request of the given kind.
pub(super) fn read(kind: HookKind, answer: Result<FetchResponse, CallError>) -> ParsedAnswer {
    let failed = |how, ending, problem: String| ParsedAnswer {
        decision: HookDecision::Failed,
        how,
        ending,
        problem: Some(problem),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(fault) => {
            let ending = BackendResult::of_fault(&fault);
            let how = match ending {
                Some(BackendResult::TimedOut) => WebhookOutcome::TimedOut,
                _ => WebhookOutcome::Failed,
            };
            return failed(how, ending, fault.words);
        }
    };
    if !(200..300).contains(&answer.status) {
        let ending = Some(BackendResult::of_status(answer.status));
        let why = format!("the back end responded with status {}", answer.status);
        return failed(WebhookOutcome::Failed, ending, why);
    }
    let decision = match serde_json::from_slice::<Object<Wire<'_>>>(&answer.body) {
        Ok(Object(wire)) => parse_decision(kind, wire),
        Err(error) => Err(format!("invalid response: {error}")),
    };
    match decision {
        Ok((decision, how)) => ParsedAnswer {
            decision,
            how,
            ending: Some(BackendResult::Answered),
            problem: None,
        },
        Err(why) => failed(WebhookOutcome::Failed, Some(BackendResult::Answered), why),
    }
}

fn parse_decision(
    kind: HookKind,
    wire: Wire<'_>,
) -> Result<(HookDecision, WebhookOutcome), String> {
    if let Some(Object(Disconnect { code, reason })) = wire.disconnect {
        let reason = reason.into();
        return Ok((
            HookDecision::Disconnect { code, reason },
            WebhookOutcome::Disconnect,
        ));
    }
    if let Some(Object(error)) = wire.error {
        let decision = HookDecision::Error {
            code: error.code,
            message: error.message.into(),
            is_temporary: error.temporary,
        };
        return Ok((decision, WebhookOutcome::Error));
    }
    // A response of `{}` is not a grant: a back end that returns it for everything hardly means to
    // grant everything.
    let Some(Object(granted)) = wire.result else {
        return Err("the response must have result, error or disconnect".to_owned());
    };
    let grant = grant(kind, granted)?;
    Ok((
        HookDecision::Granted(Box::new(grant)),
        WebhookOutcome::Granted,
    ))
}

/// Converts the result of a response to a grant. Each kind of hook uses its own fields.
fn grant(kind: HookKind, granted: Granted<'_>) -> Result<HookGrant, String> {
    let mut grant = HookGrant {
        expires_at_s: time(granted.expire_at),
        is_expired: granted.expired,
        info: payload("info", granted.info, granted.b64info.as_deref())?,
        data: payload("data", granted.data, granted.b64data.as_deref())?,
        skips_history: granted.skip_history,
        ..HookGrant::default()
    };
    if kind != HookKind::Connect {
        return Ok(grant);
    }
    grant.meta = payload("meta", granted.meta, None)?;
    grant.user = granted.user.unwrap_or_default().into();
    for (channel, sub) in granted.subs.into_iter().flatten() {
        let Object(sub) = sub.unwrap_or_default();
        grant.channels.push(HookSubscription {
            channel: channel.into(),
            info: payload("info", sub.info, sub.b64info.as_deref())?,
            data: payload("data", sub.data, sub.b64data.as_deref())?,
            expires_at_s: time(sub.expire_at),
        });
    }
    // The first entry of a channel counts, so `subs` takes precedence over `channels`.
    for channel in granted.channels.into_iter().flatten() {
        grant.channels.push(HookSubscription {
            channel: channel.into(),
            ..HookSubscription::default()
        });
    }
    Ok(grant)
}

/// Converts a time of expiry; 0 means no expiry.
fn time(seconds: u64) -> Option<u64> {
    Some(seconds).filter(|&seconds| seconds > 0)
}

/// Returns the payload: the JSON value unchanged, or the decoded bytes of the `b64…` field.
fn payload(
    name: &str,
    json: Option<&RawValue>,
    base64: Option<&str>,
) -> Result<Option<Payload>, String> {
    if let Some(text) = base64.filter(|text| !text.is_empty()) {
        let bytes = STANDARD.decode(text);
        let bytes = bytes.map_err(|error| format!("b64{name} is not base64: {error}"))?;
        return Ok(Some(hooks::bytes(bytes)));
    }
    let Some(json) = json else { return Ok(None) };
    match hooks::json(json.get()) {
        Some(payload) => Ok(Some(payload)),
        None => Err(format!("{name} is nested too deep")),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use veche_calls::CallErrorKind;
    use veche_hub::PayloadKind;

    use super::*;

    fn parse(kind: HookKind, status: u16, body: &str) -> ParsedAnswer {
        let answer = FetchResponse {
            status,
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
        };
        read(kind, Ok(answer))
    }

    fn granted(kind: HookKind, body: &str) -> HookGrant {
        match parse(kind, 200, body).decision {
            HookDecision::Granted(grant) => *grant,
            other => panic!("{other:?} for {body}"),
        }
    }

    fn json(text: &'static str) -> Option<Payload> {
        Some(Payload {
            kind: PayloadKind::Json,
            bytes: Bytes::from_static(text.as_bytes()),
        })
    }

    fn binary(bytes: &'static [u8]) -> Option<Payload> {
        Some(Payload {
            kind: PayloadKind::Binary,
            bytes: Bytes::from_static(bytes),
        })
    }

    #[test]
    fn connect_names_a_user_and_channels() {
        let body = r#"{"result": {
            "user": "ann", "expire_at": 1900000000, "info": {"name": "Ann"}, "b64data": "AP8=",
            "channels": ["news", "chat:1"], "meta": {"k": 1}, "unknown": [1],
            "subs": {"chat:1": {"data": {"a": 1}, "b64info": "AP8=", "expire_at": 7, "override": {"x": {}}}, "chat:2": null}
        }, "error": null}"#;
        let given = |channel: &str| HookSubscription {
            channel: channel.into(),
            ..HookSubscription::default()
        };
        let expected = HookGrant {
            user: "ann".into(),
            expires_at_s: Some(1_900_000_000),
            info: json(r#"{"name": "Ann"}"#),
            data: binary(&[0, 255]),
            meta: json(r#"{"k": 1}"#),
            channels: vec![
                HookSubscription {
                    info: binary(&[0, 255]),
                    data: json(r#"{"a": 1}"#),
                    expires_at_s: Some(7),
                    ..given("chat:1")
                },
                given("chat:2"),
                given("news"),
                given("chat:1"),
            ],
            ..HookGrant::default()
        };
        assert_eq!(granted(HookKind::Connect, body), expected);
        let endless = granted(
            HookKind::Connect,
            r#"{"result":{"user":"42","expire_at":0}}"#,
        );
        assert_eq!((&*endless.user, endless.expires_at_s), ("42", None));
    }

    #[test]
    fn the_others_have_fields_of_their_own() {
        let publish = granted(
            HookKind::Publish,
            r#"{"result":{"data":{"b":2},"skip_history":true}}"#,
        );
        assert!(publish.skips_history && publish.data == json(r#"{"b":2}"#));
        let base64 = granted(
            HookKind::Rpc,
            r#"{"result":{"data":1,"b64data":"eyJhIjoxfQ=="}}"#,
        );
        assert_eq!(base64.data, json(r#"{"a":1}"#));
        assert!(granted(HookKind::Refresh, r#"{"result":{"expired":true}}"#).is_expired);
        assert_eq!(
            granted(
                HookKind::Subscribe,
                r#"{"result":{"user":"eve","channels":["x"]}}"#
            ),
            HookGrant::default()
        );
    }

    #[test]
    fn refusals_reach_the_client_and_the_rest_is_a_failure() {
        let error = parse(
            HookKind::Rpc,
            200,
            r#"{"error":{"code":1000,"message":"no","temporary":true}}"#,
        );
        let expected = HookDecision::Error {
            code: 1000,
            message: "no".into(),
            is_temporary: true,
        };
        assert_eq!(
            (error.decision, error.how),
            (expected, WebhookOutcome::Error)
        );
        let end = parse(
            HookKind::Rpc,
            200,
            r#"{"result":{},"disconnect":{"code":4500,"reason":"out"}}"#,
        );
        let expected = HookDecision::Disconnect {
            code: 4500,
            reason: "out".into(),
        };
        assert_eq!(
            (end.decision, end.how),
            (expected, WebhookOutcome::Disconnect)
        );
        let (answered, unavailable) = (
            Some(BackendResult::Answered),
            Some(BackendResult::Unavailable),
        );
        for (status, body, ending) in [
            (200, "{}", answered),
            (200, "", answered),
            (200, "[]", answered),
            (200, r#"{"result":{"b64data":"*"}}"#, answered),
            (200, r#"{"result":{"expire_at":"soon"}}"#, answered),
            (200, r#"{"result":{"expire_at":-1}}"#, answered),
            (200, r#"{"result":{"expire_at":1.5}}"#, answered),
            (200, r#"{"result":{"expire_at":null}}"#, answered),
            (200, r#"{"result":{"expired":1}}"#, answered),
            (200, r#"{"result":{"user":42}}"#, answered),
            (200, r#"{"result":{"channels":"news"}}"#, answered),
            (200, r#"{"result":{"channels":{"news":true}}}"#, answered),
            (200, r#"{"result":{"subs":[]}}"#, answered),
            (200, r#"{"result":{"subs":{"news":[]}}}"#, answered),
            (
                200,
                r#"{"result":{"subs":{"news":{"expire_at":-1}}}}"#,
                answered,
            ),
            (200, r#"{"result":{"skip_history":"yes"}}"#, answered),
            // PHP's encoding of an empty array.
            (200, r#"{"result":[]}"#, answered),
            (200, r#"{"result":["ann"]}"#, answered),
            (200, r#"{"result":"ann"}"#, answered),
            (200, r#"{"result":true}"#, answered),
            (200, r#"[{"user":"ann"}]"#, answered),
            (200, r#"{"error":[1000]}"#, answered),
            (200, r#"{"disconnect":[4501,"out"]}"#, answered),
            (200, r#"{"disconnect":{"code":70000}}"#, answered),
            (204, "", answered),
            (302, r#"{"result":{}}"#, answered),
            (404, r#"{"result":{}}"#, answered),
            (500, r#"{"result":{}}"#, answered),
            (503, r#"{"result":{}}"#, unavailable),
        ] {
            let parsed = parse(HookKind::Subscribe, status, body);
            assert_eq!(parsed.decision, HookDecision::Failed, "{status} {body}");
            assert_eq!(
                (parsed.how, parsed.ending),
                (WebhookOutcome::Failed, ending)
            );
            assert!(parsed.problem.is_some());
        }
        for (kind, how, ending) in [
            (
                CallErrorKind::Timeout,
                WebhookOutcome::TimedOut,
                Some(BackendResult::TimedOut),
            ),
            (
                CallErrorKind::Unreachable,
                WebhookOutcome::Failed,
                unavailable,
            ),
            (CallErrorKind::Invalid, WebhookOutcome::Failed, None),
        ] {
            let parsed = read(HookKind::Rpc, Err(CallError::new(kind, "why")));
            assert_eq!((parsed.how, parsed.ending), (how, ending));
        }
    }

    #[test]
    fn what_clients_can_t_take_is_not_passed_on() {
        let deep = format!(
            r#"{{"result":{{"data":{}{}}}}}"#,
            "[".repeat(600),
            "]".repeat(600)
        );
        assert_eq!(
            parse(HookKind::Rpc, 200, &deep).decision,
            HookDecision::Failed
        );
    }
}
