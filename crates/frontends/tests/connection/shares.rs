//! Clients (flooders) that send the work of a whole turn at once: each of them gets its share of a turn, and others
//! (bystanders) are served too.

use veche_frontends::WaitReason;
use veche_proto::websocket::{MessageKind, Opcode, Role, deflate};

use crate::world::wire::{
    control, get, handshake, response, server_messages, statuses, text, texts,
};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, Peer, World};

/// Maximum number of bytes that the server receives from a connection at once.
const RECEIVE_BYTES: usize = 64 * 1024;

const FLOODERS: usize = 20;

/// Maximum number of turns until a client that sends one message gets its reply, however much others send.
const TURNS_MAX: usize = 1;

/// Opens a connection of a flooder.
type Open = fn(&mut World) -> Peer;

/// Returns as many copies of `unit` as the server receives at once.
fn flood(unit: &[u8]) -> Vec<u8> {
    unit.repeat(RECEIVE_BYTES / unit.len())
}

/// Opens a session of the echo protocol with compression.
fn open_compressed(world: &mut World) -> Peer {
    let peer = world.connect(0, PUBLIC);
    let mut offer = b"Sec-WebSocket-Extensions: ".to_vec();
    deflate::write_offer(&mut offer, &deflate::DeflatePolicy::default());
    let offer = String::from_utf8(offer).expect("text") + "\r\n";
    let answer = world.ask(peer, handshake("/deflate", &offer));
    assert_eq!(response(&answer, true).0.status, 101);
    peer
}

/// Returns a message as a compressed frame of a client.
fn compressed(data: &[u8]) -> Vec<u8> {
    use veche_proto::websocket::{Codecs, Encoder};
    let answer = ["permessage-deflate; server_no_context_takeover; client_no_context_takeover"];
    let policy = deflate::DeflatePolicy::default();
    let agreed = deflate::read_response(answer.into_iter(), Some(&policy)).expect("a valid answer");
    let mut frame = Vec::new();
    Encoder::new(Role::Client, agreed).encode(
        &mut frame,
        MessageKind::Text,
        data,
        &mut Codecs::default(),
        Some([1, 2, 3, 4]),
    );
    frame
}

/// Opens the connections of the flooders with `open`, and sends `input` on each in one turn. Returns how many turns a
/// client that sends one message afterwards waits for its reply.
fn turns_of_a_bystander(name: &str, input: &[u8], open: impl Fn(&mut World) -> Peer) -> usize {
    let mut world = World::new(Options::default());
    let flooders: Vec<Peer> = (0..FLOODERS).map(|_| open(&mut world)).collect();
    let bystander = world.open(0, "/echo");
    for flooder in &flooders {
        world.send(*flooder, input);
    }
    // After this turn some flooders have input left. The bystander's message arrives in a later turn than that input.
    world.turn(0);
    assert!(
        flooders
            .iter()
            .any(|flooder| world.blocked(*flooder) == Some(WaitReason::Turn)),
        "{name} are work for more than a turn"
    );
    world.send(bystander, &text("hello"));
    for turn in 1.. {
        assert!(turn < 1000, "no answer");
        world.turn(0);
        if texts(&world.take(bystander)) == ["hello"] {
            world.settle();
            for flooder in flooders {
                assert_eq!(world.blocked(flooder), None, "{name}");
            }
            return turn;
        }
    }
    unreachable!()
}

