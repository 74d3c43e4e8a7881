//! Tests clients of Centrifugo's protocol on the real server: recovery of missed publications, and codes of
//! errors.

mod api;
mod deltas;
mod filters;
mod hooks;
mod names;
mod php;
mod reading;
mod scripts;
mod stalled;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Http, Lines, Options, Server, Setup, Socket, USUAL, call, on_all};

const CONFIG: &str = "[[route]]\npath = \"/all/*\"\nhandler = \"centrifuge\"\n\
    [[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n\
    [[namespace]]\nname = \"chat\"\nhistory_size = 1000\npresence = true\n\
    subscribe = \"client\"\npublish = \"subscriber\"\n\
    [[namespace]]\nname = \"open\"\nsubscribe = \"client\"\npublish = \"client\"\n";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: CONFIG,
        ..Options::default()
    };
    Server::with(setup, &options)
}

struct Client {
    socket: Socket,
    lines: VecDeque<Value>,
}

impl Client {
    /// Connects and returns the connect reply.
    fn connect(server: &Server, user: &str) -> (Self, Value) {
        let socket = Socket::open(server.public, &format!("/c?user={user}"));
        let lines = VecDeque::new();
        let mut client = Self { socket, lines };
        let mut reply = client.ask(json!({ "id": 1, "connect": {} }));
        (client, reply["connect"].take())
    }

    fn say(&mut self, command: &Value) {
        self.socket.say(&command.to_string());
    }

    /// Returns the next message.
    fn next(&mut self) -> Value {
        while self.lines.is_empty() {
            let text = self.socket.text();
            let lines = text.split('\n');
            let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
            self.lines.extend(lines);
        }
        self.lines.pop_front().expect("one came")
    }

    /// Returns the reply to a command; nothing else may arrive before it.
    #[track_caller]
    fn ask(&mut self, command: Value) -> Value {
        self.say(&command);
        let reply = self.next();
        assert_eq!(reply["id"], command["id"], "{command}: {reply}");
        reply
    }

    /// Returns the next publication.
    fn publication(&mut self) -> Value {
        let mut push = self.next();
        push["push"]["pub"].take()
    }
}

#[test]
fn a_reconnecting_client_misses_nothing() {
    on_all(|setup| {
        let server = start(setup);
        let mut lines = Lines::connect(server.push);
        for channel in ["chat:1", "chat:2", "chat:3"] {
            let mut publish = |data: u32| {
                let line = json!({ "channel": channel, "data": data, "ack": true });
                lines.ask(&line);
            };
            let (mut ann, reply) = Client::connect(&server, "ann");
            assert_eq!(reply["subs"], json!({ "#ann": {} }));
            let request = json!({ "channel": channel });
            let joined = ann.ask(json!({ "id": 2, "subscribe": request }));
            let epoch = joined["subscribe"]["epoch"].clone();
            assert_eq!(joined["subscribe"]["recoverable"], true, "{joined}");
            publish(1);
            assert_eq!(ann.publication(), json!({ "data": 1, "offset": 1 }));
            let stats = ann.ask(json!({ "id": 3, "presence_stats": request }));
            assert_eq!(
                stats["presence_stats"],
                json!({ "num_clients": 1, "num_users": 1 })
            );
            drop(ann);
            publish(2);
            publish(3);
            let (mut ann, _) = Client::connect(&server, "ann");
            let back = json!({ "channel": channel, "recover": true, "epoch": epoch, "offset": 1 });
            let joined = ann.ask(json!({ "id": 2, "subscribe": back }));
            let missed = json!([{ "data": 2, "offset": 2 }, { "data": 3, "offset": 3 }]);
            assert_eq!(joined["subscribe"]["publications"], missed);
            assert_eq!(joined["subscribe"]["recovered"], true);
            publish(4);
            assert_eq!(ann.publication(), json!({ "data": 4, "offset": 4 }));
        }
    });
}

