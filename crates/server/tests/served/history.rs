//! Tests that clients of channels with history recover without gaps after their connection is lost.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::metrics::Metrics;
use crate::support::{
    Lines, Options, Seen, Server, Setup, Socket, USUAL, call, get, on_all, process, until,
};

/// A configuration in which chats store a long history, and personal channels a short one.
const CONFIG: &str = "[[route]]\npath = \"/follow\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
    channels = [\"chat:*\", \"news\"]\npositions = true\n\
    [[namespace]]\nname = \"chat\"\nhistory_size = 10000\n\
    [[namespace]]\nname = \"#\"\nhistory_size = 3\n";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: CONFIG,
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// A client that follows one channel, with the position and the `recovered` flag of its subscription.
pub(crate) struct Follower {
    pub(crate) socket: Socket,
    pub(crate) position: String,
    pub(crate) recovered: Value,
}

impl Follower {
    pub(crate) fn open(server: &Server, user: &str, channel: &str, since: Option<&str>) -> Self {
        Self::try_open(server, user, channel, since).expect("it opens")
    }

    /// Opens a WebSocket that follows a channel; returns `None` if the connection is lost before the subscription.
    pub(crate) fn try_open(
        server: &Server,
        user: &str,
        channel: &str,
        since: Option<&str>,
    ) -> Option<Self> {
        let since = since.map_or_else(String::new, |since| format!("&since={since}"));
        let asked = match channel.starts_with('#') {
            true => String::new(),
            false => format!("&channel={channel}"),
        };
        let target = format!("/follow?user={user}{asked}{since}");
        let mut socket = Socket::try_open(server.public, &target).ok()?;
        // Subscriptions to several channels are reported in any order.
        loop {
            let Seen::Text(text) = socket.next() else {
                return None;
            };
            let joined: Value = serde_json::from_str(&text).expect("JSON");
            if joined["subscribed"] == channel {
                let position = joined["position"].as_str().expect("a position").to_owned();
                return Some(Self {
                    socket,
                    position,
                    recovered: joined["recovered"].clone(),
                });
            }
        }
    }

    pub(crate) fn next(&mut self) -> Value {
        let mut message: Value = serde_json::from_str(&self.socket.text()).expect("JSON");
        if message["subscribed"] != Value::Null {
            return self.next();
        }
        if let Some(position) = message["position"].as_str() {
            self.position = position.to_owned();
        }
        message["data"].take()
    }
}

#[test]
fn a_reconnecting_client_misses_nothing() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        for channel in ["chat:1", "chat:2", "chat:3"] {
            let mut ann = Follower::open(&server, "ann", channel, None);
            assert_eq!(ann.recovered, Value::Null);
            let mut publish = |data: &Value| {
                let line = json!({ "channel": channel, "data": data, "ack": true });
                lines.ask(&line)["result"].take()
            };
            let first = publish(&json!({ "n": 1 }));
            assert_eq!((&first["handed"], &first["offset"]), (&json!(1), &json!(1)));
            assert_eq!(ann.next(), json!({ "n": 1 }));
            let since = ann.position.clone();
            assert_eq!(
                since,
                format!("{}:1", first["epoch"].as_str().expect("an epoch"))
            );
            drop(ann);
            publish(&json!("two"));
            publish(&json!([3]));
            let mut ann = Follower::open(&server, "ann", channel, Some(&since));
            assert_eq!(ann.recovered, true);
            assert_eq!(ann.next(), "two");
            assert_eq!(ann.next(), json!([3]));
            publish(&json!(4));
            assert_eq!(ann.next(), 4);
        }
        let metrics = Metrics::scrape(server.internal);
        let recovered = metrics.sum("veche_recoveries_total", &["outcome=\"recovered\""]);
        assert_eq!(recovered, 3.0);
        assert_eq!(metrics.sum("veche_history_channels", &[]), 4.0);
    });
}

