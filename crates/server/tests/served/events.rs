//! `[events]` on the real server: a back end receives events in order, including those that happened during an outage.

use std::sync::atomic::{AtomicBool, Ordering};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::asked::{Asked, answer};
use crate::support::metrics::Metrics;
use crate::support::{Server, Setup, Socket, call, get, on_all, until};

const SECRET: &str = "a secret that both sides know";

fn start(setup: Setup, back_end: &Asked, more: &str) -> Server {
    let routes = format!(
        "[[route]]\npath = \"/hear\"\nhandler = \"push\"\nidentity = \"query:user\"\nchannels = [\"*\"]\n\
         [[namespace]]\nname = \"#\"\nevents = \"occupancy\"\nleave_delay = \"1s\"\n\
         [[namespace]]\nname = \"room\"\nevents = \"members\"\nleave_delay = \"off\"\n\
         [[namespace]]\nname = \"price\"\nevents = \"occupancy\"\nleave_delay = \"off\"\nhistory_size = 1\n\
         recovery = \"latest\"\n\
         [events]\nurl = \"http://{}/events\"\nsecrets = [\"{SECRET}\"]\n{more}\n",
        back_end.address
    );
    Server::serving(setup, &routes, &[])
}

/// Returns the bodies of the requests so far; asserts that each is signed.
fn deliveries(back_end: &Asked) -> Vec<Value> {
    let heads = back_end.heads();
    let body = |request: &String| {
        let (head, body) = request.split_once("\r\n\r\n").expect("a whole request");
        assert!(head.starts_with("POST /events HTTP/1.1\r\n"), "{head}");
        let small = head.to_ascii_lowercase();
        let (_, rest) = small
            .split_once("veche-signature: t=")
            .expect("a signature");
        let line = rest.split('\r').next().expect("a line");
        let (seconds, mac) = line.split_once(",v1=").expect("a signature");
        let mut expected = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
        expected.update(format!("{seconds}.{body}").as_bytes());
        let expected = expected.finalize().into_bytes();
        let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(mac, expected);
        serde_json::from_str(body).expect("JSON")
    };
    heads.iter().map(body).collect()
}

/// Returns the events of accepted deliveries, without repetitions.
fn event_lines(deliveries: &[Value]) -> Vec<String> {
    let mut known = Vec::new();
    let mut events = Vec::new();
    for delivery in deliveries {
        if known.contains(&&delivery["id"]) {
            continue;
        }
        known.push(&delivery["id"]);
        for event in delivery["events"].as_array().expect("events") {
            assert!(event["time"].as_u64() > Some(1_600_000_000_000));
            let about = event["channel"].as_str().or(event["user"].as_str());
            let kind = event["type"].as_str().expect("a type");
            events.push(format!("{kind} {}", about.expect("a channel or a user")));
        }
    }
    events
}

#[test]
fn a_back_end_receives_joins_and_leaves() {
    on_all(|setup| {
        let back_end = Asked::new(|_| answer(204, "", ""));
        let server = start(setup, &back_end, "");
        let count = |what: &str| {
            let events = event_lines(&deliveries(&back_end));
            events.iter().filter(|one| *one == what).count()
        };
        // The start is reported although there is no event yet: after a server was killed, the back end must discard
        // what it knows of that server's users and channels.
        until("the start to be reported", || back_end.count() == 1);
        let first = &deliveries(&back_end)[0];
        assert_eq!(
            (&first["started"], &first["events"]),
            (&json!(true), &json!([]))
        );
        let ann = Socket::open(
            server.public,
            "/hear?user=ann&channel=room:1&channel=price:1",
        );
        for what in [
            "online ann",
            "occupied room:1",
            "occupied price:1",
            "empty price:1",
        ] {
            until(what, || count(what) == 1);
        }
        // Ann's page is reloaded. There is no event about her, but the room was empty for a moment.
        drop(ann);
        until("the room to be empty", || count("vacated room:1") == 1);
        let ann = Socket::open(server.public, "/hear?user=ann&channel=room:1");
        until("the room to be occupied", || count("occupied room:1") == 2);
        drop(ann);
        until("her to have gone", || count("offline ann") == 1);
        assert_eq!(count("online ann"), 1);
        assert_eq!(count("empty price:1"), 1);
        let started = deliveries(&back_end);
        let started = started.iter().filter(|one| one["started"] == true);
        assert_eq!(started.count(), 1);
    });
}

