//! Tests a claim of the README of examples/chat: a flood of logins delays neither connected users nor successful logins.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Http, Options, Response, Server, Socket, USUAL, connect_from};

const ADDRESSES: u8 = 10;
/// The number of logins that the rate limit allows per address and minute.
const LOGINS_EACH: usize = 60;

fn post(http: &mut Http, path: &str, headers: &str, body: &Value) -> Response {
    let headers = format!("Content-Type: application/json\r\n{headers}");
    let body = body.to_string();
    let answer = http.request("POST", path, &headers, body.as_bytes());
    answer.expect("an answer")
}

fn credentials(name: &str) -> Value {
    json!({"name": name, "password": "correct horse"})
}

/// Returns a client connected to the dialogue of Ann and Bob.
fn talker(server: &Server, http: &mut Http, name: &str) -> Socket {
    let answer = post(http, "/api/register", "", &credentials(name));
    assert_eq!(answer.status, 201, "{answer:?}");
    let cookies = answer.header_all("set-cookie");
    let session = cookies[0].split(';').next().expect("a cookie");
    let cookie = format!("Cookie: {session}\r\n");
    let token = http.request("GET", "/api/token", &cookie, b"");
    let token = &token.expect("an answer").json()["token"];
    let mut socket = Socket::open(server.public, "/connection/websocket");
    let connect = json!({"id": 1, "connect": {"token": token}});
    let subscribe = json!({"id": 2, "subscribe": {"channel": "dialog:#ann,bob"}});
    for (id, command) in [(1, connect), (2, subscribe)] {
        socket.say(&command.to_string());
        hear(&mut socket, |message| message["id"] == id);
    }
    socket
}

/// Returns the next message for which `is_it` returns true. A frame may contain several messages.
fn hear(socket: &mut Socket, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let text = socket.text();
        for line in text.lines() {
            let message: Value = serde_json::from_str(line).expect("JSON");
            assert!(message.get("error").is_none(), "{message}");
            if is_it(&message) {
                return message;
            }
        }
    }
}

/// Returns the responses that have arrived; waits at most `wait` for each connection.
fn answers(flood: &mut [Http], wait: Duration) -> Vec<Response> {
    let mut answers = Vec::new();
    for http in flood {
        http.socket.set_read_timeout(Some(wait)).expect("a socket");
        match http.response() {
            Ok(answer) => answers.push(answer),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("a login was not answered: {error}"),
        }
    }
    answers
}

#[test]
fn a_flood_of_logins_holds_up_neither_logins_nor_messages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/chat");
    let options = Options {
        shell: "export CHAT_SECRET=0123456789abcdef0123456789abcdef",
        ..Options::default()
    };
    let server = Server::copy_with(USUAL, &folder, &options);
    let mut http = Http::connect(server.public);
    let mut ann = talker(&server, &mut http, "ann");
    let mut bob = talker(&server, &mut http, "bob");

    let mut flood: Vec<Http> = (1..=ADDRESSES)
        .flat_map(|number| std::iter::repeat_n(number, LOGINS_EACH))
        .map(|number| {
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 1, number));
            Http::over(connect_from(from, server.public))
        })
        .collect();
    for (number, login) in flood.iter_mut().enumerate() {
        let body = credentials(&format!("nobody{}", number / 5)).to_string();
        let request = format!(
            "POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        login.raw(request.as_bytes()).expect("it is taken");
    }

    // Users who are already connected are served during the flood of logins.
    for number in 0..20 {
        let publish = json!({"id": 3, "publish": {"channel": "dialog:#ann,bob", "data": number}});
        ann.say(&publish.to_string());
        let received = hear(&mut bob, |message| message["push"].get("pub").is_some());
        assert_eq!(received["push"]["pub"]["data"], number);
        hear(&mut ann, |message| message["id"] == 3);
    }

    // A login with the correct password succeeds, or is refused at once and may be retried.
    let mut tries = 0;
    loop {
        tries += 1;
        let answer = post(&mut http, "/api/login", "", &credentials("ann"));
        match answer.status {
            200 => break,
            503 => assert_eq!(answer.header("retry-after"), Some("2"), "{answer:?}"),
            _ => panic!("{answer:?}"),
        }
        assert!(tries < 50, "Ann was never let in");
        thread::sleep(Duration::from_millis(200));
    }
    // Ann's login did not have to wait for the logins of the flood.
    let first = answers(&mut flood, Duration::from_millis(1));
    let of = |answers: &[Response], status| {
        let is = |answer: &&Response| answer.status == status;
        answers.iter().filter(is).count()
    };
    let judged = of(&first, 403);
    assert!(
        judged < flood.len() / 2,
        "{judged} logins were judged first"
    );
    assert!(of(&first, 503) > 0, "none was sent away");
    for answer in first.iter().filter(|answer| answer.status == 503) {
        assert_eq!(answer.header("retry-after"), Some("2"), "{answer:?}");
    }
    assert_eq!(judged + of(&first, 503), first.len());
}
