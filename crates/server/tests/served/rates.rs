//! Tests client rate limits: excess messages wait, are dropped or close the connection, and other clients are
//! unaffected.

use serde_json::json;

use crate::support::metrics::Metrics;
use crate::support::{Options, Seen, Server, Setup, Socket, call, on_all, until};

const APP: &str = r#"
local veche = require "veche"
local app, closed = {}, veche.dict("closed")
function app.message(conn, data)
  if data == "wait" then veche.sleep(0.2) end
  conn:send(data)
  if data == "bye" then conn:close(4000, "bye") end
end
function app.close(_, code) closed:set("code", code) end
function app.request() return { code = closed:get("code") } end
return app
"#;

/// Starts a server with an echo in Rust and an echo in Lua, both with these rates.
fn serve(setup: Setup, rates: &str) -> Server {
    let routes = format!(
        "[[route]]\npath = \"/paced\"\nhandler = \"echo\"\n{rates}\n\
         [[route]]\npath = \"/lua\"\nhandler = \"lua\"\nscript = \"app.lua\"\n{rates}\n"
    );
    let options = Options {
        routes: &routes,
        files: &[("app.lua", APP)],
        limits: "ping_interval = \"1s\"",
        ..Options::default()
    };
    Server::with(setup, &options)
}

const PATHS: [&str; 2] = ["/paced", "/lua"];

fn counted(server: &Server, name: &str) -> f64 {
    Metrics::scrape(server.internal).sum(name, &[])
}

#[test]
fn what_waits_comes_whole_and_in_order() {
    on_all(|setup| {
        let server = serve(setup, "message_rate = \"50/s\"");
        for path in PATHS {
            let mut socket = Socket::open(server.public, path);
            let mut neighbour = Socket::open(server.public, "/echo");
            (0..80).for_each(|number| socket.say(&number.to_string()));
            assert!(neighbour.is_alive());
            for number in 0..80 {
                assert_eq!(socket.text(), number.to_string(), "{path}");
            }
            socket.leave();
        }
        assert!(counted(&server, "veche_paced_total") >= 2.0);
        assert_eq!(counted(&server, "veche_messages_dropped_total"), 0.0);
    });
}

#[test]
fn a_throttled_client_can_leave_or_be_disconnected() {
    on_all(|setup| {
        let server = serve(setup, "message_rate = \"1/h\"");
        for path in PATHS {
            let mut socket = Socket::open(server.public, path);
            socket.say("one");
            socket.say("two");
            assert_eq!(socket.text(), "one");
            assert_eq!(socket.text(), "two");
            // At this rate the server would read this message only after an hour.
            socket.say("three");
            drop(socket);
        }
        // The server's pings detect that the clients have gone, although nothing is read from them.
        server.await_connections(0);
        let mut stays = Socket::open(server.public, "/paced");
        (0..3).for_each(|_| stays.say("x"));
        let seen = [stays.next(), stays.next()];
        assert_eq!(seen, [Seen::Text("x".into()), Seen::Text("x".into())]);
        assert!(server.ask("stop").is_some());
        assert!(matches!(stays.next(), Seen::Close(Some(1001), _)));
    });
}

#[test]
fn dropped_messages_are_counted() {
    on_all(|setup| {
        let server = serve(setup, "message_rate = \"5/h\"\nover_rate = \"drop\"");
        for (round, path) in PATHS.into_iter().enumerate() {
            let mut socket = Socket::open(server.public, path);
            (0..50).for_each(|number| socket.say(&number.to_string()));
            for number in 0..5 {
                assert_eq!(socket.text(), number.to_string(), "{path}");
            }
            socket.leave();
            let dropped = 45.0 * (round + 1) as f64;
            assert_eq!(counted(&server, "veche_messages_dropped_total"), dropped);
        }
    });
}

