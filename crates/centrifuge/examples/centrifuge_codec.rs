//! The codec for a test in another language (tests/conformance/centrifuge): it answers lines of JSON with lines of
//! JSON.
//!
//! `{"read":"BASE64","encoding":"json"|"protobuf","as":"commands"|"connect"|"emulation"}` is answered with the decoded
//! content, or with `{"error":…}`; `{"write":true}` with a sample of every message in both encodings;
//! `{"delta":["OLD","NEW"]}`, both in base64, with the delta, or with `null` if it would not be shorter.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use veche_centrifuge::{
    ClientInfo, ClientRequest, Command, ConnectRequest, ConnectResult, DecodeLimits, DeltaKind,
    DisconnectCode, Encoding, ErrorCode, HistoryResult, MalformedMessage, Outcome, PresenceResult,
    PresenceStatsResult, Publication, PublicationData, Push, PushBody, Refresh, RefreshResult,
    Reply, RpcResult, SubRefreshResult, Subscribe, SubscribeResult, TagsFilter, UnsubscribeCode,
    fossil_delta,
};

#[derive(Deserialize)]
#[serde(untagged)]
enum CodecRequest {
    Read {
        read: String,
        encoding: String,
        r#as: String,
    },
    Delta {
        delta: (String, String),
    },
    Write {},
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            CodecRequest::Read {
                read,
                encoding,
                r#as,
            } => {
                let message = BASE64_STANDARD.decode(read).map_err(io::Error::other)?;
                let encoding = match &*encoding {
                    "json" => Encoding::Json,
                    _ => Encoding::Protobuf,
                };
                look(encoding, &message, &r#as)
                    .unwrap_or_else(|error| json!({ "error": error.to_string() }))
            }
            CodecRequest::Delta { delta: (old, new) } => {
                let bytes = |text| BASE64_STANDARD.decode(text).map_err(io::Error::other);
                let delta = fossil_delta(&bytes(old)?, &bytes(new)?);
                json!(delta.map(|delta| BASE64_STANDARD.encode(delta)))
            }
            CodecRequest::Write {} => json!(samples()),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn look(encoding: Encoding, message: &[u8], what: &str) -> Result<Value, MalformedMessage> {
    let limits = DecodeLimits::default();
    Ok(match what {
        "connect" => connect(&encoding.connect_request(message, limits)?),
        "emulation" => {
            let envelope = encoding.emulation(message, limits)?;
            json!({
                "session": envelope.session,
                "node": envelope.node,
                "commands": look(encoding, &envelope.data, "commands")?,
            })
        }
        _ => encoding
            .commands(message, limits)
            .map(|read| read.map(|read| command(&read)))
            .collect::<Result<_, _>>()?,
    })
}

/// Returns for each of four publications whether it matches the filter: one without the tag `k`, and three with
/// different values of `k`.
fn filter(data: PublicationData<'_>) -> Value {
    match TagsFilter::read(data) {
        Ok(filter) => {
            let passes =
                |value: Option<&'static str>| filter.matches(|name| value.filter(|_| name == "k"));
            json!([
                passes(None),
                passes(Some("v")),
                passes(Some("12")),
                passes(Some(""))
            ])
        }
        Err(error) => json!(error.to_string()),
    }
}

/// Returns a command with all its fields, named as in the protocol.
fn command(command: &Command<'_>) -> Value {
    let (name, fields) = match &command.request {
        ClientRequest::Connect(request) => ("connect", connect(request)),
        ClientRequest::Subscribe(request) => (
            "subscribe",
            json!({
                "channel": request.channel, "token": &*request.token, "recover": request.recover,
                "epoch": request.epoch, "offset": request.offset, "data": data(request.data),
                "positioned": request.positioned, "recoverable": request.recoverable,
                "join_leave": request.join_leave, "delta": request.delta, "tf": request.filter.map(filter),
                "flag": request.flag, "type": request.kind,
            }),
        ),
        ClientRequest::Unsubscribe(request) => {
            ("unsubscribe", json!({ "channel": request.channel }))
        }
        ClientRequest::Publish(request) => (
            "publish",
            json!({ "channel": request.channel, "data": data(request.data), "type": request.kind }),
        ),
        ClientRequest::Presence(request) => ("presence", json!({ "channel": request.channel })),
        ClientRequest::PresenceStats(request) => {
            ("presence_stats", json!({ "channel": request.channel }))
        }
        ClientRequest::History(request) => (
            "history",
            json!({
                "channel": request.channel, "limit": request.limit, "reverse": request.reverse,
                "since": request.since.as_ref().map(|since| json!({ "offset": since.offset, "epoch": since.epoch })),
            }),
        ),
        ClientRequest::Ping => ("ping", json!({})),
        ClientRequest::Send(request) => ("send", json!({ "data": data(request.data) })),
        ClientRequest::Rpc(request) => (
            "rpc",
            json!({ "method": request.method, "data": data(request.data) }),
        ),
        ClientRequest::Refresh(request) => ("refresh", json!({ "token": &*request.token })),
        ClientRequest::SubRefresh(request) => (
            "sub_refresh",
            json!({ "channel": request.channel, "token": &*request.token, "type": request.kind }),
        ),
        ClientRequest::Pong => return json!({}),
    };
    json!({ "id": command.id, name: fields })
}

fn connect(request: &ConnectRequest<'_>) -> Value {
    let subs: BTreeMap<_, _> = (request.subs.iter())
        .map(|sub| {
            let position = &sub.position;
            let fields = json!({ "recover": sub.recover, "offset": position.offset, "epoch": position.epoch });
            (&sub.channel, fields)
        })
        .collect();
    let headers: BTreeMap<_, _> = (request.headers.iter())
        .map(|(name, value)| (name, &**value))
        .collect();
    json!({
        "token": &*request.token, "data": data(request.data), "subs": subs, "name": request.name,
        "version": request.version, "headers": headers, "flag": request.flag,
    })
}

fn data(data: Option<PublicationData<'_>>) -> Value {
    data.map_or(Value::Null, |data| {
        json!(String::from_utf8_lossy(data.bytes()))
    })
}

/// A message of a server.
enum Message<'a> {
    Reply(Reply<'a>),
    Push(Push<'a>),
    Ping,
}

impl Message<'_> {
    fn write(&self, encoding: Encoding, out: &mut Vec<u8>) {
        match self {
            Self::Reply(reply) => encoding.write_reply(out, reply),
            Self::Push(push) => encoding.write_push(out, push),
            Self::Ping => encoding.write_ping(out),
        }
    }
}

/// Returns replies and pushes by name, as JSON text and as Protobuf; those with binary data only as Protobuf.
fn samples() -> BTreeMap<&'static str, Value> {
    let mut samples = BTreeMap::new();
    let mut add = |name, messages: &[Message<'_>]| {
        let (mut text, mut wire) = (Vec::new(), Vec::new());
        for message in messages {
            if !text.is_empty() {
                text.push(b'\n');
            }
            message.write(Encoding::Json, &mut text);
            message.write(Encoding::Protobuf, &mut wire);
        }
        let text = String::from_utf8(text).expect("JSON is text");
        samples.insert(
            name,
            json!({ "json": text, "protobuf": BASE64_STANDARD.encode(wire) }),
        );
    };
    let info = ClientInfo {
        user: "42",
        client: "c-1",
        conn_info: Some(PublicationData::Json(r#"{"n":1}"#)),
        chan_info: None,
    };
    let tags = [("a", "1"), ("b", "")];
    let long = format!("[{}0]", "\"0123456789 привет\",\n".repeat(500));
    let publications = [
        Publication {
            offset: 9_007_199_254_740_991,
            info: Some(info),
            tags: &tags,
            time_ms: 1_700_000_000_000,
            channel: "news:eu",
            ..Publication::new(PublicationData::Json(r#"{"a": "\u0441\n"}"#))
        },
        Publication::new(PublicationData::Json(&long)),
    ];
    let subscribed = SubscribeResult {
        expires: true,
        ttl_s: 60,
        recoverable: true,
        epoch: "ep",
        publications: &publications,
        recovered: true,
        offset: 6,
        positioned: true,
        data: Some(PublicationData::Json("[]")),
        was_recovering: true,
        delta: true,
    };
    let subs = [("a", subscribed), ("", SubscribeResult::default())];
    let connected = ConnectResult {
        client: "c-1",
        version: "0.1",
        expires: true,
        ttl_s: 3600,
        data: Some(PublicationData::Json(r#"{"d":1}"#)),
        subs: &subs,
        ping_s: 25,
        pong: true,
        session: "s",
        node: "n",
        time_ms: 1_700_000_000_000,
    };
    let presence = [("c-0", ClientInfo::default()), ("c-1", info)];

    let outcomes = [
        ("error", Outcome::Error(ErrorCode::TooManyRequests.into())),
        ("connect", Outcome::Connect(connected)),
        ("subscribe", Outcome::Subscribe(subscribed)),
        ("unsubscribe", Outcome::Unsubscribe),
        ("publish", Outcome::Publish),
        (
            "presence",
            Outcome::Presence(PresenceResult {
                presence: &presence,
            }),
        ),
        (
            "presence_stats",
            Outcome::PresenceStats(PresenceStatsResult {
                num_clients: 3,
                num_users: 2,
            }),
        ),
        (
            "history",
            Outcome::History(HistoryResult {
                publications: &publications,
                epoch: "e",
                offset: 6,
            }),
        ),
        ("ping", Outcome::Ping),
        (
            "rpc",
            Outcome::Rpc(RpcResult {
                data: Some(PublicationData::Json("null")),
            }),
        ),
        (
            "refresh",
            Outcome::Refresh(RefreshResult {
                client: "c-1",
                version: "0.1",
                expires: true,
                ttl_s: 60,
            }),
        ),
        (
            "sub_refresh",
            Outcome::SubRefresh(SubRefreshResult {
                expires: true,
                ttl_s: 60,
            }),
        ),
    ];
    for (name, outcome) in outcomes {
        let reply = Reply { id: 7, outcome };
        add(name, &[Message::Reply(reply)]);
    }

    let whole = |data| {
        PushBody::Publication(Publication {
            delta: DeltaKind::Whole,
            ..Publication::new(data)
        })
    };
    let patch = Publication {
        delta: DeltaKind::Patch,
        ..Publication::new(PublicationData::Text("7\n7:{\"a\":2}2qLDtY;"))
    };
    let pushes = [
        ("push pub", PushBody::Publication(publications[0])),
        (
            "push text",
            PushBody::Publication(Publication::new(PublicationData::Text(
                "say \"hi\"\n\u{2028}",
            ))),
        ),
        (
            "push whole",
            whole(PublicationData::Json("{\n\"a\":\"b\\\\\"}")),
        ),
        (
            "push whole text",
            whole(PublicationData::Text("say \"hi\"\n")),
        ),
        ("push patch", PushBody::Publication(patch)),
        ("push join", PushBody::Join(info)),
        ("push leave", PushBody::Leave(info)),
        (
            "push unsubscribe",
            PushBody::Unsubscribe(UnsubscribeCode::InsufficientState.into()),
        ),
        (
            "push subscribe",
            PushBody::Subscribe(Subscribe {
                recoverable: true,
                epoch: "e",
                offset: 9,
                positioned: true,
                data: Some(PublicationData::Json("1")),
            }),
        ),
        (
            "push message",
            PushBody::Message(PublicationData::Json(r#"{"m":1}"#)),
        ),
        ("push connect", PushBody::Connect(connected)),
        (
            "push disconnect",
            PushBody::Disconnect(DisconnectCode::InvalidToken.into()),
        ),
        (
            "push refresh",
            PushBody::Refresh(Refresh {
                expires: true,
                ttl_s: 60,
            }),
        ),
    ];
    for (name, body) in pushes {
        let channel = "chat:1";
        add(name, &[Message::Push(Push { channel, body })]);
    }
    let reply = |id| {
        let outcome = Outcome::Publish;
        Message::Reply(Reply { id, outcome })
    };
    add("batch", &[reply(1), reply(2), reply(3), Message::Ping]);
    samples
}