#[test]
fn a_client_that_sends_one_message_is_served_at_once_while_others_flood() {
    let upper = compressed(
        "a message that is sent back compressed"
            .repeat(2)
            .as_bytes(),
    );
    let bomb = compressed(&[b'x'; 60_000]);
    let echo = flood(&text("forty bytes of plain text, echoed packed"));
    let line = b"{\"user\":\"nobody-here\",\"data\":1}\n";
    let floods: [(&str, Vec<u8>, Open); 6] = [
        ("echoes that are compressed", echo, open_compressed),
        ("compressed both ways", flood(&upper), open_compressed),
        (
            "inflated to a thousand times their size",
            flood(&bomb),
            open_compressed,
        ),
        (
            "requests",
            flood(get("/files/hello.txt").as_bytes()),
            |world| world.connect(0, INTERNAL),
        ),
        ("push lines", flood(line), |world| world.connect(0, PUSH)),
        ("pings", flood(&control(Opcode::Ping, b"")), |world| {
            world.open(0, "/echo")
        }),
    ];
    for (name, input, open) in floods {
        let turns = turns_of_a_bystander(name, &input, open);
        assert!(turns <= TURNS_MAX, "{name}: {turns} turns");
    }
}

#[test]
fn no_client_gets_a_second_share_before_all_have_had_their_first() {
    let mut world = World::new(Options::default());
    let flooders: Vec<Peer> = (0..FLOODERS).map(|_| open_compressed(&mut world)).collect();
    let input = flood(&text("forty bytes of plain text, echoed packed"));
    let messages = RECEIVE_BYTES / text("forty bytes of plain text, echoed packed").len();
    let mut echoed = [0; FLOODERS];
    let mut served = [0; FLOODERS];
    world.advance(10);
    for flooder in &flooders {
        world.send(*flooder, &input);
    }
    let mut turns = 0;
    let mut share = 0;
    while echoed.iter().any(|count| *count < messages) {
        world.turn(0);
        world.advance(10);
        turns += 1;
        assert!(turns < 10_000, "the flood is not worked off");
        for (index, flooder) in flooders.iter().enumerate() {
            let more = server_messages(&world.take(*flooder)).len();
            share = share.max(more);
            echoed[index] += more;
            served[index] += usize::from(more > 0);
        }
        let most = served.iter().max().expect("flooders");
        let waiting = (0..FLOODERS).filter(|index| echoed[*index] < messages);
        let least = waiting.map(|index| served[index]).min();
        assert!(
            least.is_none_or(|least| most - least <= 1),
            "{served:?} after {turns} turns"
        );
    }
    assert!(share < messages / 4, "{share} of {messages} in one turn");
}

#[test]
fn input_that_waits_for_its_turn_is_worked_on_in_order_and_whole() {
    let mut world = World::new(Options::default());
    let (flooder, bystander) = (world.connect(0, PUSH), world.open(0, "/ws?user=ann"));
    let sent: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
    let input: String = sent
        .iter()
        .map(|n| format!("{{\"user\":\"ann\",\"data\":{n}}}\n"))
        .collect();
    world.send(flooder, input.as_bytes());
    assert_eq!(world.blocked(flooder), Some(WaitReason::Turn));
    // The peer's FIN is handled after its earlier data.
    world.finish(flooder);
    world.settle();
    assert_eq!(texts(&world.take(bystander)), sent);
    assert!(!world.is_open(flooder));
}

/// Sends as many requests for a file as the server receives at once. Returns how many are answered in the first turn.
fn answered_at_once(target: &str, accepted: &str) -> usize {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, PUBLIC);
    // The responses have no body, so that their number is limited by the work of a turn and not by the outbox.
    let condition = format!("If-None-Match: *\r\nAccept-Encoding: {accepted}\r\n");
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{condition}\r\n");
    world.send(peer, &flood(head.as_bytes()));
    world.turn(0);
    statuses(&world.take(peer)).len()
}

#[test]
fn looking_for_variants_of_a_file_is_work() {
    let plain = answered_at_once("/files/hello.txt", "br, gzip");
    let refused = answered_at_once("/packed/hello.txt", "identity");
    let one = answered_at_once("/packed/hello.txt", "gzip");
    let both = answered_at_once("/packed/hello.txt", "br, gzip");
    assert!(plain > 100 && plain == refused, "{plain} {refused}");
    assert!(both < one && one < plain, "{both} {one} {plain}");
}
