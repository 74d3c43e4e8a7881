//! Tests properties of all messages: both encodings carry the same content, for decoding as well as
//! encoding, and only the complete commands of a truncated message are decoded.

mod oracle;

use std::cell::Cell;

use proptest::prelude::*;
use veche_centrifuge::{
    ClientInfo, ClientRequest, Command, CommandError, ConnectResult, DecodeLimits, DeltaKind,
    Disconnect, Element, Encoding, HistoryResult, MalformedMessage, Outcome, PresenceResult,
    PresenceStatsResult, Publication, PublicationData, Push, PushBody, Refresh, RefreshResult,
    Reply, ReplyWriter, RpcResult, SubRefreshResult, Subscribe, SubscribeResult, Unsubscribe,
};

use Encoding::{Json, Protobuf};

const LIMITS: DecodeLimits = DecodeLimits {
    message_bytes_max: usize::MAX,
    commands_max: 64,
};

/// Generates JSON values that are not strings: the content of a string could itself be JSON.
fn json() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::json!({ text.clone(): [text] }).to_string()),
        "\\[[ \n\r\t]{0,3}1[ \n]{0,2},[ ]?true\n?\\]",
    ]
}

fn raw() -> impl Strategy<Value = Vec<u8>> {
    json().prop_map(String::into_bytes)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z:#$]{1,12}", any::<String>()]
}

prop_compose! {
    fn subscribe()(
        (channel, token, epoch, delta) in (text(), text(), text(), text()),
        (recover, positioned, recoverable, join_leave, asc) in any::<(bool, bool, bool, bool, bool)>(),
        (offset, flag, r#type, phase, limit) in any::<(u64, i64, i32, i32, i32)>(),
        data in raw(),
        filter in proptest::option::of(text()),
    ) -> oracle::SubscribeRequest {
        oracle::SubscribeRequest {
            tf: filter.map(|key| oracle::FilterNode { key, ..Default::default() }),
            cursor: token.clone(),
            channel, token, recover, epoch, offset, data, positioned, recoverable, join_leave, delta, flag, r#type,
            phase, limit, asc,
        }
    }
}

prop_compose! {
    fn connect()(
        (token, name, version, profile, dict) in (text(), text(), text(), text(), text()),
        data in raw(),
        subs in proptest::collection::btree_map(text(), subscribe(), 0..3),
        headers in proptest::collection::btree_map(text(), text(), 0..3),
        flag in any::<i64>(),
    ) -> oracle::ConnectRequest {
        oracle::ConnectRequest { token, data, subs, name, version, headers, flag, dict, profile }
    }
}

fn command() -> impl Strategy<Value = oracle::Command> {
    let channel = || text().prop_map(|channel| oracle::ChannelRequest { channel });
    let empty = oracle::Command::default;
    let request = prop_oneof![
        Just(empty()),
        connect().prop_map(move |connect| oracle::Command {
            connect: Some(connect),
            ..empty()
        }),
        subscribe().prop_map(move |request| oracle::Command {
            subscribe: Some(request),
            ..empty()
        }),
        channel().prop_map(move |request| oracle::Command {
            unsubscribe: Some(request),
            ..empty()
        }),
        channel().prop_map(move |request| oracle::Command {
            presence: Some(request),
            ..empty()
        }),
        channel().prop_map(move |request| oracle::Command {
            presence_stats: Some(request),
            ..empty()
        }),
        (text(), raw(), any::<i32>(), text(), any::<bool>()).prop_map(
            move |(channel, data, r#type, key, removed)| oracle::Command {
                publish: Some(oracle::PublishRequest {
                    channel,
                    data,
                    r#type,
                    key,
                    removed
                }),
                ..empty()
            }
        ),
        (
            text(),
            any::<i32>(),
            proptest::option::of((any::<u64>(), text())),
            any::<bool>()
        )
            .prop_map(move |(channel, limit, since, reverse)| oracle::Command {
                history: Some(oracle::HistoryRequest {
                    channel,
                    limit,
                    since: since.map(|(offset, epoch)| oracle::StreamPosition { offset, epoch }),
                    reverse,
                }),
                ..empty()
            }),
        Just(oracle::Command {
            ping: Some(oracle::Nothing {}),
            ..empty()
        }),
        raw().prop_map(move |data| oracle::Command {
            send: Some(oracle::SendRequest { data }),
            ..empty()
        }),
        (raw(), text()).prop_map(move |(data, method)| oracle::Command {
            rpc: Some(oracle::RpcRequest { data, method }),
            ..empty()
        }),
        text().prop_map(move |token| oracle::Command {
            refresh: Some(oracle::RefreshRequest { token }),
            ..empty()
        }),
        (text(), text(), any::<i32>()).prop_map(move |(channel, token, r#type)| oracle::Command {
            sub_refresh: Some(oracle::SubRefreshRequest {
                channel,
                token,
                r#type
            }),
            ..empty()
        }),
    ];
    (request, prop_oneof![Just(0), Just(1), any::<u32>()])
        .prop_map(|(request, id)| oracle::Command { id, ..request })
}

type Read<'a> = Vec<Result<Command<'a>, MalformedMessage>>;

/// Decodes the commands of a message, in a form that is equal for both encodings: data is converted to binary data, and
/// filters are emptied, because `tests/filter.rs` compares their meaning.
fn read(encoding: Encoding, message: &[u8]) -> Read<'_> {
    let mut read: Read<'_> = encoding.commands(message, LIMITS).collect();
    for command in read.iter_mut().flatten() {
        if let ClientRequest::Subscribe(request) = &mut command.request {
            request.filter = request.filter.map(|_| PublicationData::Binary(b""));
        }
        let data = match &mut command.request {
            ClientRequest::Connect(request) => &mut request.data,
            ClientRequest::Subscribe(request) => &mut request.data,
            ClientRequest::Publish(request) => &mut request.data,
            ClientRequest::Send(request) => &mut request.data,
            ClientRequest::Rpc(request) => &mut request.data,
            _ => continue,
        };
        *data = data.map(|data| PublicationData::Binary(data.bytes()));
    }
    read
}