#[test]
fn personal_channels_recover_and_report_incomplete_recovery() {
    let server = start(USUAL);
    let channel = "#ann";
    let push = |number: u32| {
        let body = json!({ "user": "ann", "data": number });
        call(server.internal, "push", &body)
    };
    let ann = Follower::open(&server, "ann", channel, None);
    let since = ann.position.clone();
    drop(ann);
    for number in 1..=3 {
        push(number);
    }
    let mut ann = Follower::open(&server, "ann", channel, Some(&since));
    assert_eq!(ann.recovered, true);
    assert_eq!([ann.next(), ann.next(), ann.next()], [1, 2, 3]);
    drop(ann);
    push(4);
    let ann = Follower::open(&server, "ann", channel, Some(&since));
    assert_eq!(ann.recovered, false);
    // The position is older than the history, but the publications in the history can be read.
    let body = json!({ "channel": channel, "limit": -1 });
    let page = call(server.internal, "history", &body);
    let page = &page["result"]["publications"];
    let data: Vec<&Value> = page
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["data"])
        .collect();
    assert_eq!(data, [2, 3, 4]);
}

/// Three back ends publish without a pause while clients reconnect: each client receives everything once and in order.
#[test]
fn nothing_is_lost_between_history_and_what_comes_live() {
    const PUBLICATIONS: u32 = 3_000;
    on_all(|setup| {
        let server = start(setup);
        let is_over = AtomicBool::new(false);
        let starts: Vec<String> = (0..3)
            .map(|n| Follower::open(&server, "x", &format!("chat:{n}"), None).position)
            .collect();
        thread::scope(|scope| {
            for n in 0..3 {
                let (server, is_over, start) = (&server, &is_over, &starts[n as usize]);
                let channel = format!("chat:{n}");
                let own = channel.clone();
                scope.spawn(move || {
                    let mut lines = Lines::connect(server.push);
                    for number in 1..=PUBLICATIONS {
                        lines.send(&json!({ "channel": own, "data": number }));
                    }
                    let last = lines.ask(&json!({ "channel": own, "data": 0, "ack": true }));
                    assert_eq!(last["result"]["offset"], PUBLICATIONS + 1);
                    is_over.store(true, Relaxed);
                });
                scope.spawn(move || {
                    let mut since = start.clone();
                    let (mut expected, mut times) = (1, 0);
                    'all: loop {
                        let mut client = Follower::open(server, "ann", &channel, Some(&since));
                        // The client may have missed more publications than one recovery sends. They are read from
                        // the history instead.
                        if client.recovered == false {
                            expected = catch_up(server, &channel, &since, expected);
                            if expected == 0 {
                                break;
                            }
                            let offset = expected - 1;
                            let (epoch, _) = since.split_once(':').expect("a position");
                            since = format!("{epoch}:{offset}");
                            continue;
                        }
                        times += 1;
                        assert_eq!(client.position, since, "nothing of it has come yet");
                        for _ in 0..50 + times % 100 {
                            let data = client.next();
                            if data == 0 {
                                break 'all;
                            }
                            assert_eq!(data, expected, "{channel}");
                            expected += 1;
                        }
                        since.clone_from(&client.position);
                        if is_over.load(Relaxed) && expected > PUBLICATIONS + 1 {
                            break;
                        }
                    }
                    assert!(expected == 0 || expected == PUBLICATIONS + 1);
                });
            }
        });
    });
}

/// Reads the history after a position. Returns the next expected number, or 0 if the final publication was read.
fn catch_up(server: &Server, channel: &str, since: &str, mut expected: u32) -> u32 {
    let (epoch, offset) = since.split_once(':').expect("a position");
    let offset: u64 = offset.parse().expect("a number");
    let place = json!({ "offset": offset, "epoch": epoch });
    let body = json!({ "channel": channel, "limit": -1, "since": place });
    let page = call(server.internal, "history", &body);
    for publication in page["result"]["publications"].as_array().expect("a list") {
        if publication["data"] == 0 {
            return 0;
        }
        assert_eq!(publication["data"], expected);
        expected += 1;
    }
    expected
}

#[test]
fn a_server_that_was_killed_says_that_it_has_forgotten() {
    let server = start(USUAL);
    let ann = Follower::open(&server, "ann", "chat:1", None);
    let since = ann.position.clone();
    drop(ann);
    let old = server.pid();
    process::kill(old, Signal::KILL);
    until("another server process", || {
        server.try_pid().is_some_and(|pid| pid != old)
            && server
                .status()
                .is_some_and(|status| status["state"] == "ready")
    });
    let ann = Follower::open(&server, "ann", "chat:1", Some(&since));
    assert_eq!(ann.recovered, false);
    assert_ne!(ann.position, since);
}