#[test]
fn nothing_is_lost_or_doubled_while_clients_come_and_go() {
    on_all(|setup| {
        let server = start(setup);
        let is_over = AtomicBool::new(false);
        const LAST: u64 = 300;
        thread::scope(|scope| {
            let publisher = scope.spawn(|| {
                let mut lines = Lines::connect(server.push);
                for number in 1..=LAST {
                    let line = json!({ "channel": "chat:busy", "data": number, "ack": true });
                    lines.ask(&line);
                }
                is_over.store(true, Relaxed);
            });
            for worker in 0..3 {
                let server = &server;
                scope.spawn(move || {
                    let mut received = 0;
                    let mut epoch = Value::Null;
                    let mut visits = 0;
                    while received < LAST {
                        let (mut client, _) = Client::connect(server, &format!("user{worker}"));
                        let is_back = epoch != Value::Null;
                        let mut request = json!({ "channel": "chat:busy" });
                        if is_back {
                            request = json!({ "channel": "chat:busy", "recover": true,
                                "epoch": epoch, "offset": received });
                        }
                        let joined = client.ask(json!({ "id": 2, "subscribe": request }));
                        let joined = &joined["subscribe"];
                        epoch = joined["epoch"].clone();
                        if is_back {
                            assert_eq!(joined["recovered"], true, "{joined}");
                            for missed in joined["publications"].as_array().into_iter().flatten() {
                                received += 1;
                                assert_eq!(
                                    (&missed["offset"], &missed["data"]),
                                    (&json!(received), &json!(received))
                                );
                            }
                        } else {
                            received = joined["offset"].as_u64().unwrap_or(0);
                        }
                        // The client stays for some publications and is cut off without a close.
                        for _ in 0..=visits % 7 {
                            if received == LAST {
                                break;
                            }
                            let publication = client.publication();
                            received += 1;
                            assert_eq!(
                                (&publication["offset"], &publication["data"]),
                                (&json!(received), &json!(received))
                            );
                        }
                        visits += 1;
                    }
                });
            }
            publisher.join().expect("it publishes");
        });
        assert!(is_over.load(Relaxed));
    });
}

#[test]
fn invalid_commands_are_closed_with_their_code() {
    on_all(|setup| {
        let server = start(setup);
        for (frames, code) in [
            (&["{\"id\":1,\"ping\":{}}"][..], 3501),
            (&["not JSON"], 3501),
            (
                &["{\"id\":1,\"connect\":{}}", "{\"id\":2,\"connect\":{}}"],
                3501,
            ),
            (
                &["{\"id\":1,\"connect\":{}}", "{\"id\":2,\"publish\":7}"],
                3501,
            ),
            (
                &["{\"id\":1,\"connect\":{}}", "{\"send\":{\"data\":1}}"],
                3508,
            ),
        ] {
            let mut socket = Socket::open(server.public, "/c?user=ann");
            for frame in frames {
                socket.say(frame);
            }
            if frames.len() > 1 {
                socket.text();
            }
            assert_eq!(socket.closed(), code, "{frames:?}");
        }
        let (mut ann, _) = Client::connect(&server, "ann");
        for (command, code) in [
            (json!({ "subscribe": { "channel": "elsewhere" } }), 103),
            (json!({ "subscribe": { "channel": "" } }), 102),
            (
                json!({ "publish": { "channel": "chat:1", "data": 1 } }),
                103,
            ),
            (json!({ "history": { "channel": "chat:1" } }), 103),
            (json!({ "rpc": { "method": "m" } }), 108),
        ] {
            let mut command = command;
            command["id"] = json!(9);
            assert_eq!(ann.ask(command)["error"]["code"], code);
        }
        call(server.internal, "disconnect", &json!({ "user": "ann" }));
        assert_eq!(ann.socket.closed(), 3503);
    });
}