#[test]
fn what_the_back_end_does_not_take_comes_again_and_in_order() {
    on_all(|setup| {
        let back_end = Asked::new(|_| answer(503, "", ""));
        let server = start(setup, &back_end, "queue = 100");
        let sockets: Vec<_> = (0..3)
            .map(|number| {
                let socket = Socket::open(server.public, &format!("/hear?user=u{number}"));
                until("it to be tried", || back_end.count() > 0);
                socket
            })
            .collect();
        until("it to be tried again", || back_end.count() > 1);
        let first = deliveries(&back_end);
        assert!(
            first.iter().all(|one| one["id"] == first[0]["id"]),
            "{first:?}"
        );
        back_end.set_answer(|_| answer(200, "", "thanks"));
        let waiting = || Metrics::scrape(server.internal).sum("veche_events_waiting", &[]);
        let sent = || Metrics::scrape(server.internal).sum("veche_events_sent_total", &[]);
        until("all to be taken", || {
            sent() as u64 == 3 && waiting() as u64 == 0
        });
        let expected = ["online u0", "online u1", "online u2"];
        assert_eq!(event_lines(&deliveries(&back_end)), expected);
        let failures = Metrics::scrape(server.internal).sum("veche_events_failures_total", &[]);
        assert!(failures >= 2.0);

        // A rejected batch is not retried. Events that don't fit the queue are counted.
        back_end.set_answer(|_| answer(400, "", ""));
        drop(sockets);
        let refused = || Metrics::scrape(server.internal).sum("veche_events_refused_total", &[]);
        until("their ends to be refused", || refused() as u64 == 3);
        back_end.set_answer(|_| answer(500, "", ""));
        let _all: Vec<_> = (0..150)
            .map(|number| Socket::open(server.public, &format!("/hear?user=v{number}")))
            .collect();
        let lost = || Metrics::scrape(server.internal).sum("veche_events_lost_total", &[]);
        until("some to be lost", || lost() > 0.0);
        // The rejected batch reports lost events. A later batch reports them again, and reports the
        // events of the rejected batch as lost too.
        let is_rejected = AtomicBool::new(false);
        back_end.set_answer(move |_| match is_rejected.swap(true, Ordering::Relaxed) {
            false => answer(400, "", ""),
            true => answer(204, "", ""),
        });
        until("the rest to be taken", || {
            let all = sent() + refused() + lost();
            all as u64 == 3 + 3 + 150 && waiting() as u64 == 0
        });
        let deliveries = deliveries(&back_end);
        let last = deliveries.iter().rfind(|one| one["lost"].is_u64());
        let last = last.expect("a report of lost events");
        assert_eq!(last["lost"].as_u64(), Some((lost() + refused()) as u64));
        // Lost and rejected events do not affect the rest of the server.
        let answer = call(server.internal, "push", &json!({ "user": "v1", "data": 1 }));
        assert_eq!(answer["result"]["handed"], 1);
    });
}

#[test]
fn an_application_receives_the_same_batches() {
    const APP: &str = "local veche = require 'veche'
        local app, told = {}, veche.dict('told')
        local is_busy = false
        function app.events(events, lost)
          assert(not is_busy and lost == 0 and #events > 0)
          is_busy = true
          for _, event in ipairs(events) do
            assert(event.at > 1600000000)
            local about = event.type .. ' ' .. (event.channel or event.user)
            if event.type == 'joined' then about = about .. ' ' .. event.user .. ' ' .. #event.client end
            told:incr(about, 1, 0)
            veche.sleep(0.01)
          end
          is_busy = false
          if told:get('vacated room:bad') then error 'enough' end
        end
        function app.request(req) return tostring(told:get(req.query.what) or 0) end
        return app";
    let routes = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
        [[route]]\npath = \"/told\"\nhandler = \"lua\"\napp = \"hears\"\n\
        [[app]]\nname = \"hears\"\nscript = \"app.lua\"\n\
        [[namespace]]\nname = \"#\"\nevents = \"occupancy\"\nleave_delay = \"1s\"\n\
        [[namespace]]\nname = \"room\"\nsubscribe = \"client\"\npresence = true\nevents = \"members\"\nleave_delay = \"off\"\n\
        [[namespace]]\nname = \"price\"\nsubscribe = \"client\"\nevents = \"occupancy\"\nhistory_size = 1\nrecovery = \"latest\"\n\
        [events]\napp = \"hears\"\n";
    on_all(|setup| {
        let server = Server::serving(setup, routes, &[("app.lua", APP)]);
        let count = |what: &str| {
            let what = what.replace(' ', "%20").replace('#', "%23");
            get(server.public, &format!("/told?what={what}"))
                .text()
                .to_owned()
        };
        let connect = |channels: &[&str]| {
            let mut socket = Socket::open(server.public, "/c?user=ann");
            let connect = std::iter::once(json!({"id": 1, "connect": {}}));
            let channels = channels
                .iter()
                .map(|channel| json!({"id": 2, "subscribe": {"channel": channel}}));
            for command in connect.chain(channels) {
                socket.say(&command.to_string());
                socket.text();
            }
            socket
        };
        let ann = connect(&["room:1", "price:1"]);
        for what in [
            "online ann",
            "occupied room:1",
            "joined room:1 ann 36",
            "empty price:1",
        ] {
            until(what, || count(what) == "1");
        }
        // A user who returns soon stays online, although the room was empty in the meantime.
        drop(ann);
        until("the room to be empty", || count("vacated room:1") == "1");
        let ann = connect(&["room:1"]);
        until("her to be back", || count("occupied room:1") == "2");
        drop(ann);
        until("her to have gone", || count("offline ann") == "1");
        assert_eq!(count("online ann"), "1");
        assert_eq!(count("left room:1"), "2");
        // A handler that fails loses only the batch of events that it was called for.
        drop(connect(&["room:bad"]));
        until("it to fail", || server.log().contains("enough"));
        drop(connect(&["room:2"]));
        until("it to go on", || count("vacated room:2") == "1");
    });
}