fn encode(commands: &[oracle::Command], between: &str) -> [Vec<u8>; 2] {
    let lines: Vec<Vec<u8>> = commands.iter().map(oracle::to_json).collect();
    let wires: Vec<Vec<u8>> = commands.iter().map(oracle::to_protobuf).collect();
    [lines.join(between.as_bytes()), wires.concat()]
}

proptest! {
    #[test]
    fn commands_say_the_same_in_both_encodings(
        commands in proptest::collection::vec(command(), 0..5),
        between in "[ \n\r]{0,3}",
    ) {
        let [json, wire] = encode(&commands, &between);
        let from_json = read(Json, &json);
        prop_assert_eq!(&from_json, &read(Protobuf, &wire));
        // Decoding stops at the first invalid command, such as one without an id.
        for (read, sent) in from_json.iter().zip(&commands) {
            let has_request = *sent != oracle::Command { id: sent.id, ..Default::default() };
            let expected = match (sent.id, has_request, sent.send.is_some()) {
                (0, true, false) => Err(MalformedMessage::NoId),
                (1.., false, _) => Err(MalformedMessage::NoRequest),
                _ => Ok(sent.id),
            };
            prop_assert_eq!(read.as_ref().map(|command| command.id).map_err(|error| *error), expected);
        }
        let is_whole = from_json.iter().all(Result::is_ok);
        prop_assert_eq!(from_json.len() == commands.len() || !is_whole, true);
    }

    #[test]
    fn a_message_that_is_cut_off_holds_no_other_commands(
        commands in proptest::collection::vec(command(), 1..4),
        at in any::<prop::sample::Index>(),
    ) {
        let [json, wire] = encode(&commands, "\n");
        for (encoding, message) in [(Json, json), (Protobuf, wire)] {
            let whole = read(encoding, &message);
            let cut = read(encoding, &message[..at.index(message.len())]);
            let good = cut.iter().take_while(|command| command.is_ok()).count();
            prop_assert_eq!(&cut[..good], &whole[..good]);
            prop_assert!(cut.len() - good <= 1);
        }
    }

    #[test]
    fn a_message_can_be_read_in_two_goes(
        commands in proptest::collection::vec(command(), 1..5),
        first in 0..5_usize,
    ) {
        let [json, wire] = encode(&commands, "\n");
        for (encoding, message) in [(Json, json), (Protobuf, wire)] {
            let whole: Read<'_> = encoding.commands(&message, LIMITS).collect();
            let mut going = encoding.commands(&message, LIMITS);
            let mut read: Read<'_> = going.by_ref().take(first).collect();
            read.extend(encoding.commands(&message[going.consumed()..], LIMITS));
            // Errors are not compared, because the location in an error is relative to the beginning of the
            // input. Nothing follows an error.
            let good = |read: &Read<'_>| read.iter().take_while(|command| command.is_ok()).count();
            prop_assert_eq!(&read[..good(&read)], &whole[..good(&whole)]);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for encoding in [Json, Protobuf] {
            let _ = read(encoding, &bytes).len();
            let _ = encoding.emulation(&bytes, LIMITS).is_ok();
            let _ = encoding.connect_request(&bytes, LIMITS).is_ok();
        }
    }

    #[test]
    fn what_is_written_says_the_same_in_both_encodings(
        texts in proptest::collection::vec(text(), 1..20),
        numbers in proptest::collection::vec(prop_oneof![Just(0), any::<u64>()], 1..20),
        json in proptest::collection::vec(json(), 1..6),
        which in 0_u8..21,
    ) {
        let supply = Supply { texts: &texts, numbers: &numbers, json: &json, at: Cell::new(0) };
        let (text, wire) = write(&supply, which);
        prop_assert!(!text.contains(&b'\r'));
        let from_json = oracle::all_of_json::<oracle::Reply>(&text);
        let from_wire = oracle::all_of_protobuf::<oracle::Reply>(&wire);
        prop_assert_eq!(from_json.len(), 1);
        prop_assert_eq!(from_json, from_wire);
    }
}

/// Generated values for the fields of messages, used in turn.
struct Supply<'a> {
    texts: &'a [String],
    numbers: &'a [u64],
    json: &'a [String],
    at: Cell<usize>,
}

