//! The load of the soak test: clients that connect, make various requests, check the responses, and leave in every way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::support::{Http, Seen, Socket};

/// The state shared by all clients.
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) is_over: AtomicBool,
    /// The number of correct responses.
    pub(crate) answers: AtomicU64,
    /// The number of handlers that a client made fail on purpose.
    pub(crate) failures: AtomicU64,
}

impl Load {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            is_over: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    /// Runs WebSocket clients, one after another.
    pub(crate) fn visit(&self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        while self.goes_on() {
            let room = if rng.u8(..4) == 0 { "&room=1" } else { "" };
            let target = format!("/soak?user=u{}{room}", rng.u8(..20));
            let mut socket = Socket::open(self.address, &target);
            expect(&mut socket, "open");
            let is_listening = !room.is_empty();
            for _ in 0..rng.u8(1..40) {
                self.talk(&mut socket, is_listening, &mut rng);
                thread::sleep(Duration::from_millis(rng.u64(..4)));
            }
            match rng.u8(..10) {
                // The connection's handler fails or never ends, and only this connection is closed.
                0 | 1 => self.expect_end(socket, "fail"),
                2 if rng.u8(..3) == 0 => self.expect_end(socket, "loop"),
                // The client disconnects while its handler is suspended.
                3 => {
                    socket.say("wait 0.2");
                    drop(socket);
                }
                4 => {
                    socket.say("every 1000");
                    drop(socket);
                }
                5 => socket.close(1000),
                6 => drop(socket),
                _ => socket.leave(),
            }
        }
    }

    fn talk(&self, socket: &mut Socket, is_listening: bool, rng: &mut Rng) {
        match rng.u8(..12) {
            0 => {
                socket.say("wait 0.02");
                socket.say("echo behind");
                expect(socket, "waited 0.02");
                expect(socket, "echo behind");
            }
            1 => {
                socket.say("say hello");
                if is_listening {
                    expect_greeting(socket);
                }
            }
            2 => {
                socket.say("count x");
                expect_start(socket, "count ");
            }
            3 => {
                socket.say("spawn 10");
                expect(socket, "sum 55");
            }
            4 => {
                socket.say("after 0.01");
                expect(socket, "after 0.01");
            }
            5 => {
                // A reload may end the repetition started by `every`, so its messages are not awaited.
                socket.say("every 3");
                socket.say("echo meanwhile");
                expect(socket, "echo meanwhile");
            }
            _ => {
                let text = "x".repeat(rng.usize(..3000));
                socket.say(&format!("echo {text}"));
                expect(socket, &format!("echo {text}"));
            }
        }
        self.answers.fetch_add(1, Relaxed);
    }

    fn expect_end(&self, mut socket: Socket, word: &str) {
        socket.say(word);
        let code = loop {
            match socket.next() {
                Seen::Text(_) => {}
                Seen::Close(code, _) => break code,
                other => panic!("{word}: {other:?}"),
            }
        };
        assert_eq!(code, Some(1011), "{word}");
        self.failures.fetch_add(1, Relaxed);
    }

    /// Opens one connection after another, and makes up to 49 requests on each.
    pub(crate) fn request(&self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        while self.goes_on() {
            let mut http = Http::connect(self.address);
            for _ in 0..rng.u8(1..50) {
                let (word, status) = match rng.u8(..20) {
                    0 => ("fail", 500),
                    1 if rng.u8(..10) == 0 => ("loop", 500),
                    2..=5 => ("wait", 200),
                    _ => ("now", 200),
                };
                let path = format!("/soak?word={word}");
                let response = http.request("POST", &path, "", b"[1,2,3]");
                let response = response.expect("an answer");
                assert_eq!(response.status, status, "{word}: {response:?}");
                if status == 200 {
                    assert_eq!(response.json()["posted"][2], 3);
                    self.answers.fetch_add(1, Relaxed);
                } else {
                    self.failures.fetch_add(1, Relaxed);
                }
                thread::sleep(Duration::from_millis(rng.u64(..5)));
            }
        }
    }

    /// Lets an application exceed its memory limit, which ends the connection.
    pub(crate) fn hog(&self) {
        while self.goes_on() {
            let socket = Socket::open(self.address, "/hog");
            self.expect_end(socket, "more");
            thread::sleep(Duration::from_millis(300));
        }
    }
}

/// Returns the next message for this client alone, skipping the messages of the room and of timers.
fn next_own(socket: &mut Socket) -> String {
    loop {
        let text = socket.text();
        if text != "said hello" && text != "tick" {
            return text;
        }
    }
}

fn expect(socket: &mut Socket, text: &str) {
    assert_eq!(next_own(socket), text);
}

fn expect_start(socket: &mut Socket, start: &str) {
    let text = next_own(socket);
    assert!(text.starts_with(start), "{text}");
}

fn expect_greeting(socket: &mut Socket) {
    while socket.text() != "said hello" {}
}
