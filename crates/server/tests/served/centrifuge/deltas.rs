//! Deltas on the real server, in both encodings: clients reconstruct the published data.

#[path = "../../../../centrifuge/tests/fossil/decoder.rs"]
mod decoder;

use veche_proto::websocket::{MessageKind, encode_message};

use super::*;
use crate::support::Seen;

const DELTAS: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[namespace]]\nname = \"asked\"\nhistory_size = 1000\nsubscribe = \"client\"\ndelta = \"fossil\"\n\
    [[namespace]]\nname = \"all\"\nhistory_size = 1000\nsubscribe = \"client\"\npublish = \"subscriber\"\n\
    delta = \"fossil\"\ndelta_publish = true\n\
    [[namespace]]\nname = \"off\"\nhistory_size = 1000\nsubscribe = \"client\"\n";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: DELTAS,
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// Returns a state whose text differs little from one number to the next.
fn state(number: u64) -> Value {
    json!({ "n": number, "what": "the part of it that is the same „each time“, and 😀 too", "even": number.is_multiple_of(2) })
}

/// The last data of a channel that a client has reconstructed, and the number of deltas that it has received.
#[derive(Default)]
struct Has {
    bytes: Vec<u8>,
    deltas: u64,
}

impl Has {
    fn take(&mut self, data: &[u8], is_delta: bool) -> Value {
        self.deltas += u64::from(is_delta);
        self.bytes = match is_delta {
            true => decoder::applied(&self.bytes, data).expect("a delta from what it has"),
            false => data.to_vec(),
        };
        serde_json::from_slice(&self.bytes).expect("JSON")
    }

    fn take_json(&mut self, publication: &Value) -> Value {
        let data = publication["data"].as_str().expect("a JSON string");
        self.take(data.as_bytes(), publication["delta"] == true)
    }
}

/// Returns the fields of a Protobuf message: each field's number, its bytes (empty for an integer),
/// and its integer or length.
fn fields(mut message: &[u8]) -> Vec<(u8, &[u8], u64)> {
    let number = |message: &mut &[u8]| {
        let mut number = 0;
        for place in 0.. {
            let (byte, rest) = message.split_first().expect("a number");
            *message = rest;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                break;
            }
        }
        number
    };
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = number(&mut message) as u8;
        let value = number(&mut message);
        let mut bytes = &[][..];
        if key & 7 == 2 {
            (bytes, message) = message.split_at(value as usize);
        }
        fields.push((key >> 3, bytes, value));
    }
    fields
}

fn field(message: &[u8], number: u8) -> Option<&[u8]> {
    let mut all = fields(message).into_iter();
    all.find(|one| one.0 == number).map(|one| one.1)
}

/// A Protobuf client subscribed with deltas.
struct Binary {
    socket: Socket,
    has: Has,
}

impl Binary {
    fn subscribe(server: &Server, channel: &str) -> Self {
        let mut socket = Socket::open(server.public, "/c?user=pia&cf_protocol=protobuf");
        let mut request = vec![0x0a, channel.len() as u8];
        request.extend_from_slice(channel.as_bytes());
        request.extend_from_slice(b"\x62\x06fossil");
        for command in [
            b"\x08\x01\x22\x00".to_vec(),
            [&[8, 2, 0x2a, request.len() as u8], &request[..]].concat(),
        ] {
            let message = [&[command.len() as u8], &command[..]].concat();
            let mut out = Vec::new();
            encode_message(&mut out, MessageKind::Binary, &message, Some([1, 2, 3, 4]));
            socket.raw(&out);
            assert!(matches!(socket.next(), Seen::Binary(_)));
        }
        let has = Has::default();
        Self { socket, has }
    }

    fn publication(&mut self) -> Value {
        let Seen::Binary(message) = self.socket.next() else {
            panic!("a push");
        };
        let sizes = message.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let push = field(&message[sizes..], 4).expect("a push");
        let publication = field(push, 4).expect("a publication");
        let is_delta = fields(publication)
            .iter()
            .any(|one| (one.0, one.2) == (8, 1));
        let data = field(publication, 4).expect("data");
        self.has.take(data, is_delta)
    }
}

