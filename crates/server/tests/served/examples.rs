//! Tests the examples in their folders: each does what its README says.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::peer::{self, Peer};
use crate::support::{Http, Lines, Seen, Server, Setup, Socket, USUAL, get, on_all, setups, until};

fn example(setup: Setup, name: &str) -> Server {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    Server::copy_of(setup, &folder.join(name))
}

fn page(server: &Server, title: &str) {
    let page = get(server.public, "/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains(title), "{}", page.head);
}

#[test]
fn echo() {
    on_all(|setup| {
        let server = example(setup, "echo");
        page(&server, "<title>Echo</title>");
        let mut socket = Socket::open(server.public, "/echo");
        for text in ["hello", "", "вече 🔔"] {
            socket.say(text);
            assert_eq!(socket.text(), text);
        }
        socket.leave();
    });
}

/// Runs the projects that `veche new` creates, and their back ends in the languages that are
/// installed.
#[test]
fn templates_with_back_ends() {
    for (template, program, to, handed) in [
        ("push", "push", "tester01", 1),
        ("centrifuge", "publish", "chat:lobby", 0),
    ] {
        let name = format!("veche-made-{template}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        let made = Command::new(env!("CARGO_BIN_EXE_veche"))
            .args(["new", "--template", template])
            .arg(&folder)
            .output()
            .expect("it runs");
        assert!(made.status.success(), "{made:?}");
        let server = Server::copy_of(USUAL, &folder);
        page(&server, "Connecting…");
        let mut tester = (template == "push")
            .then(|| Socket::open(server.public, "/ws?user=tester01&channel=news"));
        for (language, extension) in [("php", "php"), ("node", "mjs"), ("python3", "py")] {
            let pushed = Command::new(language)
                .arg(folder.join(format!("{program}.{extension}")))
                .args([to, "hello"])
                .env("VECHE_API", format!("http://{}/api", server.internal))
                .output();
            if language != "python3" && pushed.is_err() {
                continue;
            }
            let pushed = pushed.expect("it runs");
            let out = String::from_utf8_lossy(&pushed.stdout).into_owned();
            assert_eq!(out, format!("handed to {handed}\n"), "{pushed:?}");
            if let Some(tester) = &mut tester {
                assert_eq!(tester.text(), "hello");
            }
        }
        let _ = fs::remove_dir_all(&folder);
    }
}

/// A guest in a room of the chat.
struct Guest {
    socket: Socket,
    id: Value,
}

impl Guest {
    fn knock(server: &Server, room: &str) -> Self {
        Self {
            socket: Socket::open(server.public, &format!("/chat/{room}")),
            id: Value::Null,
        }
    }

    #[track_caller]
    fn enter(server: &Server, room: &str, nick: &str) -> Self {
        let mut guest = Self::knock(server, room);
        guest.say(&json!({"type": "join", "nick": nick}));
        let joined = guest.hear();
        assert_eq!(
            (&joined["type"], &joined["nick"]),
            (&json!("joined"), &json!(nick))
        );
        guest.id = joined["id"].clone();
        // The client receives its own join too, like everyone in the room.
        assert_eq!(guest.hear(), guest.event("join", nick));
        guest
    }

    fn say(&mut self, message: &Value) {
        self.socket.say(&message.to_string());
    }

    #[track_caller]
    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.socket.text()).expect("JSON")
    }

    fn event(&self, what: &str, nick: &str) -> Value {
        json!({"type": what, "id": self.id, "nick": nick})
    }
}

#[test]
fn chat_of_a_room() {
    on_all(|setup| {
        let server = example(setup, "rooms");
        page(&server, "<title>Chat</title>");
        // There are enough guests for each of three workers to have some.
        let names = ["Анна", "Boris", "c", "d", "e", "f"];
        let mut guests: Vec<Guest> = Vec::new();
        for nick in names {
            let mut newcomer = Guest::enter(&server, "tea", nick);
            // Each member of the room answers the newcomer's join with its own name.
            for (guest, theirs) in guests.iter_mut().zip(names) {
                assert_eq!(guest.hear(), newcomer.event("join", nick));
                guest.say(&json!({"type": "here", "to": newcomer.id}));
                assert_eq!(newcomer.hear(), guest.event("here", theirs));
            }
            guests.push(newcomer);
        }
        let mut stranger = Guest::enter(&server, "coffee", "stranger");
        for round in 0..12 {
            let speaker = round % guests.len();
            let text = format!("{round}: <b>\"quoted\"</b>\n");
            guests[speaker].say(&json!({"type": "say", "text": text}));
            let mut message = guests[speaker].event("say", names[speaker]);
            message["text"] = json!(text);
            for guest in &mut guests {
                assert_eq!(guest.hear(), message);
            }
        }
        let left = guests.remove(0);
        let event = left.event("leave", names[0]);
        left.socket.leave();
        for guest in &mut guests {
            assert_eq!(guest.hear(), event);
        }
        // A guest of another room receives none of the messages and can't reply.
        stranger.say(&json!({"type": "here", "to": guests[0].id}));
        stranger.say(&json!({"type": "say", "text": "alone"}));
        assert_eq!(stranger.hear()["text"], "alone");
        guests[0].say(&json!({"type": "say", "text": "still here"}));
        assert_eq!(guests[0].hear()["text"], "still here");
    });
}

