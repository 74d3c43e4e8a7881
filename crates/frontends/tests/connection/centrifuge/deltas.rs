//! Clients with deltas: each receives the difference from its previous publication, and
//! reconstructs all data from the differences.

#[path = "../../../../centrifuge/tests/fossil/decoder.rs"]
mod decoder;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use veche_centrifuge::{
    DeltaKind, Encoding, Publication, PublicationData, Push, PushBody, fossil_delta,
};
use veche_proto::websocket::MessageKind;

use super::{ask, connect, take, world};
use crate::world::wire::{ServerMessage, message, server_messages};
use crate::world::{PUSH, Peer, World};

/// Returns data of which only a small part depends on `price`.
fn state(price: u32) -> Value {
    json!({ "name": "Ünïcode and \"quotes\" of a name that stays", "price": price, "rest": [1, 2, 3] })
}

fn publish(world: &mut World, back_end: Peer, channel: &str, data: &Value, more: &Value) {
    let mut line = json!({ "channel": channel, "data": data });
    for (name, value) in more.as_object().into_iter().flatten() {
        line[name] = value.clone();
    }
    assert!(world.ask(back_end, format!("{line}\n")).is_empty());
}

/// A JSON client that applies deltas as an SDK does, with the data of its last publication.
struct Client {
    peer: Peer,
    has: Vec<u8>,
}

impl Client {
    /// Connects and subscribes; returns the client and the reply to its subscribe command.
    fn subscribe(world: &mut World, worker: usize, request: Value) -> (Self, Value) {
        let (peer, _) = connect(world, worker, "/centrifuge", &json!({}));
        let command = json!({ "id": 2, "subscribe": request });
        let mut received = ask(world, peer, &command.to_string());
        assert_eq!(received.lines.len(), 1, "{received:?}");
        let reply = received.lines[0]["subscribe"].take();
        let has = Vec::new();
        (Self { peer, has }, reply)
    }

    /// Applies a received publication; returns its data, and whether it was a delta.
    fn read(&mut self, publication: &Value) -> (Value, bool) {
        let data = publication["data"].as_str().expect("a string");
        let is_delta = publication["delta"] == true;
        self.has = match is_delta {
            true => decoder::applied(&self.has, data.as_bytes()).expect("a delta"),
            false => data.as_bytes().to_vec(),
        };
        (serde_json::from_slice(&self.has).expect("JSON"), is_delta)
    }

    /// Returns the data of the publications received since the last call, and whether each was a delta.
    fn take(&mut self, world: &mut World) -> Vec<(Value, bool)> {
        let received = take(world, self.peer);
        let pushes = received.lines.iter();
        pushes.map(|line| self.read(&line["push"]["pub"])).collect()
    }
}

fn wants(channel: &str) -> Value {
    json!({ "channel": channel, "delta": "fossil" })
}

#[test]
fn the_first_is_whole_and_then_come_deltas() {
    let mut world = world(3);
    let back_end = world.connect(0, PUSH);
    for channel in ["price:1", "price:2", "price:3"] {
        let mut clients = Vec::new();
        for worker in 0..3 {
            let (client, reply) = Client::subscribe(&mut world, worker, wants(channel));
            assert_eq!(reply["delta"], true, "{reply}");
            clients.push(client);
        }
        let (plain, reply) = Client::subscribe(&mut world, 1, json!({ "channel": channel }));
        assert_eq!(reply["delta"], Value::Null, "{reply}");
        for number in 0..4 {
            publish(&mut world, back_end, channel, &state(number), &Value::Null);
            for client in &mut clients {
                assert_eq!(client.take(&mut world), [(state(number), number > 0)]);
            }
            let received = take(&mut world, plain.peer);
            assert_eq!(received.lines[0]["push"]["pub"]["data"], state(number));
        }
        // A client that subscribes later has no base yet, so it first receives a whole publication.
        let (mut late, _) = Client::subscribe(&mut world, 2, wants(channel));
        for (number, is_delta) in [(7, false), (8, true)] {
            publish(&mut world, back_end, channel, &state(number), &Value::Null);
            assert_eq!(late.take(&mut world), [(state(number), is_delta)]);
            assert_eq!(clients[2].take(&mut world), [(state(number), true)]);
        }
        // If a delta is not shorter than the publication, the publication is sent whole and becomes the base of the
        // next delta.
        for (data, is_delta) in [
            (json!(1), false),
            (json!("text \"to\" read".repeat(9)), false),
            (json!("text \"to\" read".repeat(10)), true),
        ] {
            publish(&mut world, back_end, channel, &data, &Value::Null);
            assert_eq!(late.take(&mut world), [(data, is_delta)]);
        }
    }
}

