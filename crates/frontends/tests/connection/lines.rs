//! Tests connections of push listeners: the lines they receive, and their acknowledgements and errors.

use proptest::collection::vec;
use proptest::prelude::*;
use veche_frontends::WaitReason;

use crate::world::wire::{ServerMessage, server_messages, texts};
use crate::world::{Options, PUSH, World};

/// Checks that an error response names the line `line` and contains the text `what`.
fn assert_error(answer: &str, line: u64, what: &str) {
    let start = format!(r#"{{"error":{{"code":107,"message":"line {line}: "#);
    assert!(
        answer.starts_with(&start) && answer.contains(what),
        "{answer}"
    );
}

fn lines(bytes: Vec<u8>) -> Vec<String> {
    let text = String::from_utf8(bytes).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn lines_arrive_however_they_are_split_and_ended() {
    let input = "{\"user\":\"ann\",\"message\":\"one\"}\r\n\n\r\n{\"users\":[\"bob\",\"ann\"],\"data\":\"two\"}\n\
                 {\"channel\":\"news\",\"data\":{\"n\": 3}}\n{\"user\":\"ann\",\"binary\":\"AAEC\"}\n\
                 {\"channels\":[\"news\",\"room:1\"],\"data\":\"\\u00e4\\n\"}\n{\"user\":\"ann\",\"data\":\"last\"}";
    let mut random = fastrand::Rng::with_seed(1);
    for step in [usize::MAX, 1, 17, 0, 0, 0] {
        for workers in [1, 3] {
            let mut world = World::new(Options {
                workers,
                ..Options::default()
            });
            let ann = world.open(0, "/ws?user=ann&channel=news&channel=room:1");
            let bob = world.open(usize::from(workers) - 1, "/ws?user=bob&channel=news");
            let back_end = world.connect(0, PUSH);
            world.send_split(back_end, input.as_bytes(), |_| {
                if step == 0 { random.usize(1..40) } else { step }
            });
            world.settle();
            world.finish(back_end);
            world.settle();
            assert_eq!(world.take(back_end), b"", "no response yet");
            assert!(world.is_closed(back_end));
            // Publications are ordered per target. On a single worker, they have the order of the
            // lines.
            let mut got = server_messages(&world.take(ann));
            let mut expected = vec![
                ServerMessage::Text("one".into()),
                ServerMessage::Text("two".into()),
                ServerMessage::Text("{\"n\":3}".into()),
                ServerMessage::Binary(vec![0, 1, 2]),
                ServerMessage::Text("ä\n".into()),
                ServerMessage::Text("ä\n".into()),
                ServerMessage::Text("last".into()),
            ];
            if workers > 1 {
                got.sort_by_key(|message| format!("{message:?}"));
                expected.sort_by_key(|message| format!("{message:?}"));
            }
            assert_eq!(got, expected, "step {step}, {workers} workers");
            let mut got = texts(&world.take(bob));
            got.sort();
            assert_eq!(got, ["two", "{\"n\":3}", "ä\n"]);
        }
    }
}

#[test]
fn acks_come_in_the_order_of_asking_across_workers() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let users: Vec<String> = (0..3).map(|worker| world.user_at(worker)).collect();
    world.open(1, &format!("/ws?user={}", users[0]));
    world.open(2, &format!("/ws?user={}", users[0]));
    world.open(0, &format!("/ws?user={}", users[1]));
    let back_end = world.connect(0, PUSH);
    let [here, near, far] = &users[..] else {
        unreachable!()
    };
    let input = format!(
        "{{\"user\":\"{far}\",\"data\":1,\"ack\":true}}\n{{\"user\":\"{here}\",\"data\":1,\"ack\":true}}\nbad\n\
         {{\"user\":\"{near}\",\"data\":1}}\n{{\"users\":[\"{far}\",\"{near}\",\"{here}\"],\"data\":1,\"id\":\"x\"}}\n\
         {{\"user\":\"{near}\",\"data\":1,\"id\":7}}\n"
    );
    let answers = lines(world.ask(back_end, input));
    assert_eq!(answers.len(), 5, "{answers:?}");
    assert_eq!(
        answers[0],
        r#"{"result":{"handed":0,"note":"the user has no connection"}}"#
    );
    assert_eq!(answers[1], r#"{"result":{"handed":2}}"#);
    assert_error(&answers[2], 3, "expected a JSON object");
    assert_eq!(answers[3], r#"{"id":"x","result":{"handed":3}}"#);
    assert_eq!(answers[4], r#"{"id":7,"result":{"handed":1}}"#);
}

#[test]
fn a_bad_line_gets_one_error_and_the_connection_stays() {
    let table: &[(&str, &str)] = &[
        ("{\"mesage\":1}", "unknown field"),
        ("nonsense", "expected a JSON object"),
        ("{\"user\":\"ann\",\"data\":", "bad JSON"),
        ("{\"user\":\"ann\"}", "is missing"),
        ("{\"data\":1}", "is missing"),
        ("{\"user\":\"\",\"data\":1}", "bad user"),
        (
            "{\"channel\":\"#ann\",\"data\":1,\"user\":\"b\"}",
            "only one of",
        ),
        ("{\"users\":[],\"data\":1}", "1 to 1024"),
        ("{\"user\":\"ann\",\"binary\":\"!\"}", "base64"),
        ("\u{fffd}", "expected a JSON object"),
        ("GET / HTTP/1.1", "expected a JSON object"),
    ];
    let mut world = World::new(Options::default());
    let ann = world.open(0, "/ws?user=ann");
    let back_end = world.connect(0, PUSH);
    for (number, (line, what)) in table.iter().enumerate() {
        let answers = lines(world.ask(back_end, format!("{line}\n")));
        assert_eq!(answers.len(), 1, "{line}: {answers:?}");
        assert_error(&answers[0], number as u64 + 1, what);
    }
    let answers = lines(world.ask(
        back_end,
        "{\"user\":\"ann\",\"data\":\"still\",\"ack\":true}\n",
    ));
    assert_eq!(answers, [r#"{"result":{"handed":1}}"#]);
    assert_eq!(texts(&world.take(ann)), ["still"]);
}

const GOOD: &str = "{\"user\":\"ann\",\"data\":1,\"ack\":true}\n";

/// Sends `input` to a push listener in pieces of `step` bytes, then `behind` in the same way, and then FIN. No piece
/// contains bytes of both inputs. Returns the replies, and the messages that ann received.
fn spoken(input: &[u8], behind: &[u8], step: usize) -> (Vec<String>, Vec<String>) {
    let mut world = World::new(Options::default());
    let ann = world.open(0, "/ws?user=ann");
    let back_end = world.connect(0, PUSH);
    world.send_split(back_end, input, |_| step);
    world.settle();
    world.send_split(back_end, behind, |_| step);
    world.settle();
    let mut answers = world.take(back_end);
    world.finish(back_end);
    world.settle();
    answers.extend(world.take(back_end));
    assert!(world.is_closed(back_end));
    (lines(answers), texts(&world.take(ann)))
}

#[test]
fn a_line_that_is_too_long_ends_the_connection() {
    let mut exact = format!(
        "{{\"user\":\"ann\",\"ack\":true,\"data\":\"{}",
        "x".repeat(4000)
    );
    exact.extend(std::iter::repeat_n('x', 4094 - exact.len()));
    exact.push_str("\"}\r\n");
    assert_eq!(exact.len(), 4098);
    let (answers, _) = spoken(exact.as_bytes(), b"", usize::MAX);
    assert_eq!(answers, [r#"{"result":{"handed":1}}"#]);
    for step in [usize::MAX, 1, 100] {
        for long in ["y".repeat(20_000), "{".to_owned() + &" ".repeat(4096)] {
            let input = format!("{GOOD}{long}");
            let (answers, received) = spoken(input.as_bytes(), b"", step);
            assert_eq!(answers[0], r#"{"result":{"handed":1}}"#);
            assert_error(&answers[1], 2, "longer than 4096 bytes");
            assert_eq!((answers.len(), received.len()), (2, 1), "{answers:?}");
            let whole = format!("{input}\n{GOOD}");
            let tail = format!("\n\n{GOOD}{GOOD}");
            for (input, behind) in [(&whole, &tail), (&input, &tail)] {
                let split = spoken(input.as_bytes(), behind.as_bytes(), step);
                assert_eq!(split, (answers.clone(), received.clone()), "step {step}");
            }
        }
    }
}

#[test]
fn a_first_line_that_is_no_object_ends_the_connection() {
    let table: &[&[u8]] = &[
        b"nonsense\n",
        b"[]\n",
        b"{\n",
        b"{\"user\":\"ann\",\"data\":\n",
        b"  \n",
        b"\xef\xbb\xbf",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"EHLO evil.example\r\n",
        b"GET /\r\n",
        b"GET / HTTP/1.1\r\nHost: t\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n",
        b"\r\n\nGET / HTTP/1.1\r\n\r\n",
    ];
    for input in table {
        for step in [usize::MAX, 1, 7] {
            let messages = String::from_utf8_lossy(input);
            let (answers, received) = spoken(input, format!("\n{GOOD}").as_bytes(), step);
            assert_eq!(answers.len(), 1, "{messages}: {answers:?}");
            let line = if input.starts_with(b"\r") { 3 } else { 1 };
            assert_error(&answers[0], line, "expected one JSON object per line");
            assert_eq!(received, [""; 0], "{messages}");
        }
    }
}

/// The first byte shows that the input can't be a JSON object, so the input is refused before its
/// line ends.
#[test]
fn input_that_can_be_no_object_is_refused_at_once() {
    let mut world = World::new(Options::default());
    for (input, line) in [("G", 1), ("\x16\x03\x01", 1), ("[", 1), ("\n\r\nx", 3)] {
        let back_end = world.connect(0, PUSH);
        let answers = lines(world.ask(back_end, input));
        assert_eq!(answers.len(), 1, "{input:?}: {answers:?}");
        assert_error(&answers[0], line, "expected one JSON object per line");
        assert!(!world.is_open(back_end), "{input:?}");
    }
    for input in ["{", " {", "\t", "\r\n {\"user\":"] {
        let back_end = world.connect(0, PUSH);
        assert_eq!(world.ask(back_end, input), b"", "{input:?}");
        assert!(world.is_open(back_end), "{input:?}");
    }
}

#[test]
fn empty_lines_before_the_first_mean_nothing() {
    let (answers, received) = spoken(format!("\n\r\n \t{GOOD}").as_bytes(), b"", 1);
    assert_eq!(
        (answers, received),
        (
            vec![r#"{"result":{"handed":1}}"#.to_owned()],
            vec!["1".to_owned()]
        )
    );
}

#[test]
fn calls_before_an_invalid_line_are_answered() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let user = world.user_at(1);
    let back_end = world.connect(0, PUSH);
    let input = format!(
        "{{\"user\":\"{user}\",\"data\":1,\"id\":1}}\n{{\"user\":\"{user}\",\"data\":1,\"id\":2}}\n{}\n{GOOD}",
        "x".repeat(4097)
    );
    world.send(back_end, input.as_bytes());
    world.send(back_end, GOOD.as_bytes());
    world.settle();
    let answers = lines(world.take(back_end));
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert_eq!(
        answers[0],
        r#"{"id":1,"result":{"handed":0,"note":"the user has no connection"}}"#
    );
    assert_eq!(
        answers[1],
        r#"{"id":2,"result":{"handed":0,"note":"the user has no connection"}}"#
    );
    assert_error(&answers[2], 3, "longer than 4096 bytes");
    assert!(!world.is_open(back_end));
}

/// Returns input that is not a push line: arbitrary bytes, or the beginning of another protocol.
fn foreign() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), Just(b'\n'), Just(b'{'), Just(b'"'), Just(b' ')];
    let request = (
        "[A-Z]{1,7} /",
        0..6000_usize,
        "( HTTP/[0-9.]{1,3})?\r?\n(\r\n)?",
    );
    prop_oneof![
        vec(byte, 0..40),
        "(\r?\n){0,3}[ -~]{0,40}".prop_map(String::into_bytes),
        request
            .prop_map(|(begin, length, end)| { (begin + &"a".repeat(length) + &end).into_bytes() }),
        (1..9000_usize).prop_map(|length| [b"{".as_slice(), &vec![b' '; length]].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_carried_out_behind_what_is_no_object(
        prefix in foreign(),
        pieces in vec(1..2000_usize, 1..20),
    ) {
        let all = [prefix.as_slice(), b"\n", GOOD.as_bytes()].concat();
        let first = all.split(|byte| *byte == b'\n').find(|line| !matches!(*line, [] | b"\r"));
        let first = serde_json::from_slice::<serde_json::Value>(first.unwrap_or_default());
        prop_assume!(!first.is_ok_and(|value| value.is_object()));
        let mut world = World::new(Options::default());
        let ann = world.open(0, "/ws?user=ann");
        let back_end = world.connect(0, PUSH);
        let mut pieces = pieces.into_iter().cycle();
        world.send_split(back_end, &all, |_| pieces.next().unwrap_or(1));
        world.settle();
        prop_assert_eq!(texts(&world.take(ann)), [""; 0]);
        prop_assert!(!world.is_open(back_end));
    }
}

#[test]
fn more_acks_than_may_be_open_are_all_answered() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    for worker in 0..2 {
        let user = world.user_at(worker);
        let back_end = world.connect(0, PUSH);
        let lines_sent: String = (0..5000)
            .map(|n| format!("{{\"user\":\"{user}\",\"data\":1,\"id\":{n}}}\n"))
            .collect();
        for _ in 0..3 {
            let answers = lines(world.ask(back_end, &lines_sent));
            let expected: Vec<String> = (0..5000)
                .map(|n| format!("{{\"id\":{n},\"result\":{{\"handed\":0,\"note\":\"the user has no connection\"}}}}"))
                .collect();
            assert!(answers == expected, "{} answers", answers.len());
        }
    }
}

#[test]
fn bad_lines_behind_an_open_ack_do_not_pile_up() {
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let user = world.user_at(1);
    let back_end = world.connect(0, PUSH);
    let input = format!("{{\"user\":\"{user}\",\"data\":1,\"ack\":true}}\n") + &"x\n".repeat(5000);
    world.send(back_end, input.as_bytes());
    // Worker 1 runs no turns, so the first command stays unanswered and the number of waiting commands
    // reaches its limit.
    while world.blocked(back_end) == Some(WaitReason::Turn) {
        world.turn(0);
    }
    assert_eq!(world.blocked(back_end), Some(WaitReason::Answer));
    assert!(world.stats(0).pushes_refused.read() <= 1024);
    world.settle();
    let answers = lines(world.take(back_end));
    assert_eq!(answers.len(), 5001);
    assert_error(&answers[5000], 5001, "expected a JSON object");
}

#[test]
fn users_and_channels_far_away_get_the_sum() {
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    let peers: Vec<_> = (0..30)
        .map(|n| world.open(n % 3, &format!("/ws?user=u{n}&channel=room:{}", n % 2)))
        .collect();
    let back_end = world.connect(1, PUSH);
    let users: Vec<String> = (0..40).map(|n| format!("\"u{n}\"")).collect();
    let input = format!(
        "{{\"users\":[{}],\"data\":\"hi\",\"ack\":true}}\n{{\"channels\":[\"room:0\",\"room:1\",\"room:2\"],\"data\":\"ho\",\"ack\":true}}\n",
        users.join(",")
    );
    let answers = lines(world.ask(back_end, input));
    assert_eq!(
        answers,
        [r#"{"result":{"handed":30}}"#, r#"{"result":{"handed":30}}"#]
    );
    for peer in peers {
        let mut got = texts(&world.take(peer));
        got.sort();
        assert_eq!(got, ["hi", "ho"]);
    }
}

#[test]
fn an_error_does_not_repeat_all_of_a_long_line() {
    let mut world = World::new(Options::default());
    let back_end = world.connect(0, PUSH);
    for (line, what) in [
        (
            format!("{{\"user\":\"{}\",\"data\":1}}\n", "\u{1F600}".repeat(1000)),
            "longer than 255 bytes",
        ),
        (
            format!("{{\"channel\":\"{}\",\"data\":1}}\n", "\\u0001".repeat(600)),
            "longer than 255 bytes",
        ),
        (
            format!("{{\"{}\":1}}\n", "x".repeat(4000)),
            "expected one of",
        ),
    ] {
        let answer = String::from_utf8(world.ask(back_end, line)).expect("UTF-8");
        assert!(answer.contains(what) && answer.len() < 1000, "{answer}");
    }
}
