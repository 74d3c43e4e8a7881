//! Attacks by twenty clients, which send small messages as fast as the server accepts them, and read the responses.
//!
//! Each attacker has an unlimited amount of work for the worker, so other clients are served only if the worker takes
//! clients in turn. The attacks run on both drivers, since each driver delivers received data in its own order.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::attack::{Attack, Target};
use crate::raw::{BINARY, TEXT, connect, frame, open};
use crate::support::{Options, setups};

/// The number of attacking threads.
const ATTACKERS: usize = 4;
/// The number of clients of each thread.
const CLIENTS: usize = 5;

/// The number of bytes in one write to a socket.
const FLOOD_BYTES: usize = 64 * 1024;

/// The first byte of an unsolicited pong, which is allowed and has no effect.
pub(crate) const PONG: u8 = 0x8a;

const CENTRIFUGE: &str =
    "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\nidentity = \"query:user\"\n";

/// Repeats a message to fill one write.
pub(crate) fn flood_of(message: &[u8]) -> Vec<u8> {
    message.repeat(FLOOD_BYTES.div_ceil(message.len()))
}

struct Flooder {
    socket: TcpStream,
    /// The number of bytes of the flood that were sent in this round.
    sent: usize,
}

impl Flooder {
    fn new(socket: TcpStream) -> Self {
        socket.set_nonblocking(true).expect("a socket");
        Self { socket, sent: 0 }
    }

    /// Sends what the socket accepts and reads what has arrived. Returns whether there was progress; `None` when the
    /// server has closed the connection.
    fn go_on(&mut self, flood: &[u8], target: &Target<'_>) -> Option<bool> {
        let mut has_moved = false;
        let mut received = [0; FLOOD_BYTES];
        match self.socket.read(&mut received) {
            Ok(0) => return None,
            Ok(_) => has_moved = true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        match self.socket.write(&flood[self.sent..]) {
            Ok(count) => {
                has_moved = true;
                self.sent += count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        if self.sent == flood.len() {
            self.sent = 0;
            target.landed();
        }
        Some(has_moved)
    }
}

/// Returns the drivers available on this machine.
pub(crate) fn back_ends() -> impl Iterator<Item = &'static str> {
    let has = |io: &&'static str| setups().any(|setup| setup.io == *io);
    ["epoll", "io_uring"].into_iter().filter(has)
}

/// Runs an attack on each driver.
fn on_both(attack: &Attack<'_>, begin: impl Fn(&Target<'_>) -> TcpStream + Sync, flood: &[u8]) {
    for io in back_ends() {
        let attack = Attack {
            io,
            attackers: ATTACKERS,
            has_newcomers: true,
            ..*attack
        };
        attack.run(|target, _| {
            let flooders = (0..CLIENTS).map(|_| Flooder::new(begin(target)));
            let mut flooders: Vec<_> = flooders.collect();
            while target.lasts() {
                let mut has_moved = false;
                for flooder in &mut flooders {
                    has_moved |= flooder.go_on(flood, target).expect("it is served");
                }
                if !has_moved {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
    }
}

#[test]
fn echoes_as_fast_as_they_go() {
    let flood = flood_of(&frame(BINARY, b"hi"));
    let begin = |target: &Target<'_>| open(target.address, "/echo", "");
    on_both(&Attack::default(), begin, &flood);
}

#[test]
fn unsolicited_pongs() {
    let flood = flood_of(&frame(PONG, b""));
    let begin = |target: &Target<'_>| open(target.address, "/echo", "");
    on_both(&Attack::default(), begin, &flood);
}

/// Each of the commands is rejected with a response.
#[test]
fn commands_as_fast_as_they_go() {
    let attack = Attack {
        options: Options {
            routes: CENTRIFUGE,
            ..Options::default()
        },
        ..Attack::default()
    };
    let command = br#"{"id":2,"publish":{"channel":"none:1","data":1}}"#;
    let flood = flood_of(&frame(TEXT, command));
    let begin = |target: &Target<'_>| {
        let mut socket = open(target.address, "/c?user=flood", "");
        let hello = frame(TEXT, br#"{"id":1,"connect":{}}"#);
        socket.write_all(&hello).expect("the server reads");
        socket
    };
    on_both(&attack, begin, &flood);
}

#[test]
fn lines_of_back_ends_as_fast_as_they_go() {
    let flood = flood_of(b"{\"user\":\"none\",\"data\":\"x\"}\n");
    let begin = |target: &Target<'_>| connect(target.server.push);
    on_both(&Attack::default(), begin, &flood);
}

#[test]
fn requests_as_fast_as_they_go() {
    let flood = flood_of(b"GET /none HTTP/1.1\r\nHost: t\r\n\r\n");
    let begin = |target: &Target<'_>| connect(target.address);
    on_both(&Attack::default(), begin, &flood);
}