#[test]
fn chat_refuses_bad_names_and_lives_with_bad_messages() {
    on_all(|setup| {
        let server = example(setup, "rooms");
        let refused = Socket::try_open(server.public, "/chat/no%20room").unwrap_err();
        assert!(refused.to_string().contains("400"), "{refused}");
        let mut guest = Guest::knock(&server, "tea");
        let long = "х".repeat(21);
        for (nick, why) in [
            (json!(""), "Type a name"),
            (json!(7), "Type a name"),
            (Value::Null, "Type a name"),
            (json!(long), "at most 20"),
            (json!("a\u{1}b"), "control characters"),
            (json!(" Ann"), "blanks"),
            (json!("Admin"), "reserved"),
        ] {
            guest.say(&json!({"type": "join", "nick": nick}));
            let answer = guest.hear();
            assert_eq!(answer["type"], "refused");
            assert!(
                answer["why"]
                    .as_str()
                    .is_some_and(|words| words.contains(why)),
                "{answer}"
            );
        }
        // Guests without a name can't send, and invalid messages have no effect.
        for message in [
            json!({"type": "say", "text": "too early"}),
            json!({"type": "here", "to": "0.0.1"}),
            json!({"type": "nonsense"}),
            json!({"type": {}}),
            json!({}),
            json!([]),
            Value::Null,
        ] {
            guest.say(&message);
        }
        guest.socket.say("no JSON");
        guest.say(&json!({"type": "join", "nick": "Ann"}));
        assert_eq!(guest.hear()["type"], "joined");
        assert_eq!(guest.hear()["type"], "join");
        for message in [
            json!({"type": "say"}),
            json!({"type": "say", "text": ""}),
            json!({"type": "say", "text": "x".repeat(2001)}),
            json!({"type": "here", "to": "../x"}),
            json!({"type": "join", "nick": "Another"}),
        ] {
            guest.say(&message);
        }
        guest.say(&json!({"type": "say", "text": "hello"}));
        let reply = guest.hear();
        assert_eq!(
            (&reply["nick"], &reply["text"]),
            (&json!("Ann"), &json!("hello"))
        );
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

#[test]
fn rest_api() {
    // Uses one worker, since the notes are stored in a worker's memory, as the configuration
    // explains.
    for setup in setups().filter(|setup| setup.workers == 1) {
        let server = example(setup, "rest-api");
        let mut http = Http::connect(server.public);
        let mut call = |method: &str, path: &str, body: &str| {
            let answer = http
                .request(method, path, "", body.as_bytes())
                .expect("an answer");
            let location = answer.header("location").map(str::to_owned);
            let body = if answer.body.is_empty() {
                Value::Null
            } else {
                answer.json()
            };
            (answer.status, body, location)
        };
        let tea = json!({"id": 1, "text": "tea"});
        assert_eq!(
            call("GET", "/notes", "").1,
            json!({"notes": [], "count": 0})
        );
        assert_eq!(
            call("POST", "/notes", r#"{"text":"tea"}"#),
            (201, tea.clone(), Some("/notes/1".to_owned()))
        );
        assert_eq!(call("POST", "/notes", r#"{"text":"100% [coffee]"}"#).0, 201);
        assert_eq!(call("GET", "/notes/1", ""), (200, tea, None));
        let found = |query: &str| json!([{"id": 2, "text": query}]);
        assert_eq!(
            call("GET", "/notes?contains=%25%20%5B", "").1["notes"],
            found("100% [coffee]")
        );
        assert_eq!(call("PUT", "/notes/2", r#"{"text":"milk"}"#).0, 200);
        assert_eq!(
            call("GET", "/notes?contains=milk", "").1["notes"],
            found("milk")
        );
        assert_eq!(call("DELETE", "/notes/1", ""), (204, Value::Null, None));
        for (method, path, body, status) in [
            ("GET", "/notes/1", "", 404),
            ("GET", "/notes/x", "", 404),
            ("DELETE", "/notes/1", "", 404),
            ("POST", "/notes", "", 400),
            ("POST", "/notes", "{", 400),
            ("POST", "/notes", "[]", 400),
            ("POST", "/notes", "null", 400),
            ("POST", "/notes", r#"{"text":7}"#, 400),
            ("PUT", "/notes/2", r#"{"text":""}"#, 400),
        ] {
            let (seen, answer, _) = call(method, path, body);
            assert_eq!(seen, status, "{method} {path} {body}: {answer}");
            assert!(answer["error"].is_string(), "{answer}");
        }
        assert_eq!(
            call("GET", "/notes", "").1,
            json!({"notes": found("milk"), "count": 1})
        );
        let refused = http
            .request("DELETE", "/notes", "", b"")
            .expect("an answer");
        assert_eq!(refused.status, 405);
        assert_eq!(refused.header("allow"), Some("GET, HEAD, OPTIONS, POST"));
        let nothing = http.request("GET", "/notes/1/2", "", b"");
        assert_eq!(nothing.expect("an answer").status, 404);
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    }
}

#[test]
fn push_backends() {
    on_all(|setup| {
        let server = example(setup, "push-backends");
        let mut users: Vec<Socket> = (0..6)
            .map(|_| Socket::open(server.public, "/?user=tester01"))
            .collect();
        let mut other = Socket::open(server.public, "/?user=other");
        let mut hoa = Socket::open(server.internal, "/hoa");
        let mut ratchet = Socket::open(server.internal, "/ratchet");
        hoa.say(r#"{"user":"tester01","command":"111111"}"#);
        for user in &mut users {
            assert_eq!(user.text(), "111111");
        }
        ratchet.say(r#"{"command":"update_data","user":"tester01"}"#);
        for user in &mut users {
            assert_eq!(user.text(), "New data!");
        }
        Lines::connect(server.push).send(&json!({"user": "tester01", "message": "test"}));
        for user in &mut users {
            assert_eq!(user.text(), "test");
        }
        // An invalid message is answered with an error, and the connection stays open.
        for bad in [
            "",
            "no JSON",
            "7",
            "{}",
            r#"{"user":7,"command":"x"}"#,
            r#"{"user":"tester01"}"#,
        ] {
            for back_end in [&mut hoa, &mut ratchet] {
                back_end.say(bad);
                let answer: Value = serde_json::from_str(&back_end.text()).expect("JSON");
                assert!(answer["error"].is_string(), "{bad}: {answer}");
            }
        }
        hoa.say(r#"{"user":"other","command":"not yours"}"#);
        assert_eq!(other.text(), "not yours");
        // The back end's paths are not on the public listener.
        assert!(Socket::try_open(server.public, "/hoa").is_err());
        assert!(Socket::try_open(server.public, "/ratchet").is_err());
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

#[test]
fn push_backends_of_the_shape_of_swoole() {
    const ORDER: &str = r#"{"command":"update_data","user":"tester01", "n":1}"#;
    on_all(|setup| {
        let server = example(setup, "push-backends");
        let open = || Socket::open(server.public, "/swoole");
        let mut users: Vec<Socket> = (0..6).map(|_| open()).collect();
        let mut other = open();
        let mut anyone = open();
        other.say("other");
        for user in &mut users {
            user.say("tester01");
        }
        // The server does not confirm a user's name. An order that the server handles before the name is lost,
        // so the order is repeated until the user receives it.
        for user in &mut users {
            until("the user is known", || {
                anyone.say(ORDER);
                matches!(user.within(std::time::Duration::from_millis(50)), Seen::Text(text) if text == ORDER)
            });
        }
        for bad in [
            r#"{"command":"update_data"}"#,
            r#"{"command":"x","user":"tester01"}"#,
            "[]",
            r#"{"command":"update_data","user":"\n"}"#,
        ] {
            anyone.say(bad);
        }
        assert!(anyone.is_alive() && other.is_alive());
        let mut nameless = open();
        nameless.say("");
        assert_eq!(nameless.closed(), 4000);
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

/// Configures the feed to use the server at `source`.
fn feed_from(server: &Server, source: std::net::SocketAddr) {
    let text = fs::read_to_string(server.config()).expect("a config");
    let text = text.replace(
        "ws://127.0.0.1:8080/source",
        &format!("ws://{source}/source"),
    );
    server.write_config(&text);
    server.signal(Signal::HUP);
}

/// Returns the feed's next message.
fn next_of(feed: &mut Socket) -> Value {
    serde_json::from_str(&feed.text()).expect("JSON")
}

/// Runs the client and the server of LAppS's benchmark, with fewer connections and a shorter time.
#[test]
fn lapps_benchmark() {
    on_all(|setup| {
        let server = example(setup, "lapps-benchmark");
        let text = fs::read_to_string(server.config()).expect("a config");
        let (from, to) = (
            "ws://127.0.0.1:8080/echo\", connections = 100, bytes = 1024, seconds = 10",
            format!(
                "ws://{}/echo\", connections = 5, bytes = 1024, seconds = 0.5",
                server.public
            ),
        );
        assert!(text.contains(from), "{text}");
        // The copy of the example does not listen on the port that the example's services connect to. When the
        // address in the configuration is corrected, the services restart.
        server.write_config(&text.replace(from, &to));
        server.signal(Signal::HUP);
        until("the connections", || {
            server.log().contains("all 20 are connected")
        });
        // The route `/echo` of the example serves WebSockets and plain requests.
        let mut socket = Socket::open(server.public, "/echo");
        socket.say("hello");
        assert_eq!(socket.text(), "hello");
        assert_eq!(get(server.public, "/echo").text(), "Hello, world!\n");
        let mut counts: Vec<u64> = Vec::new();
        until("the echoes", || {
            let log = server.log();
            let lines = log
                .lines()
                .filter_map(|line| line.split_once(" echoes of "));
            counts = lines
                .map(|(before, after)| {
                    assert!(after.starts_with("1024 B in "), "{after}");
                    assert!(after.contains(", 0 wrong"), "{after}");
                    let count = before.rsplit([' ', '"', '=']).next().unwrap_or_default();
                    count.parse().expect("a number")
                })
                .collect();
            counts.last().is_some_and(|count| *count >= 1000)
                || log.contains("closed")
                || counts.len() >= 3
        });
        assert!(counts.is_sorted(), "{counts:?}");
        assert!(counts.last().is_some_and(|count| *count > 0), "{counts:?}");
    });
}

#[test]
fn feed_of_its_own_source() {
    on_all(|setup| {
        let server = example(setup, "feed");
        page(&server, "<title>Feed</title>");
        // The copy of the example listens on another port, so its configuration needs another URL of the source.
        feed_from(&server, server.public);
        let mut listeners: Vec<Socket> = (0..6)
            .map(|_| Socket::open(server.public, "/feed"))
            .collect();
        let mut received: Vec<Vec<Value>> = Vec::new();
        for listener in &mut listeners {
            let mut list = Vec::new();
            let is_open = |one: &Value| one["type"] == "source" && one["open"] == true;
            let is_price = |one: &Value| one["type"] == "price";
            while !list.iter().any(is_open) || list.iter().filter(|one| is_price(one)).count() < 30
            {
                list.push(next_of(listener));
            }
            received.push(list);
        }
        // All listeners have received the same message for each number.
        let mut by_number = std::collections::HashMap::new();
        for one in received.iter().flatten() {
            let number = one["n"].as_u64().expect("a number");
            assert_eq!(by_number.entry(number).or_insert(one), &one);
            if one["type"] == "price" {
                assert!(one["price"].as_f64().expect("a price") > 0.0);
            }
        }
        // A newcomer gets the current state at once.
        let mut newcomer = Socket::open(server.public, "/feed");
        let mut symbols = std::collections::BTreeSet::new();
        until("every symbol", || {
            if let Some(symbol) = next_of(&mut newcomer)["symbol"].as_str() {
                symbols.insert(symbol.to_owned());
            }
            symbols.len() == 5
        });
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

#[test]
fn feed_of_a_source_that_reconnects() {
    on_all(|setup| {
        let source = peer::serve(|number, socket| {
            let Some(mut peer) = Peer::accept(socket) else {
                return;
            };
            for bad in [
                "",
                "no JSON",
                "7",
                "[]",
                "{}",
                r#"{"symbol":1,"price":1}"#,
                r#"{"symbol":"X"}"#,
            ] {
                peer.say(bad);
            }
            peer.say(&format!(r#"{{"symbol":"TEA","price":{number}.5}}"#));
            if number < 2 {
                std::thread::sleep(std::time::Duration::from_millis(100));
            } else {
                peer.echo();
            }
        });
        let server = example(setup, "feed");
        let mut listeners: Vec<Socket> = (0..4)
            .map(|_| Socket::open(server.public, "/feed"))
            .collect();
        feed_from(&server, source);
        for listener in &mut listeners {
            for (key, value) in [
                ("open", json!(true)),
                ("price", json!(0.5)),
                ("open", json!(false)),
                ("open", json!(true)),
                ("price", json!(1.5)),
                ("open", json!(false)),
                ("open", json!(true)),
                ("price", json!(2.5)),
            ] {
                until("its turn", || next_of(listener)[key] == value);
            }
        }
        let mut newcomer = Socket::open(server.public, "/feed");
        let first = [next_of(&mut newcomer), next_of(&mut newcomer)];
        assert!(
            first.iter().any(|one| one["price"] == json!(2.5)),
            "{first:?}"
        );
        assert!(
            first.iter().any(|one| one["open"] == json!(true)),
            "{first:?}"
        );
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}