impl<'a> Supply<'a> {
    fn next(&self) -> usize {
        self.at.replace(self.at.get() + 1)
    }

    fn text(&self) -> &'a str {
        &self.texts[self.next() % self.texts.len()]
    }

    fn number(&self) -> u64 {
        self.numbers[self.next() % self.numbers.len()]
    }

    fn short(&self) -> u32 {
        self.number() as u32
    }

    fn flag(&self) -> bool {
        self.number() % 2 == 1
    }

    fn data(&self) -> Option<PublicationData<'a>> {
        match self.number() % 3 {
            // Line breaks are not preserved, so none are sent here.
            0 => {
                Some(PublicationData::Json(self.json[0].as_str())).filter(|data| !has_breaks(*data))
            }
            1 => Some(PublicationData::Text(self.text())),
            _ => None,
        }
    }

    fn info(&self) -> ClientInfo<'a> {
        ClientInfo {
            user: self.text(),
            client: self.text(),
            conn_info: self.data(),
            chan_info: self.data(),
        }
    }

    fn publication(&self, tags: &'a [(&'a str, &'a str)]) -> Publication<'a> {
        let delta = [DeltaKind::Off, DeltaKind::Whole, DeltaKind::Patch][self.next() % 3];
        let data = match delta {
            DeltaKind::Patch => PublicationData::Text(self.text()),
            // A text would be a string within a string, which the oracle does not expect.
            _ => PublicationData::Json(&self.json[self.next() % self.json.len()]),
        };
        Publication {
            data: match has_breaks(data) {
                true => PublicationData::Json("1"),
                false => data,
            },
            delta,
            info: self.flag().then(|| self.info()),
            offset: self.number(),
            tags,
            time_ms: self.number() as i64,
            channel: self.text(),
        }
    }

    fn subscribe(&self, publications: &'a [Publication<'a>]) -> SubscribeResult<'a> {
        SubscribeResult {
            expires: self.flag(),
            ttl_s: self.short(),
            recoverable: self.flag(),
            epoch: self.text(),
            publications,
            recovered: self.flag(),
            offset: self.number(),
            positioned: self.flag(),
            data: self.data(),
            was_recovering: self.flag(),
            delta: self.flag(),
        }
    }
}

fn has_breaks(data: PublicationData<'_>) -> bool {
    matches!(data, PublicationData::Json(text) if text.contains(['\n', '\r']))
}

