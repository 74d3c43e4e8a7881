//! Tests request heads that are expensive for parsers that rescan them or trust their contents.

use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::attack::Attack;
use crate::raw::{UPGRADE, connect, handshake, status};
use crate::support::Options;

/// Options with the largest configurable head size. Long heads expose quadratic costs.
const LONG: Options<'_> = Options {
    limits: "header_bytes_max = \"63KiB\"\nheader_timeout = \"500ms\"\n\
             handshake_timeout = \"500ms\"",
    listen: "",
    api: "",
    server: "",
    routes: "[[route]]\npath = \"/deflate\"\nhandler = \"echo\"\ncompression = true\n\
             [[route]]\npath = \"/cookie\"\nhandler = \"push\"\nidentity = \"cookie:session\"",
    descriptors: None,
    shell: "",
    log: "",
    files: &[],
};

/// The length of the long part of a head. The size limit of heads leaves 1 KiB for the other parts.
const LENGTH: usize = 62 << 10;

/// Sends handshakes with the given header. The response to each must have one of the given statuses.
fn handshakes_with(path: &str, header: &str, statuses: &[u16]) {
    let attack = Attack {
        options: LONG,
        ..Attack::default()
    };
    attack.run(|target, _| {
        let mut socket = connect(target.address);
        let _ = socket.write_all(&handshake(path, header));
        if let Some(status) = status(&mut socket) {
            assert!(statuses.contains(&status), "{status}");
            target.landed();
        }
    });
}

#[test]
fn a_list_of_protocols_that_is_all_spaces() {
    let header = format!("Sec-WebSocket-Protocol: b{}x\r\n", " ".repeat(LENGTH));
    handshakes_with("/echo", &header, &[101, 400]);
}

#[test]
fn an_extension_whose_quotes_never_close() {
    let header = format!(
        "Sec-WebSocket-Extensions: a; b=\"{}\r\n",
        "\\c".repeat(LENGTH / 2)
    );
    handshakes_with("/deflate", &header, &[101, 400]);
}

#[test]
fn ten_thousand_offers_of_compression() {
    let offer = "permessage-deflate; server_max_window_bits=7, constructor, __proto__; a=1, ";
    let header = format!(
        "Sec-WebSocket-Extensions: {}x\r\n",
        offer.repeat(LENGTH / offer.len())
    );
    handshakes_with("/deflate", &header, &[101, 400]);
}

#[test]
fn cookies_by_the_ten_thousand() {
    let cookies = ["a=b; ", "=;;;=; ", "session", "session=\"; "];
    let lines = cookies.map(|cookie| {
        let share = LENGTH / cookies.len() / cookie.len();
        format!("Cookie: {}\r\n", cookie.repeat(share))
    });
    handshakes_with("/cookie", &lines.concat(), &[101, 400, 401, 403]);
}

#[test]
fn more_headers_than_are_taken() {
    let attack = Attack::default();
    let headers = "X: y\r\n".repeat(2000);
    attack.run(|target, _| {
        let mut socket = connect(target.address);
        let _ = socket.write_all(&handshake("/echo", &headers));
        if let Some(status) = status(&mut socket) {
            assert_eq!(status, 431);
            target.landed();
        }
    });
}

/// Sends one head in fifty thousand packets. A parser that rescans the head for each byte would
/// read a gigabyte.
#[test]
fn a_long_head_byte_by_byte() {
    let attack = Attack {
        options: LONG,
        ..Attack::default()
    };
    let head = format!("GET / HTTP/1.1\r\n{UPGRADE}X: {}", "y".repeat(10 << 10));
    attack.run(|target, _| {
        let mut socket = connect(target.address);
        if socket.write_all(head.as_bytes()).is_err() {
            return;
        }
        for _ in 0..50_000 {
            // The header timeout bounds this loop.
            if !target.lasts() || socket.write_all(b"y").is_err() {
                break;
            }
            target.landed();
        }
    });
}

/// Sends a separate packet for each line of a head, endlessly, on many connections. The pauses are
/// needed because full windows of such packets cost the kernel ten milliseconds per receive,
/// regardless of the server.
#[test]
fn heads_that_never_end() {
    let attack = Attack::default();
    attack.run(|target, rng| {
        let mut sockets: Vec<_> = (0..50).map(|_| connect(target.address)).collect();
        for socket in &mut sockets {
            let _ = socket.write_all(b"GET / HTTP/1.1\r\n");
        }
        while target.lasts() && !sockets.is_empty() {
            for _ in 0..50 {
                if sockets.is_empty() {
                    break;
                }
                let place = rng.usize(..sockets.len());
                match sockets[place].write_all(b"X: y\r\n") {
                    Ok(()) => target.landed(),
                    Err(_) => drop(sockets.swap_remove(place)),
                }
            }
            thread::sleep(Duration::from_micros(200));
        }
    });
}

/// A request for a thousand overlapping ranges gets at most the whole file, once.
#[test]
fn ranges_by_the_thousand() {
    let page = "x".repeat(1 << 20);
    let attack = Attack {
        options: Options {
            files: &[("site/large.html", &page)],
            ..LONG
        },
        memory_mib_max: 32,
        ..Attack::default()
    };
    let ranges = "0-,1-,0-0,-1,5-2,".repeat(1000);
    let request = format!("GET /large.html HTTP/1.1\r\nHost: t\r\nRange: bytes={ranges}-0\r\n\r\n");
    attack.run(|target, _| {
        let mut socket = connect(target.address);
        let _ = socket.write_all(request.repeat(20).as_bytes());
        if let Some(status) = status(&mut socket) {
            assert_eq!(status, 200, "several ranges are the whole");
            target.landed();
        }
    });
}
