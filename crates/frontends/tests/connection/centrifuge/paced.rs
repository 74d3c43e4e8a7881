//! Rate limits of clients: each command of a message is counted, on every transport.

use serde_json::{Value, json};

use super::streams::{objects, open};
use super::{CONNECT, ask, connect, take};
use veche_proto::websocket::MessageKind;

use crate::world::wire::{ServerMessage, message, post, responses, server_messages, text, texts};
use crate::world::{INTERNAL, PUBLIC, Peer, World};

/// The maximum number of commands in one message.
const MANY: u32 = 1_024;

/// Returns a world and a client that is subscribed to all channels. The homes of some channels are on other workers
/// than the publisher.
fn world_and_listener() -> (World, Peer) {
    let mut world = super::world(3);
    let listener = connect(&mut world, 0, "/centrifuge", &json!({})).0;
    for channel in CHANNELS {
        let subscribe = json!({ "id": 2, "subscribe": { "channel": channel } });
        let reply = ask(&mut world, listener, &subscribe.to_string());
        assert!(reply.lines[0]["subscribe"].is_object());
    }
    (world, listener)
}

const CHANNELS: [&str; 3] = ["open:1", "open:2", "open:3"];

/// Returns commands that publish the numbers from 0 on, one per line.
fn publications(count: u32) -> String {
    let all = (0..count).map(|number| {
        let channel = CHANNELS[number as usize % CHANNELS.len()];
        let request = json!({ "channel": channel, "data": number });
        json!({ "id": number + 2, "publish": request }).to_string()
    });
    all.collect::<Vec<_>>().join("\n")
}

/// Returns the commands of [`publications`] in Protobuf: each has its length, its id, and field 7
/// (publish) with channel and data.
fn protobuf(count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..count {
        let channel = CHANNELS[number as usize % CHANNELS.len()].as_bytes();
        let data = number.to_string().into_bytes();
        let mut request = vec![0x0a, channel.len() as u8];
        request.extend_from_slice(channel);
        request.extend_from_slice(&[0x12, data.len() as u8]);
        request.extend_from_slice(&data);
        let mut command = vec![0x08, 0x80 | (number + 2) as u8, ((number + 2) >> 7) as u8];
        command.extend_from_slice(&[PUBLISH << 3 | 2, request.len() as u8]);
        command.extend_from_slice(&request);
        bytes.push(command.len() as u8);
        bytes.extend_from_slice(&command);
    }
    bytes
}

const PUBLISH: u8 = 7;

/// Returns the numbers that the subscriber received since the last call, in the order of arrival.
fn delivered(world: &mut World, listener: Peer) -> Vec<u64> {
    let lines = take(world, listener).lines;
    let data = lines
        .iter()
        .map(|line| line["push"]["pub"]["data"].as_u64());
    data.map(|data| data.expect("a publication")).collect()
}

#[test]
fn each_command_of_a_message_is_counted() {
    for is_protobuf in [false, true] {
        for (over, at_once) in [("delay", 2), ("drop", 1), ("close", 1)] {
            let what = format!("{over}, Protobuf: {is_protobuf}");
            let (mut world, listener) = world_and_listener();
            let format = if is_protobuf {
                "?cf_protocol=protobuf"
            } else {
                ""
            };
            let peer = world.open(0, &format!("/paced/{over}/websocket{format}"));
            let mut output = match is_protobuf {
                true => {
                    world.ask(peer, message(MessageKind::Binary, &[4, 0x08, 1, 0x22, 0]));
                    world.ask(peer, message(MessageKind::Binary, &protobuf(MANY)))
                }
                false => {
                    assert_eq!(ask(&mut world, peer, CONNECT).lines.len(), 1);
                    world.ask(peer, text(&publications(MANY)))
                }
            };
            // The rate permits two commands at once, and the connect command was the first. With
            // `delay` one command more is executed, and the rest waits until the rate permits it.
            assert_eq!(delivered(&mut world, listener).len(), at_once, "{what}");
            let closed =
                server_messages(&output)
                    .into_iter()
                    .rev()
                    .find_map(|message| match message {
                        ServerMessage::Close(code, _) => code,
                        _ => None,
                    });
            assert_eq!(closed, (over == "close").then_some(3013), "{what}");
            if is_protobuf {
                continue;
            }
            output.clear();
            assert_eq!(
                world.blocked(peer),
                (over == "delay").then_some(veche_frontends::WaitReason::RateLimit)
            );
            // Once the burst is used up, the rate permits one command every four seconds. Dropped
            // commands never arrive.
            world.advance(4_000);
            let later = usize::from(over == "delay");
            assert_eq!(delivered(&mut world, listener).len(), later, "{what}");
            world.advance(4_000);
            assert_eq!(delivered(&mut world, listener).len(), later, "{what}");
            let dropped = world.stats(0).messages_dropped.read();
            assert_eq!(
                dropped,
                if over == "drop" {
                    u64::from(MANY) - 1
                } else {
                    0
                }
            );
            assert_eq!(
                world.stats(0).rate_limited.read(),
                u64::from(over == "close")
            );
        }
    }
}