/// Encodes one reply or push of each kind in both encodings.
fn write(supply: &Supply<'_>, which: u8) -> (Vec<u8>, Vec<u8>) {
    let tags = [("a", supply.text()), (supply.text(), "")];
    let publications = [supply.publication(&tags), supply.publication(&[])];
    let infos = [("c", supply.info()), (supply.text(), supply.info())];
    let subs = [
        (supply.text(), supply.subscribe(&publications)),
        ("s", supply.subscribe(&[])),
    ];
    let connect = ConnectResult {
        client: supply.text(),
        version: supply.text(),
        expires: supply.flag(),
        ttl_s: supply.short(),
        data: supply.data(),
        subs: &subs,
        ping_s: supply.short(),
        pong: supply.flag(),
        session: supply.text(),
        node: supply.text(),
        time_ms: supply.number() as i64,
    };
    let (code, ttl_s, expires) = (supply.short(), supply.short(), supply.flag());
    let outcome = match which {
        0 => Outcome::Error(CommandError {
            code,
            message: supply.text(),
            is_temporary: supply.flag(),
        }),
        1 => Outcome::Connect(connect),
        2 => Outcome::Subscribe(supply.subscribe(&publications)),
        3 => Outcome::Unsubscribe,
        4 => Outcome::Publish,
        5 => Outcome::Presence(PresenceResult { presence: &infos }),
        6 => Outcome::PresenceStats(PresenceStatsResult {
            num_clients: supply.short(),
            num_users: supply.short(),
        }),
        7 => Outcome::History(HistoryResult {
            publications: &publications,
            epoch: supply.text(),
            offset: supply.number(),
        }),
        8 => Outcome::Ping,
        9 => Outcome::Rpc(RpcResult {
            data: supply.data(),
        }),
        10 => Outcome::Refresh(RefreshResult {
            client: supply.text(),
            version: supply.text(),
            expires,
            ttl_s,
        }),
        11 => Outcome::SubRefresh(SubRefreshResult { expires, ttl_s }),
        _ => {
            let body = match which {
                12 => PushBody::Publication(publications[0]),
                13 => PushBody::Join(supply.info()),
                14 => PushBody::Leave(supply.info()),
                15 => PushBody::Unsubscribe(Unsubscribe {
                    code,
                    reason: supply.text(),
                }),
                16 => PushBody::Subscribe(Subscribe {
                    recoverable: supply.flag(),
                    epoch: supply.text(),
                    offset: supply.number(),
                    positioned: supply.flag(),
                    data: supply.data(),
                }),
                17 => PushBody::Message(supply.data().unwrap_or(PublicationData::Json("0"))),
                18 => PushBody::Connect(connect),
                19 => PushBody::Disconnect(Disconnect {
                    code: code as u16,
                    reason: supply.text(),
                }),
                _ => PushBody::Refresh(Refresh { expires, ttl_s }),
            };
            let push = Push {
                channel: supply.text(),
                body,
            };
            return both(|encoding, out| encoding.write_push(out, &push));
        }
    };
    let reply = Reply {
        id: supply.short(),
        outcome,
    };
    both(|encoding, out| {
        encoding.write_reply(out, &reply);
        assert_eq!(in_parts(encoding, &reply), *out);
    })
}

/// Encodes a reply part by part, if that is possible.
fn in_parts(encoding: Encoding, reply: &Reply<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let (outcome, elements): (_, Vec<Element<'_>>) = match reply.outcome {
        Outcome::History(result) => (
            Outcome::History(HistoryResult {
                publications: &[],
                ..result
            }),
            result
                .publications
                .iter()
                .copied()
                .map(Element::Publication)
                .collect(),
        ),
        Outcome::Presence(result) => (
            Outcome::Presence(PresenceResult::default()),
            result
                .presence
                .iter()
                .map(|(id, info)| Element::Client(id, *info))
                .collect(),
        ),
        _ => {
            encoding.write_reply(&mut out, reply);
            return out;
        }
    };
    let bytes = elements.iter().map(|one| encoding.element_bytes(one)).sum();
    let mut parts = ReplyWriter::begin(encoding, &mut out, &Reply { outcome, ..*reply }, bytes);
    for element in &elements {
        parts.element(&mut out, element);
    }
    parts.end(&mut out);
    out
}

fn both(write: impl Fn(Encoding, &mut Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    let (mut text, mut wire) = (Vec::new(), Vec::new());
    write(Json, &mut text);
    write(Protobuf, &mut wire);
    (text, wire)
}
