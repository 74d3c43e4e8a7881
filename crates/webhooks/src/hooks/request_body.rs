//! Encodes a hook request as JSON, in the format of Centrifugo's proxy requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use veche_frontends::hooks::{Encoding, HookKind, HookRequest};
use veche_hub::{Payload, PayloadKind};

use crate::{HOOK, SIGNATURE};

/// Headers set by the server, whatever the client sends.
const OWN_HEADERS: [&str; 10] = [
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "host",
    "expect",
    "x-real-ip",
    HOOK,
    SIGNATURE,
];

#[derive(Serialize)]
struct Wire<'q> {
    client: &'q str,
    transport: &'q str,
    protocol: &'q str,
    encoding: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'q str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'q str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'q str,
    #[serde(skip_serializing_if = "str::is_empty")]
    channel: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'q str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    token: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'q>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
    #[serde(skip_serializing_if = "<[Box<str>]>::is_empty")]
    channels: &'q [Box<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'q RawValue>,
}

/// Data in a form that JSON can represent.
#[derive(Serialize)]
#[serde(untagged)]
enum Data<'q> {
    Json(&'q RawValue),
    Text(&'q str),
}

/// Returns the body of the request.
pub(super) fn body(request: &HookRequest) -> Vec<u8> {
    let caller = &request.caller;
    let is_connect = request.kind == HookKind::Connect;
    let data = request.data.as_ref().and_then(data);
    let binary = request.data.as_ref().filter(|_| data.is_none());
    let wire = Wire {
        client: &caller.client,
        transport: caller.transport,
        protocol: match caller.encoding {
            Encoding::Json => "json",
            Encoding::Protobuf => "protobuf",
        },
        encoding: if binary.is_some() { "binary" } else { "json" },
        // A connecting client has no user unless its handshake names one.
        user: Some(&*request.user).filter(|user| !is_connect || !user.is_empty()),
        name: if is_connect { &caller.name } else { "" },
        version: if is_connect { &caller.version } else { "" },
        channel: &request.channel,
        method: (request.kind == HookKind::Rpc).then_some(&*request.method),
        token: &request.token.0,
        data,
        b64data: binary.map(|payload| STANDARD.encode(&payload.bytes)),
        channels: &request.channels,
        meta: caller.meta.as_ref().and_then(json),
    };
    serde_json::to_vec(&wire).expect("it must be possible to encode the request as JSON")
}

/// Returns the headers of the hook request except its signature headers. They contain the hook's
/// name, the client's address and the headers selected from the client's request.
pub(super) fn headers(request: &HookRequest) -> Vec<(String, Vec<u8>)> {
    let caller = &request.caller;
    let address = caller.address.to_canonical().to_string();
    let mut headers = vec![
        ("content-type".to_owned(), b"application/json".to_vec()),
        ("x-real-ip".to_owned(), address.into_bytes()),
        (HOOK.to_owned(), request.kind.name().into()),
    ];
    for (name, value) in &caller.headers {
        if !OWN_HEADERS.contains(&&**name) {
            headers.push((name.to_string(), value.to_vec()));
        }
    }
    headers
}

fn data(payload: &Payload) -> Option<Data<'_>> {
    match payload.kind {
        PayloadKind::Json => json(payload).map(Data::Json),
        PayloadKind::Text => std::str::from_utf8(&payload.bytes).ok().map(Data::Text),
        PayloadKind::Binary => None,
    }
}

fn json(payload: &Payload) -> Option<&RawValue> {
    let is_json = payload.kind == PayloadKind::Json;
    is_json
        .then(|| serde_json::from_slice(&payload.bytes).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use bytes::Bytes;
    use serde_json::{Value, json};
    use veche_frontends::hooks::{BackEndId, HookCaller, HookRequestId, HookTarget, MaskedToken};
    use veche_hub::ConnectionId;

    use super::*;

    fn payload(kind: PayloadKind, bytes: &'static [u8]) -> Payload {
        let bytes = Bytes::from_static(bytes);
        Payload { kind, bytes }
    }

    fn request(kind: HookKind) -> HookRequest {
        let headers: [(&str, &[u8]); 3] = [
            ("cookie", b"a=b"),
            ("content-type", b"text/plain"),
            ("x-real-ip", b"1.1.1.1"),
        ];
        let headers = headers.into_iter();
        HookRequest {
            session: ConnectionId {
                index: 1,
                generation: 2,
            },
            id: HookRequestId(3),
            target: HookTarget::BackEnd(BackEndId::default()),
            kind,
            caller: Arc::new(HookCaller {
                client: "c1".into(),
                transport: "websocket",
                encoding: Encoding::Json,
                name: "js".into(),
                version: "1.2".into(),
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                headers: headers
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
                meta: None,
            }),
            user: "".into(),
            channel: "".into(),
            method: "".into(),
            token: MaskedToken::default(),
            data: None,
            channels: Vec::new(),
            disconnect: None,
        }
    }

    fn payload_parts(request: &HookRequest) -> Value {
        serde_json::from_slice(&body(request)).expect("JSON")
    }

    #[test]
    fn each_kind_is_asked_with_what_centrifugo_sends() {
        let base = json!({
            "client": "c1", "transport": "websocket", "protocol": "json", "encoding": "json",
        });
        let with = |more: Value| {
            let mut all = base.as_object().expect("an object").clone();
            all.extend(more.as_object().expect("an object").clone());
            Value::Object(all)
        };
        let mut connect = request(HookKind::Connect);
        assert_eq!(
            payload_parts(&connect),
            with(json!({"name": "js", "version": "1.2"}))
        );
        connect.token = MaskedToken("t".into());
        connect.data = Some(payload(PayloadKind::Json, b"{\"a\": 1}"));
        connect.channels = vec!["news".into()];
        let expected = json!({
            "name": "js", "version": "1.2", "token": "t", "data": {"a": 1}, "channels": ["news"],
        });
        assert_eq!(payload_parts(&connect), with(expected));
        let mut publish = request(HookKind::Publish);
        publish.user = "ann".into();
        publish.channel = "chat:1".into();
        publish.data = Some(payload(PayloadKind::Binary, b"\x00\xff"));
        Arc::make_mut(&mut publish.caller).encoding = Encoding::Protobuf;
        Arc::make_mut(&mut publish.caller).meta = Some(payload(PayloadKind::Json, b"[7]"));
        let expected = json!({
            "protocol": "protobuf", "encoding": "binary", "user": "ann", "channel": "chat:1",
            "b64data": "AP8=", "meta": [7],
        });
        assert_eq!(payload_parts(&publish), with(expected));
        let mut rpc = request(HookKind::Rpc);
        rpc.data = Some(payload(PayloadKind::Text, b"hi"));
        let expected = json!({"user": "", "method": "", "data": "hi"});
        assert_eq!(payload_parts(&rpc), with(expected));
    }

    #[test]
    fn the_server_s_own_headers_are_its_own() {
        let headers = headers(&request(HookKind::Rpc));
        let headers = headers
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect::<Vec<(&str, &[u8])>>();
        let expected: [(&str, &[u8]); 4] = [
            ("content-type", b"application/json"),
            ("x-real-ip", b"127.0.0.1"),
            ("veche-hook", b"rpc"),
            ("cookie", b"a=b"),
        ];
        assert_eq!(headers, expected);
    }
}