#[test]
fn clients_of_both_encodings_receive_deltas() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        for channel in ["all:1", "all:2", "asked:3", "asked:4"] {
            let (mut json_client, _) = Client::connect(&server, "ann");
            let request = json!({ "channel": channel, "delta": "fossil" });
            let joined = json_client.ask(json!({ "id": 2, "subscribe": request }));
            assert_eq!(joined["subscribe"]["delta"], true, "{joined}");
            let mut binary = Binary::subscribe(&server, channel);
            let (mut plain, _) = Client::connect(&server, "bob");
            let joined = plain.ask(json!({ "id": 2, "subscribe": { "channel": channel } }));
            assert_eq!(joined["subscribe"]["delta"], Value::Null, "{joined}");
            let mut has = Has::default();
            for number in 0..10 {
                let line = json!({ "channel": channel, "data": state(number), "ack": true,
                    "delta": channel.starts_with("asked") });
                lines.ask(&line);
                assert_eq!(plain.publication()["data"], state(number));
                assert_eq!(has.take_json(&json_client.publication()), state(number));
                assert_eq!(binary.publication(), state(number));
            }
            assert_eq!((has.deltas, binary.has.deltas), (9, 9));
            // A client's own publications arrive as deltas too.
            if channel.starts_with("all") {
                let publish = json!({ "channel": channel, "data": state(10) });
                json_client.say(&json!({ "id": 3, "publish": publish }));
                let two = [json_client.next(), json_client.next()];
                let push = two.iter().find(|one| one["push"] != Value::Null);
                let publication = &push.expect("it hears itself")["push"]["pub"];
                assert_eq!(publication["delta"], true, "{publication}");
                assert_eq!(has.take_json(publication), state(10));
            }
        }
        let (mut ann, _) = Client::connect(&server, "ann");
        let request = json!({ "channel": "off:1", "delta": "fossil" });
        let joined = ann.ask(json!({ "id": 2, "subscribe": request }));
        assert_eq!(joined["subscribe"]["delta"], Value::Null, "{joined}");
    });
}

#[test]
fn deltas_are_right_while_clients_come_and_go() {
    on_all(|setup| {
        let server = start(setup);
        const LAST: u64 = 200;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut lines = Lines::connect(server.push);
                for number in 1..=LAST {
                    lines
                        .ask(&json!({ "channel": "all:busy", "data": state(number), "ack": true }));
                }
            });
            for worker in 0..3 {
                let server = &server;
                scope.spawn(move || {
                    let (mut received, mut visits, mut deltas) = (0, 0, 0);
                    let mut epoch = Value::Null;
                    while received < LAST {
                        let (mut client, _) = Client::connect(server, &format!("user{worker}"));
                        let is_back = epoch != Value::Null;
                        let mut request = json!({ "channel": "all:busy", "delta": "fossil" });
                        if is_back {
                            request["recover"] = json!(true);
                            request["epoch"] = epoch;
                            request["offset"] = json!(received);
                        }
                        let joined = client.ask(json!({ "id": 2, "subscribe": request }));
                        let joined = &joined["subscribe"];
                        epoch = joined["epoch"].clone();
                        // The client reconnects without the data that deltas refer to.
                        let mut has = Has::default();
                        let mut hear = |publication: &Value| {
                            received += 1;
                            assert_eq!(publication["offset"], received);
                            assert_eq!(has.take_json(publication), state(received));
                            received
                        };
                        let mut last = match is_back {
                            true => {
                                assert_eq!(joined["recovered"], true, "{joined}");
                                let missed = joined["publications"].as_array();
                                missed.into_iter().flatten().map(&mut hear).last()
                            }
                            false => None,
                        };
                        for _ in 0..=visits % 7 {
                            if is_back && last != Some(LAST) {
                                last = Some(hear(&client.publication()));
                            }
                        }
                        if !is_back {
                            received = joined["offset"].as_u64().unwrap_or(0);
                        }
                        deltas += has.deltas;
                        visits += 1;
                    }
                    assert!(deltas > 0);
                });
            }
        });
    });
}