#[test]
fn commands_that_wait_for_something_else_are_counted_once() {
    let (mut world, listener) = world_and_listener();
    let peer = world.open(0, "/paced/delay/websocket");
    ask(&mut world, peer, CONNECT);
    ask(&mut world, peer, &publications(6));
    // The homes on other workers answer in turns of their own.
    let mut numbers = delivered(&mut world, listener);
    for _ in 0..4 {
        world.advance(4_000);
        numbers.extend(delivered(&mut world, listener));
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    // The last of the earlier commands exceeded the rate, so neither of the next two commands is executed at once.
    let received = ask(&mut world, peer, &publications(2));
    assert_eq!(delivered(&mut world, listener).len(), 0, "{received:?}");
    world.advance(4_000);
    assert_eq!(delivered(&mut world, listener), [0]);
}

#[test]
fn commands_beside_a_response_are_counted_too() {
    for (over, at_once) in [("delay", 2), ("drop", 1), ("close", 1)] {
        let (mut world, listener) = world_and_listener();
        let target = format!("/paced/{over}");
        // The publications are in the same request as the connect command.
        let commands = format!("{CONNECT}\n{}", publications(MANY - 1));
        let (_, messages) = open(
            &mut world,
            0,
            &post(&format!("{target}/http_stream"), &commands),
        );
        assert_eq!(delivered(&mut world, listener).len(), at_once, "{over}");
        let goes_on = over == "drop";
        assert_eq!(is_over(&messages), !goes_on, "{over}");

        // The publications are in separate requests.
        let (peer, messages) = open(
            &mut world,
            1,
            &post(&format!("{target}/http_stream"), CONNECT),
        );
        let reply = &messages[0]["connect"];
        let send = |world: &mut World, reply: &Value, commands: &str| {
            let caller = world.connect(2, PUBLIC);
            let body = json!({ "session": reply["session"], "node": "", "data": commands });
            let request = post(&format!("{target}/emulation"), &body.to_string());
            assert_eq!(responses(&world.ask(caller, request))[0].status, 204);
        };
        // Requests that other clients send with a forged session do not count against the client's rate.
        let mut others = reply.clone();
        let session = others["session"].as_str().expect("a session").to_owned();
        let (end, other) = if session.ends_with('A') {
            ("A", "Q")
        } else {
            ("", "A")
        };
        let stem = session[..session.len() - 1].to_owned();
        assert!(session.ends_with(end));
        others["session"] = json!(stem + other);
        (0..9).for_each(|_| send(&mut world, &others, &publications(9)));
        assert!(delivered(&mut world, listener).is_empty());
        send(&mut world, reply, &publications(MANY));
        assert_eq!(delivered(&mut world, listener).len(), at_once, "{over}");
        let messages = objects(&mut world, peer);
        assert_eq!(is_over(&messages), !goes_on, "{over}");
    }
}

/// Returns whether a response has ended with a disconnect for exceeding the rate.
fn is_over(messages: &[Value]) -> bool {
    let ends = messages
        .iter()
        .filter_map(|line| line["push"]["disconnect"]["code"].as_u64());
    let ends: Vec<u64> = ends.collect();
    assert!(ends.is_empty() || ends == [3013], "{ends:?}");
    !ends.is_empty()
}

#[test]
fn pending_messages_of_a_closed_client_are_discarded() {
    for over in ["delay", "drop", "close"] {
        let (mut world, listener) = world_and_listener();
        let peer = world.open(0, &format!("/paced/{over}/websocket"));
        ask(&mut world, peer, CONNECT);
        world.send(peer, &text(&publications(MANY)));
        world.end_now(peer);
        world.settle();
        assert!(delivered(&mut world, listener).len() <= 2, "{over}");
    }
}

#[test]
fn each_publication_of_a_back_ends_command_is_counted() {
    let (mut world, listener) = world_and_listener();
    let peer = world.open_on(0, INTERNAL, "/paced-api/socket");
    let batch = json!({ "channels": CHANNELS, "data": 7 }).to_string();
    let answer = world.ask(peer, text(&batch));
    assert_eq!(server_messages(&answer).len(), 1);
    // A batch that alone exceeds the rate is accepted. The next batch is refused until the rate would have permitted
    // the first one.
    assert_eq!(delivered(&mut world, listener), [7, 7, 7]);
    world.advance(4_000);
    let answer = world.ask(peer, text(&batch));
    assert!(format!("{:?}", server_messages(&answer)).contains("1008"));
    assert!(delivered(&mut world, listener).is_empty());
}

/// In a protocol without commands, each message counts as one command.
#[test]
fn messages_in_one_packet_wait_for_their_rate() {
    let mut world = super::world(1);
    let peer = world.open(0, "/paced-echo");
    let packet = ["a", "b", "c", "d", "e"].map(text).concat();
    assert_eq!(texts(&world.ask(peer, packet)), ["a", "b", "c"]);
    for expected in ["d", "e"] {
        world.advance(3_999);
        assert_eq!(texts(&world.take(peer)), [""; 0]);
        world.advance(1);
        assert_eq!(texts(&world.take(peer)), [expected]);
    }
}