#[test]
fn a_client_over_the_rate_is_closed_and_the_application_notified() {
    on_all(|setup| {
        let server = serve(setup, "byte_rate = \"1KiB/h\"\nover_rate = \"close\"");
        for path in PATHS {
            let mut socket = Socket::open(server.public, path);
            // A message with more bytes than the hourly amount is accepted once. Otherwise it could never be sent.
            let long = "x".repeat(4_000);
            socket.say(&long);
            assert_eq!(socket.text(), long);
            socket.say("x");
            socket.say("y");
            match socket.next() {
                Seen::Close(code, reason) => {
                    assert_eq!((code, &*reason), (Some(1008), "rate limit exceeded"));
                }
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(counted(&server, "veche_outpaced_total"), 2.0);
        until("the application to hear of it", || {
            crate::support::get(server.public, "/lua").json()["code"] == 1008
        });
        server.await_connections(0);
    });
}

#[test]
fn what_came_in_time_is_handled_while_the_next_waits() {
    on_all(|setup| {
        let server = serve(setup, "message_rate = \"4/h\"");
        let mut socket = Socket::open(server.public, "/lua");
        ["wait", "1", "2", "3", "4", "5"]
            .iter()
            .for_each(|text| socket.say(text));
        for text in ["wait", "1", "2", "3"] {
            assert_eq!(socket.text(), text);
        }
    });
}

#[test]
fn a_close_is_not_held_up_by_the_rate() {
    on_all(|setup| {
        let server = serve(setup, "message_rate = \"1/h\"");
        let mut socket = Socket::open(server.public, "/lua");
        socket.say("bye");
        assert_eq!(socket.text(), "bye");
        assert_eq!(socket.next(), Seen::Close(Some(4000), "bye".into()));
        (0..50).for_each(|_| socket.say("more"));
        socket.close(4000);
        server.await_connections(0);
        assert_eq!(counted(&server, "veche_paced_total"), 0.0);
    });
}

#[test]
fn pongs_that_were_asked_for_cost_nothing() {
    on_all(|setup| {
        let server = serve(setup, "message_rate = \"1/h\"\nover_rate = \"close\"");
        let mut socket = Socket::open(server.public, "/paced");
        // In these 4.5 seconds the client answers four pings of the server.
        assert_eq!(
            socket.within(std::time::Duration::from_millis(4_500)),
            Seen::Nothing
        );
        assert!(counted(&server, "veche_outpaced_total") == 0.0);
        socket.say("still here");
        assert_eq!(socket.text(), "still here");
    });
}

/// Returns the number of publications that a channel has had, from the offset of its history.
fn published(server: &Server, channel: &str) -> u64 {
    let place = json!({ "channel": channel });
    let answer = call(server.internal, "history", &place);
    answer["result"]["offset"].as_u64().expect("an offset")
}

/// Returns commands that publish, as lines of one message.
fn publications(count: u32, channel: &str) -> String {
    let all = (0..count).map(|number| {
        let request = json!({ "channel": channel, "data": number });
        json!({ "id": number + 2, "publish": request }).to_string()
    });
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_command_of_a_message_counts() {
    on_all(|setup| {
        let routes: String = ["delay", "drop", "close"]
            .map(|over| {
                format!(
                    "[[route]]\npath = \"/{over}/*\"\nhandler = \"centrifuge\"\n\
                     message_rate = \"4/h\"\nover_rate = \"{over}\"\n"
                )
            })
            .concat();
        let namespace = "[[namespace]]\nname = \"open\"\nhistory_size = 2000\n\
            subscribe = \"client\"\npublish = \"client\"\n";
        let options = Options {
            routes: &(routes + namespace),
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        for over in ["delay", "drop", "close"] {
            let channel = format!("open:{over}");
            let mut socket = Socket::open(server.public, &format!("/{over}/websocket"));
            socket.say("{\"id\":1,\"connect\":{}}");
            assert!(socket.text().contains("\"connect\""));
            socket.say(&publications(1_000, &channel));
            // Three more commands are within the rate. With `delay`, the server reads and answers one command beyond the
            // rate before it pauses.
            let in_time = if over == "delay" { 4 } else { 3 };
            let mut replies = 0;
            while replies < in_time {
                replies += socket.text().lines().count();
            }
            assert_eq!(replies, in_time, "{over}");
            match (over, socket.within(std::time::Duration::from_millis(300))) {
                ("close", Seen::Close(Some(3013), _)) | ("delay" | "drop", Seen::Nothing) => {}
                (_, seen) => panic!("{over}: {seen:?}"),
            }
            assert_eq!(published(&server, &channel), in_time as u64, "{over}");
        }
        assert_eq!(counted(&server, "veche_messages_dropped_total"), 997.0);
        assert_eq!(counted(&server, "veche_outpaced_total"), 1.0);
    });
}
