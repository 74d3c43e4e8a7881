//! A push listener's connection: lines in, acks and errors out.

use crate::world::wire::{Said, said, texts};
use crate::world::{Options, PUSH, World};

/// One error line; the number of its line and a piece of what it says.
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
            assert_eq!(world.take(back_end), b"", "nobody asked");
            assert!(world.is_closed(back_end));
            // Each target has an order of its own; on one worker that is the order of the lines.
            let mut got = said(&world.take(ann));
            let mut expected = vec![
                Said::Text("one".into()),
                Said::Text("two".into()),
                Said::Text("{\"n\":3}".into()),
                Said::Binary(vec![0, 1, 2]),
                Said::Text("ä\n".into()),
                Said::Text("ä\n".into()),
                Said::Text("last".into()),
            ];
            if workers > 1 {
                got.sort_by_key(|said| format!("{said:?}"));
                expected.sort_by_key(|said| format!("{said:?}"));
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
    assert_eq!(answers[0], r#"{"result":{"handed":0}}"#);
    assert_eq!(answers[1], r#"{"result":{"handed":2}}"#);
    assert_error(&answers[2], 3, "expected a JSON object");
    assert_eq!(answers[3], r#"{"id":"x","result":{"handed":3}}"#);
    assert_eq!(answers[4], r#"{"id":7,"result":{"handed":1}}"#);
}

#[test]
fn a_bad_line_gets_one_error_and_the_connection_stays() {
    let table: &[(&str, &str)] = &[
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

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let mut world = World::new(Options::default());
    let back_end = world.connect(0, PUSH);
    let mut exact = format!(
        "{{\"user\":\"ann\",\"ack\":true,\"data\":\"{}",
        "x".repeat(4000)
    );
    exact.extend(std::iter::repeat_n('x', 4094 - exact.len()));
    exact.push_str("\"}\r\n");
    assert_eq!(exact.len(), 4098);
    assert_eq!(
        lines(world.ask(back_end, &exact)),
        [r#"{"result":{"handed":0}}"#]
    );
    let good = "{\"user\":\"ann\",\"data\":1,\"ack\":true}\n";
    for step in [usize::MAX, 1, 100] {
        let back_end = world.connect(0, PUSH);
        let input = [
            "x".repeat(4097).as_str(),
            "\n",
            good,
            "y".repeat(20_000).as_str(),
            "\n\n",
            good,
            "z",
        ]
        .concat();
        world.send_split(back_end, input.as_bytes(), |_| step);
        world.settle();
        let answers = lines(world.take(back_end));
        assert_error(&answers[0], 1, "longer than 4096 bytes");
        assert_error(&answers[2], 3, "longer than 4096 bytes");
        assert_eq!(
            (&answers[1], &answers[3], answers.len()),
            (&answers[3], &answers[1], 4)
        );
        assert!(world.is_open(back_end));
        world.finish(back_end);
        world.settle();
        assert_error(&lines(world.take(back_end))[0], 6, "expected a JSON object");
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
                .map(|n| format!("{{\"id\":{n},\"result\":{{\"handed\":0}}}}"))
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
    assert_eq!(
        world.blocked(back_end),
        Some(veche_frontends::Block::Answer)
    );
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