#[test]
fn a_subscribe_loop_does_not_affect_other_clients() {
    on_all(|setup| {
        let server = start(setup);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (mut greedy, _) = Client::connect(&server, "greedy");
                    let mut id = 1;
                    while !is_over.load(Relaxed) {
                        let commands: Vec<String> = (0..100)
                            .flat_map(|number| {
                                let channel = format!("open:{}", number % 7);
                                let request = json!({ "channel": channel });
                                id += 2;
                                [
                                    json!({ "id": id, "subscribe": request }).to_string(),
                                    json!({ "id": id + 1, "unsubscribe": request }).to_string(),
                                ]
                            })
                            .collect();
                        greedy.socket.say(&commands.join("\n"));
                        for _ in 0..200 {
                            let reply = greedy.next();
                            assert_eq!(reply["error"], Value::Null, "{reply}");
                        }
                    }
                });
            }
            let (mut ann, _) = Client::connect(&server, "ann");
            ann.ask(json!({ "id": 2, "subscribe": { "channel": "open:1" } }));
            for number in 3..300 {
                ann.say(
                    &json!({ "id": number, "publish": { "channel": "open:1", "data": number } }),
                );
                let two = [ann.next(), ann.next()];
                let push = two.iter().find(|one| one["push"] != Value::Null);
                let push = push.expect("she hears herself");
                assert_eq!(push["push"]["pub"]["data"], number);
                assert!(two.iter().any(|one| one["id"] == number));
            }
            is_over.store(true, Relaxed);
        });
    });
}

#[test]
fn a_restart_of_the_route_s_options_leaves_sessions_alone() {
    let server = start(USUAL);
    let (mut ann, _) = Client::connect(&server, "ann");
    ann.ask(json!({ "id": 2, "subscribe": { "channel": "open:1" } }));
    // The new configuration forbids subscriptions by clients.
    let closed = CONFIG.replace("subscribe = \"client\"", "subscribe = \"none\"");
    server.configure(&Options {
        routes: &closed,
        ..Options::default()
    });
    assert!(
        server
            .command(&["reload"])
            .status()
            .expect("it runs")
            .success()
    );
    let mut id = 3;
    crate::support::until("the new rules", || {
        id += 1;
        let request = json!({ "channel": format!("open:{id}") });
        ann.ask(json!({ "id": id, "subscribe": request }))["error"]["code"] == 103
    });
    let reply = ann.ask(json!({ "id": 9999, "ping": {} }));
    assert_eq!(reply["ping"], json!({}));
}

/// A streamed response, and the reply to its connect command.
struct Response {
    lines: BufReader<TcpStream>,
    reply: Value,
}

impl Response {
    fn open(server: &Server) -> Self {
        let mut socket = TcpStream::connect(server.public).expect("a connection");
        let timeout = Some(Duration::from_secs(20));
        socket.set_read_timeout(timeout).expect("a socket");
        let body = "{\"id\":1,\"connect\":{}}";
        // HTTP/1.0 responses have no chunks, so the body is easy to read.
        let request = format!(
            "POST /all/http_stream HTTP/1.0\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).expect("it is taken");
        let mut response = Self {
            lines: BufReader::new(socket),
            reply: Value::Null,
        };
        while response.line() != "" {}
        response.reply = response.next()["connect"].take();
        response
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.line()).expect("JSON")
    }

    /// Sends commands of the streamed response's client in a separate request.
    fn say(&self, server: &Server, commands: &str) {
        let (session, node) = (&self.reply["session"], &self.reply["node"]);
        let body = json!({ "session": session, "node": node, "data": commands });
        let mut http = Http::connect(server.public);
        let answer = http.request("POST", "/all/emulation", "", body.to_string().as_bytes());
        assert_eq!(answer.expect("an answer").status, 204);
    }
}

#[test]
fn commands_beside_a_response_find_it_on_whichever_worker_it_is() {
    on_all(|setup| {
        let server = start(setup);
        let mut responses: Vec<Response> = (0..4).map(|_| Response::open(&server)).collect();
        for (number, response) in responses.iter_mut().enumerate() {
            for id in 2..12 {
                let channel = format!("chat:{number}-{id}");
                let subscribe = json!({ "id": id, "subscribe": { "channel": channel } });
                let publish =
                    json!({ "id": 100 + id, "publish": { "channel": channel, "data": id } });
                response.say(&server, &format!("{subscribe}\n{publish}"));
                assert_eq!(response.next()["id"], id);
                let two = [response.next(), response.next()];
                let push = two.iter().find(|one| one["push"] != Value::Null);
                assert_eq!(push.expect("its own")["push"]["pub"]["data"], id);
            }
        }
        server.signal(Signal::TERM);
        for response in &mut responses {
            assert_eq!(response.next()["push"]["disconnect"]["code"], 3001);
            assert_eq!(response.line(), "", "and it ends");
        }
    });
}
