//! Clients of Lua routes that get positions and recover from them.

use serde_json::{Value, json};

use crate::support::{Options, Server, Setup, Socket, call, on_all};

const ROUTES: &str = "
[[route]]
path = \"/told\"
handler = \"lua\"
script = \"app.lua\"
positions = true

[[route]]
path = \"/plain\"
handler = \"lua\"
script = \"app.lua\"

[[namespace]]
name = \"kept\"
history_size = 10
";

const APP: &str = r#"
local veche = require "veche"
local app = {}

function app.open(conn)
  local query = conn.query
  local since = query.since
  if query.offset then since = { offset = tonumber(query.offset), epoch = query.epoch } end
  local ok, at = pcall(conn.subscribe, conn, query.channel or "kept:1", { since = since })
  conn:send(veche.json.encode { ok = ok, at = at })
end

function app.message(conn, data)
  local ok, why = pcall(conn.subscribe, conn, "kept:2", veche.json.decode(data))
  conn:send(tostring(why))
end

return app
"#;

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: ROUTES,
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

fn next(socket: &mut Socket) -> Value {
    serde_json::from_str(&socket.text()).expect("JSON")
}

fn publish(server: &Server, data: &str) -> u64 {
    let body = json!({ "channel": "kept:1", "data": data });
    let answer = call(server.internal, "publish", &body);
    answer["result"]["offset"].as_u64().expect("an offset")
}

#[test]
fn clients_resume_from_their_position() {
    on_all(|setup| {
        let server = start(setup);
        let mut ann = Socket::open(server.public, "/told");
        let joined = next(&mut ann);
        assert_eq!(joined["subscribed"], "kept:1");
        let position = joined["position"].as_str().expect("a position");
        let (epoch, offset) = position.split_once(':').expect("both");
        let at = json!({ "position": position, "epoch": epoch, "offset": 0 });
        assert_eq!(offset, "0");
        assert_eq!(next(&mut ann), json!({ "ok": true, "at": at }));
        let object = |offset: u64, data: &str| {
            let position = format!("{epoch}:{offset}");
            json!({ "channel": "kept:1", "position": position, "data": data })
        };
        for (offset, data) in [(1, "one"), (2, "two")] {
            assert_eq!(publish(&server, data), offset);
            assert_eq!(next(&mut ann), object(offset, data));
        }
        ann.leave();
        publish(&server, "three");
        let back = [
            format!("/told?since={epoch}:2"),
            format!("/told?offset=2&epoch={epoch}"),
        ];
        for target in back {
            let mut ann = Socket::open(server.public, &target);
            let joined = json!({
                "subscribed": "kept:1", "position": format!("{epoch}:2"), "recovered": true,
            });
            assert_eq!(next(&mut ann), joined, "{target}");
            assert_eq!(next(&mut ann), object(3, "three"));
            let received = next(&mut ann);
            assert_eq!(received["at"]["recovered"], true, "{received}");
            assert_eq!(received["at"]["offset"], 3, "{received}");
        }
        let mut bob = Socket::open(server.public, "/told?offset=2&epoch=foreign");
        assert_eq!(next(&mut bob)["recovered"], false);
        assert_eq!(next(&mut bob)["at"]["recovered"], false);
        // On a channel without history the client gets no position.
        let mut eve = Socket::open(server.public, "/told?channel=news&offset=2&epoch=foreign");
        assert_eq!(
            next(&mut eve),
            json!({ "subscribed": "news", "recovered": false })
        );
        assert_eq!(
            next(&mut eve),
            json!({ "ok": true, "at": { "recovered": false } })
        );
    });
}

/// Publications are neither missing nor duplicated, wherever a client lost its connection.
#[test]
fn recovery_and_live_publications_leave_no_gap() {
    on_all(|setup| {
        let server = start(setup);
        let mut since = String::new();
        let mut expected = 1;
        for round in 0..30 {
            let target = format!("/told?since={since}");
            let target = if round == 0 { "/told" } else { &target };
            let mut ann = Socket::open(server.public, target);
            if round == 0 {
                // Publications before the subscription are not delivered.
                assert_eq!(next(&mut ann)["subscribed"], "kept:1");
            }
            let offset = publish(&server, "x");
            while expected <= offset {
                let received = next(&mut ann);
                if let Some(position) = received["position"].as_str() {
                    since = position.to_owned();
                }
                if received["channel"] == "kept:1" {
                    let (_, offset) = since.split_once(':').expect("both");
                    assert_eq!(offset, expected.to_string(), "{round}");
                    expected += 1;
                }
            }
            ann.leave();
            publish(&server, "missed");
        }
    });
}

#[test]
fn invalid_arguments_are_errors() {
    on_all(|setup| {
        let server = start(setup);
        let mut plain = Socket::open(server.public, "/plain");
        let received = next(&mut plain);
        assert_eq!(received["at"]["offset"], 0, "{received}");
        for (options, expected) in [
            (
                r#"{"since":{"offset":1}}"#,
                "sends no positions to its clients",
            ),
            (r#"{"sinse":1}"#, "there is no option 'sinse'"),
            (
                r#"{"since":{"offset":-1}}"#,
                "offset: a whole number expected",
            ),
            (r#"{"since":"nowhere"}"#, "bad option since"),
            (r#""kept""#, "a table of options expected"),
        ] {
            plain.say(options);
            let received = plain.text();
            assert!(received.contains(expected), "{options}: {received}");
        }
    });
}