/// JSON clients receive binary data as base64, and a delta between the bytes could not be applied
/// to the base64 text.
#[test]
fn json_clients_take_no_deltas_from_or_to_binary_data() {
    let mut world = world(1);
    let back_end = world.connect(0, PUSH);
    let (mut client, joined) = Client::subscribe(&mut world, 0, wants("long:1"));
    let line = "{\"log\":\"".to_owned() + &"a".repeat(200) + "\"}";
    let first: Value = serde_json::from_str(&line).expect("JSON");
    publish(&mut world, back_end, "long:1", &first, &Value::Null);
    assert_eq!(client.take(&mut world), [(first.clone(), false)]);
    // `two` is two JSON texts on two lines, which together are not JSON and therefore binary. `more` is binary data
    // that is valid JSON.
    let two = STANDARD.encode(format!("{line}\n{{}}"));
    let more = STANDARD.encode(line.replace("a\"", "a!\""));
    let mut more_read = first.clone();
    more_read["log"] = json!("a".repeat(200) + "!");
    let all = [
        (json!({ "binary": two }), json!(two), false),
        (json!({ "data": first }), first.clone(), false),
        (json!({ "binary": more }), more_read, true),
        (json!({ "data": first }), first.clone(), true),
    ];
    for (line, expected, is_delta) in all.clone() {
        let mut line = line;
        line["channel"] = json!("long:1");
        assert!(world.ask(back_end, format!("{line}\n")).is_empty());
        assert_eq!(client.take(&mut world), [(expected, is_delta)]);
    }
    // The live client got some publications as deltas. A client that recovers the publications gets the same
    // publications as deltas.
    let mut back = wants("long:1");
    back["recover"] = json!(true);
    back["epoch"] = joined["epoch"].clone();
    back["offset"] = json!(1);
    let (mut late, joined) = Client::subscribe(&mut world, 0, back);
    assert_eq!(joined["recovered"], true, "{joined}");
    let missed = joined["publications"].as_array().expect("a list");
    let read: Vec<_> = missed.iter().map(|one| late.read(one)).collect();
    let received = all.map(|(_, expected, is_delta)| (expected, is_delta));
    assert_eq!(read, received);
}

#[test]
fn deltas_are_for_channels_that_remember_and_clients_that_ask() {
    let mut world = world(1);
    let price = |delta: &str| json!({ "channel": "price:1", "delta": delta });
    for (request, expected) in [
        (wants("price:1"), json!(true)),
        (wants("chat:1"), json!(true)),
        (wants("open:1"), Value::Null),
        (price(""), Value::Null),
        (price("other"), Value::Null),
    ] {
        let (_, reply) = Client::subscribe(&mut world, 0, request);
        assert_eq!(reply["delta"], expected, "{reply}");
    }
}

#[test]
fn unstored_publications_do_not_break_the_delta_chain() {
    let mut world = world(2);
    let back_end = world.connect(0, PUSH);
    for channel in ["chat:1", "chat:2"] {
        let (mut client, _) = Client::subscribe(&mut world, 1, wants(channel));
        let asks = json!({ "delta": true });
        let passes = json!({ "skip_history": true, "delta": true });
        for (number, (more, is_delta)) in [
            (&asks, false),
            (&asks, true),
            // The publisher does not request a delta for this publication, so it is sent whole. It
            // is the base of the next delta.
            (&Value::Null, false),
            (&asks, true),
            // This publication is not stored, so it is sent whole. The next publication is sent whole too, because
            // the client has only this unstored publication, which can't be the base of a delta.
            (&passes, false),
            (&asks, false),
            (&asks, true),
        ]
        .into_iter()
        .enumerate()
        {
            let data = state(number as u32);
            publish(&mut world, back_end, channel, &data, more);
            assert_eq!(client.take(&mut world), [(data, is_delta)], "{number}");
        }
        let key = json!({ "id": 3, "unsubscribe": { "channel": channel } });
        ask(&mut world, client.peer, &key.to_string());
        // The client then subscribes again without requesting deltas, and receives ordinary data.
        let again = json!({ "id": 4, "subscribe": { "channel": channel } });
        ask(&mut world, client.peer, &again.to_string());
        publish(&mut world, back_end, channel, &state(9), &asks);
        let received = take(&mut world, client.peer);
        assert_eq!(received.lines[0]["push"]["pub"]["data"], state(9));
    }
}

