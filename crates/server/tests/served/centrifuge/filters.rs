//! Tests filters by tags on the real server, for live and recovered publications.

use super::*;

const FILTERS: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[namespace]]\nname = \"orders\"\nhistory_size = 1000\nsubscribe = \"client\"\ntags_filter = true\n\
    [[namespace]]\nname = \"news\"\nwildcard = true\nhistory_size = 10\nsubscribe = \"client\"\n\
    tags_filter = true\ndelta = \"fossil\"\ndelta_publish = true\n\
    [[namespace]]\nname = \"plain\"\nsubscribe = \"client\"\n";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: FILTERS,
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// Publishes these numbers. The tags are the number and the side: `sell` for each third number, otherwise `buy`.
fn publish(lines: &mut Lines, channel: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let side = if number.is_multiple_of(3) {
            "sell"
        } else {
            "buy"
        };
        let tags = json!({ "side": side, "n": number.to_string() });
        lines.ask(&json!({ "channel": channel, "data": number, "tags": tags, "ack": true }));
    }
}

#[test]
fn clients_get_what_passes_their_filter() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        let large_sales = json!({ "op": "and", "nodes": [
            { "key": "side", "cmp": "in", "vals": ["sell", "gift"] },
            { "op": "not", "nodes": [{ "key": "n", "cmp": "lt", "val": "6" }] },
        ] });
        for channel in ["orders:1", "orders:2", "orders:3"] {
            let (mut ann, _) = Client::connect(&server, "ann");
            let request = json!({ "channel": channel, "tf": large_sales });
            let joined = ann.ask(json!({ "id": 2, "subscribe": request }));
            let epoch = joined["subscribe"]["epoch"].clone();
            assert_eq!(joined["error"], Value::Null, "{joined}");
            publish(&mut lines, channel, 1..11);
            for number in [6, 9] {
                let publication = ann.publication();
                assert_eq!(
                    (&publication["data"], &publication["offset"]),
                    (&json!(number), &json!(number))
                );
                assert_eq!(publication["tags"]["side"], "sell");
            }
            // The next message is the reply to this ping, so no publication that the filter excludes was delivered.
            assert_eq!(ann.ask(json!({ "id": 3, "ping": {} }))["ping"], json!({}));
            drop(ann);
            publish(&mut lines, channel, 11..17);
            let (mut ann, _) = Client::connect(&server, "ann");
            let back = json!({ "channel": channel, "tf": large_sales, "recover": true,
                "epoch": epoch, "offset": 9 });
            let joined = ann.ask(json!({ "id": 2, "subscribe": back }));
            let joined = &joined["subscribe"];
            assert_eq!(
                (&joined["recovered"], &joined["offset"]),
                (&json!(true), &json!(16))
            );
            let missed = joined["publications"].as_array().expect("some");
            let offsets: Vec<_> = missed.iter().map(|one| one["offset"].as_u64()).collect();
            assert_eq!(offsets, [Some(12), Some(15)]);
            publish(&mut lines, channel, 17..19);
            assert_eq!(ann.publication()["data"], 18);
        }
        let (mut ann, _) = Client::connect(&server, "ann");
        let filter = json!({ "key": "side", "cmp": "ex" });
        for (request, code) in [
            (json!({ "channel": "plain:1", "tf": filter }), 107),
            (json!({ "channel": "orders:1", "tf": { "op": "and" } }), 107),
            (
                json!({ "channel": "orders:1", "tf": filter, "delta": "fossil" }),
                107,
            ),
        ] {
            let answer = ann.ask(json!({ "id": 9, "subscribe": request }));
            assert_eq!(answer["error"]["code"], code, "{answer}");
        }
    });
}

#[test]
fn wildcard_subscribers_can_filter_and_get_no_deltas() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        let (mut ann, _) = Client::connect(&server, "ann");
        let filter = json!({ "op": "or", "nodes": [
            { "key": "channel", "cmp": "ew", "val": ":a" },
            { "key": "side", "cmp": "eq", "val": "sell" },
        ] });
        let request = json!({ "channel": "news:*", "tf": filter });
        let joined = ann.ask(json!({ "id": 2, "subscribe": request }));
        assert_eq!(joined["error"], Value::Null, "{joined}");
        // A wildcard subscription gets no deltas: its previous publication may belong to another channel.
        let (mut bob, _) = Client::connect(&server, "bob");
        let request = json!({ "channel": "news:*", "delta": "fossil" });
        let joined = bob.ask(json!({ "id": 2, "subscribe": request }));
        assert_eq!(joined["subscribe"], json!({}), "{joined}");
        let (mut cyd, _) = Client::connect(&server, "cyd");
        let request = json!({ "channel": "news:b", "delta": "fossil" });
        let joined = cyd.ask(json!({ "id": 2, "subscribe": request }));
        assert_eq!(joined["subscribe"]["delta"], true, "{joined}");
        for (channel, number) in [("news:a", 1), ("news:b", 2), ("news:b", 3), ("news:a", 4)] {
            let tags = json!({ "side": if number == 3 { "sell" } else { "buy" } });
            let data = json!({ "number": number, "what": "the same each time, so that a delta is shorter" });
            lines.ask(&json!({ "channel": channel, "data": data, "tags": tags, "ack": true }));
            assert_eq!(bob.publication()["data"], data);
            if channel == "news:b" {
                assert_eq!(cyd.publication()["delta"] == true, number == 3);
            }
        }
        for number in [1, 3, 4] {
            assert_eq!(ann.publication()["data"]["number"], number);
        }
    });
}