#[test]
fn namespaces_are_reloaded() {
    let server = start(USUAL);
    call(
        server.internal,
        "publish",
        &json!({ "channel": "chat:1", "data": 1 }),
    );
    let history = || {
        let body = json!({ "channel": "chat:1", "limit": -1 });
        call(server.internal, "history", &body)
    };
    assert_eq!(history()["result"]["offset"], 1);
    server.configure(&Options::default());
    server.ask("reload").expect("in force");
    until("nothing to be remembered", || {
        history()["error"]["code"] == 108
    });
    let answer = call(
        server.internal,
        "publish",
        &json!({ "channel": "chat:1", "data": 2 }),
    );
    assert_eq!(answer, json!({ "result": { "handed": 0 } }));
}

const HISTORIAN: &str = r#"
local veche = require "veche"
local app = {}

function app.request(req)
  local what, channel = req.query.what, req.query.channel
  if what == "history" then
    local options = { since = req.query.since, limit = tonumber(req.query.limit), reverse = req.query.reverse == "1" }
    local ok, page, position = pcall(veche.history, channel, options)
    if not ok then return 400, {}, (page:gsub("^.-: ", "")) end
    local list = {}
    for _, one in ipairs(page) do
      list[#list + 1] = one.data .. "@" .. one.position:match(":(%d+)$") .. (one.tags and one.tags.lang or "")
    end
    return table.concat(list, " ") .. " | " .. position:match(":(%d+)$")
  end
  if what == "status" then
    local status = veche.user_status(channel)
    return status.connections .. " " .. tostring(status.last_seen ~= nil)
  end
  local ok, found = pcall(veche[what], channel)
  if not ok then return 400, {}, (found:gsub("^.-: ", "")) end
  return what == "presence" and tostring(#found) or found.clients .. " " .. found.users
end

return app
"#;

#[test]
fn applications_read_history_and_presence() {
    let routes =
        format!("{CONFIG}[[route]]\npath = \"/read\"\nhandler = \"lua\"\nscript = \"read.lua\"\n");
    on_all(|setup| {
        let options = Options {
            routes: &routes,
            files: &[("read.lua", HISTORIAN)],
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let mut lines = Lines::connect(server.push);
        let mut epoch = String::new();
        for number in 1..=5 {
            let line = json!({ "channel": "chat:1", "data": number, "tags": { "lang": "en" }, "ack": true });
            let answer = lines.ask(&line);
            epoch = answer["result"]["epoch"]
                .as_str()
                .expect("an epoch")
                .to_owned();
        }
        let ask = |query: &str| {
            let answer = get(server.public, &format!("/read?{query}"));
            (answer.status, answer.text().to_owned())
        };
        // Each request is on a new connection, so that the requests reach different workers.
        for _ in 0..4 {
            let all = "1@1en 2@2en 3@3en 4@4en 5@5en | 5".to_owned();
            assert_eq!(ask("what=history&channel=chat:1"), (200, all));
            let some = format!("what=history&channel=chat:1&since={epoch}:2&limit=2");
            assert_eq!(ask(&some), (200, "3@3en 4@4en | 5".to_owned()));
            let last = (200, "5@5en | 5".to_owned());
            assert_eq!(ask("what=history&channel=chat:1&limit=1&reverse=1"), last);
        }
        let foreign = ask("what=history&channel=chat:1&since=00000000:2");
        assert_eq!(
            foreign,
            (
                400,
                "the position does not belong to the channel's current stream [refused]".to_owned()
            )
        );
        assert_eq!(
            ask("what=history&channel=other"),
            (400, "the channel has no history [refused]".to_owned())
        );
        assert_eq!(
            ask("what=presence&channel=chat:1"),
            (400, "the channel has no presence [refused]".to_owned())
        );
        assert_eq!(ask("what=status&channel=ann"), (200, "0 false".to_owned()));
        let ann = Socket::open(server.public, "/follow?user=ann");
        assert_eq!(ask("what=status&channel=ann"), (200, "1 false".to_owned()));
        drop(ann);
        until("her to have gone", || {
            ask("what=status&channel=ann") == (200, "0 true".to_owned())
        });
    });
}