#[test]
fn a_recovery_sends_deltas_between_missed_publications() {
    let mut world = world(3);
    let back_end = world.connect(0, PUSH);
    for (channel, offset) in [("chat:1", 1), ("chat:2", 2), ("chat:3", 3), ("chat:4", 4)] {
        let (_, reply) = Client::subscribe(&mut world, 1, wants(channel));
        for number in 1..=4 {
            publish(&mut world, back_end, channel, &state(number), &Value::Null);
        }
        let mut request = wants(channel);
        request["recover"] = json!(true);
        request["offset"] = json!(offset);
        request["epoch"] = reply["epoch"].clone();
        let (mut client, reply) = Client::subscribe(&mut world, 1, request);
        assert_eq!(
            [&reply["recovered"], &reply["delta"]],
            [&json!(true), &json!(true)]
        );
        let missed = reply["publications"].as_array().into_iter().flatten();
        let read: Vec<_> = missed.map(|one| client.read(one)).collect();
        let numbers = offset + 1..=4;
        let expected = numbers.map(|number| (state(number), number > offset + 1));
        assert_eq!(read, expected.collect::<Vec<_>>());
        publish(
            &mut world,
            back_end,
            channel,
            &state(5),
            &json!({ "delta": true }),
        );
        // A client that missed nothing receives no publication with its reply. The server then does
        // not know the client's base, and sends the next publication whole.
        assert_eq!(client.take(&mut world), [(state(5), offset < 4)]);
    }
}

/// Connects with Protobuf and subscribes to this channel with deltas.
fn subscribe_protobuf(world: &mut World, worker: usize, channel: &str) -> Peer {
    let peer = world.open(worker, "/centrifuge?cf_protocol=protobuf");
    let mut request = vec![0x0a, channel.len() as u8];
    request.extend_from_slice(channel.as_bytes());
    request.extend_from_slice(b"\x62\x06fossil");
    let mut command = vec![0x08, 2, 0x2a, request.len() as u8];
    command.extend_from_slice(&request);
    let mut both = b"\x04\x08\x01\x22\x00".to_vec();
    both.push(command.len() as u8);
    both.extend_from_slice(&command);
    let answered = world.ask(peer, message(MessageKind::Binary, &both));
    assert!(!answered.is_empty());
    peer
}

#[test]
fn a_delta_is_made_once_for_all_of_both_encodings() {
    let mut world = world(2);
    let back_end = world.connect(0, PUSH);
    let (mut json_clients, mut protobuf_clients) = (Vec::new(), Vec::new());
    for number in 0..20 {
        let worker = number % 2;
        json_clients.push(Client::subscribe(&mut world, worker, wants("price:1")).0);
        protobuf_clients.push(subscribe_protobuf(&mut world, worker, "price:1"));
    }
    // A client that does not request deltas.
    let plain = Client::subscribe(&mut world, 0, json!({ "channel": "price:1" })).0;
    let counts = |world: &World| {
        let of = |worker: usize| &world.workers[worker].shared().requests.outboxes;
        let all = [of(0), of(1)];
        (
            all.iter().map(|one| one.pushes_encoded()).sum::<u64>(),
            all.iter().map(|one| one.deltas_made()).sum::<u64>(),
        )
    };
    let mut before = counts(&world);
    // Each of the two workers encodes the whole first publication in both encodings, and a single
    // delta in both encodings for each later publication. For every publication, worker 0 also
    // encodes the whole data for the client without deltas.
    for (number, (pushes, deltas)) in [(5, 0), (5, 2), (5, 2)].into_iter().enumerate() {
        let new = state(number as u32).to_string();
        publish(
            &mut world,
            back_end,
            "price:1",
            &state(number as u32),
            &Value::Null,
        );
        let after = counts(&world);
        assert_eq!(
            (after.0 - before.0, after.1 - before.1),
            (pushes, deltas),
            "{number}"
        );
        before = after;
        for client in &mut json_clients {
            assert_eq!(
                client.take(&mut world),
                [(state(number as u32), number > 0)]
            );
        }
        let delta = number.checked_sub(1).map(|before| {
            let old = state(before as u32).to_string();
            fossil_delta(old.as_bytes(), new.as_bytes()).expect("it is less")
        });
        let publication = Publication {
            delta: match delta {
                Some(_) => DeltaKind::Patch,
                None => DeltaKind::Off,
            },
            offset: number as u64 + 1,
            ..Publication::new(PublicationData::Binary(
                delta.as_deref().unwrap_or(new.as_bytes()),
            ))
        };
        let mut expected = Vec::new();
        let push = Push {
            channel: "price:1",
            body: PushBody::Publication(publication),
        };
        Encoding::Protobuf.write_push(&mut expected, &push);
        for peer in &protobuf_clients {
            let bytes = world.take(*peer);
            let last = server_messages(&bytes);
            assert_eq!(
                last.last(),
                Some(&ServerMessage::Binary(expected.clone())),
                "{number}"
            );
        }
    }
    assert_eq!(take(&mut world, plain.peer).lines.len(), 3);
}
