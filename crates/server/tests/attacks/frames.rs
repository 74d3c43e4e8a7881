//! Frames that are expensive, have wrong lengths, or never end.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use crate::attack::{Attack, Target};
use crate::raw::{
    BINARY, CLOSE, CONTINUES, ENDS, PING, TEXT, TEXT_BEGINS, announced, closed, connect_with,
    end_well, frame, hear, narrow, open, upgrade,
};
use crate::support::Options;

/// Asserts that the server closes the connection with a code, unless its reset arrived before the Close frame was read.
fn assert_closed_with(code: u16, socket: &mut TcpStream, target: &Target<'_>) {
    if let Some(got) = closed(socket) {
        assert_eq!(got, code);
        target.landed();
    }
}

fn fragments_of(payload: &[u8]) {
    let mut message = frame(TEXT_BEGINS, b"");
    message.extend(frame(CONTINUES, payload).repeat(20_000));
    Attack::default().run(|target, _| {
        let mut socket = open(target.address, "/echo", "");
        let _ = socket.write_all(&message);
        assert_closed_with(1009, &mut socket, target);
    });
}

#[test]
fn empty_fragments_without_end() {
    fragments_of(b"");
}

#[test]
fn fragments_of_a_byte_without_end() {
    fragments_of(b"x");
}

/// Many connections send 40,001 fragments of a message, which the route's limit allows, then a
/// ping, but never the final fragment.
#[test]
fn fragments_up_to_the_limit() {
    let route = "[[route]]\npath = \"/patient\"\nhandler = \"echo\"\nfragments_max = 100_000";
    let attack = Attack {
        options: Options {
            routes: route,
            ..Options::default()
        },
        ..Attack::default()
    };
    let mut message = frame(TEXT_BEGINS, b"x");
    message.extend(
        [frame(CONTINUES, b""), frame(CONTINUES, b"x")]
            .concat()
            .repeat(20_000),
    );
    message.extend(frame(PING, b"still there?"));
    attack.run(|target, _| {
        let mut socket = open(target.address, "/patient", "");
        if socket.write_all(&message).is_ok() {
            let (first, payload) = hear(&mut socket).expect("an answer");
            assert_eq!((first, &payload[..]), (0x8a, &b"still there?"[..]));
            target.landed();
        }
    });
}

#[test]
fn lengths_that_lie() {
    let lies = |length: u64| [&[BINARY, 0xff][..], &length.to_be_bytes(), &[0; 4], b"x"].concat();
    let cases = [
        (lies(1 << 63), 1002),
        (lies(u64::MAX), 1002),
        (lies((1 << 63) - 1), 1009),
        (lies((1 << 32) + 1), 1009),
        (lies(1 << 17), 1009),
        // Lengths that are not in the shortest form, which RFC 6455, section 5.2, forbids.
        (lies(5), 1002),
        (lies(0xffff), 1002),
        ([&[BINARY, 0xfe, 0, 125][..], &[0; 130]].concat(), 1002),
        ([&[PING, 0xfe, 0, 126][..], &[0; 130]].concat(), 1002),
    ];
    Attack::default().run(|target, rng| {
        let (bytes, code) = &cases[rng.usize(..cases.len())];
        let mut socket = open(target.address, "/echo", "");
        let _ = socket.write_all(bytes);
        assert_closed_with(*code, &mut socket, target);
    });
}

/// Each of four hundred clients announces sixteen megabytes and sends ten bytes.
#[test]
fn announced_and_never_sent() {
    let route = "[[route]]\npath = \"/large\"\nhandler = \"echo\"\nmessage_bytes_max = \"16MiB\"";
    let attack = Attack {
        options: Options {
            routes: route,
            ..Options::default()
        },
        ..Attack::default()
    };
    let mut begun = announced(BINARY, 16 << 20);
    begun.extend_from_slice(b"0123456789");
    attack.run(|target, _| {
        let sockets: Vec<_> = (0..100)
            .map(|_| {
                let mut socket = open(target.address, "/large", "");
                socket.write_all(&begun).expect("the server reads");
                target.landed();
                socket
            })
            .collect();
        target.outlast();
        drop(sockets);
    });
}

/// The server's pongs fill the client's receive buffer, after which the server stops reading from the client.
#[test]
fn pings_without_reading() {
    let pings = frame(PING, &[b'?'; 125]).repeat(1000);
    Attack::default().run(|target, _| {
        let socket = connect_with(target.address, narrow);
        let mut socket = upgrade(socket, "/echo", "");
        socket
            .set_write_timeout(Some(std::time::Duration::from_millis(100)))
            .expect("a socket");
        while target.lasts() && socket.write_all(&pings).is_ok() {}
        target.landed();
        target.outlast();
    });
}

/// Pings from a client that reads its pongs: each ping costs the server a response.
#[test]
fn pings_with_reading() {
    let pings = frame(PING, b"?").repeat(500);
    Attack::default().run(|target, _| {
        let mut socket = open(target.address, "/echo", "");
        while target.lasts() {
            socket.write_all(&pings).expect("the server reads");
            for _ in 0..500 {
                assert_eq!(hear(&mut socket).expect("a pong").0, 0x8a);
            }
            target.landed();
        }
    });
}

/// The server ignores everything that a client sends after a Close frame.
#[test]
fn a_close_and_a_gigabyte_more() {
    let more = frame(BINARY, &[b'x'; 60_000]).repeat(16);
    Attack::default().run(|target, _| {
        let mut socket = open(target.address, "/echo", "");
        socket
            .write_all(&frame(CLOSE, &1000_u16.to_be_bytes()))
            .expect("the server reads");
        for _ in 0..1000 {
            if !target.lasts() || socket.write_all(&more).is_err() {
                break;
            }
        }
        assert_closed_with(1000, &mut socket, target);
    });
}

/// Clients that violate the protocol and neither answer the close nor disconnect are dropped.
#[test]
fn closes_that_are_never_answered() {
    Attack::default().run(|target, _| {
        let mut sockets: Vec<_> = (0..50)
            .map(|_| {
                let mut socket = open(target.address, "/echo", "");
                socket
                    .write_all(&[TEXT, 1, b'x'])
                    .expect("the server reads");
                socket
            })
            .collect();
        for socket in &mut sockets {
            assert_closed_with(1002, socket, target);
        }
        // The clients stay connected and send more data occasionally.
        while target.lasts() {
            for socket in &mut sockets {
                let _ = socket.write_all(b"?");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
}

/// Clients that end their direction of the connection, some within a message and some after complete messages.
#[test]
fn halves_of_connections() {
    let whole = frame(TEXT, b"said").repeat(100);
    let half = [&whole[..], &frame(TEXT_BEGINS, b"and then")].concat();
    Attack::default().run(|target, rng| {
        let sockets: Vec<_> = (0..20)
            .map(|_| {
                let mut socket = open(target.address, "/echo", "");
                let bytes = if rng.bool() { &whole } else { &half };
                socket.write_all(bytes).expect("the server reads");
                socket.shutdown(Shutdown::Write).expect("still connected");
                socket
            })
            .collect();
        for mut socket in sockets {
            let mut echoes = 0;
            while let Some((first, _)) = hear(&mut socket) {
                echoes += u32::from(first == TEXT);
            }
            assert_eq!(echoes, 100, "what came before the end is answered");
            target.landed();
        }
    });
}

/// The server reuses buffers, but no client may see another client's bytes.
#[test]
fn bytes_of_others() {
    Attack::default().run(|target, rng| {
        let mine = [rng.u8(1..)];
        let mut socket = open(target.address, "/echo", "");
        for _ in 0..20 {
            let message = mine.repeat(rng.usize(..60_000));
            let at = rng.usize(..=message.len());
            socket
                .write_all(&frame(BINARY & 0x7f, &message[..at]))
                .expect("the server reads");
            socket
                .write_all(&frame(ENDS, &message[at..]))
                .expect("the server reads");
            let (first, received) = hear(&mut socket).expect("an echo");
            assert!(first == BINARY && received == message, "another's bytes");
            target.landed();
        }
        // A Close frame contains up to 123 bytes of reason. The server's Close frame repeats the code, with the whole
        // reason or without a reason.
        let reason = [&1000_u16.to_be_bytes()[..], &b"r".repeat(rng.usize(..123))].concat();
        socket
            .write_all(&frame(CLOSE, &reason))
            .expect("the server reads");
        let (first, received) = hear(&mut socket).expect("the close");
        assert!(
            first == CLOSE && (received == reason || received == reason[..2]),
            "{received:?}"
        );
        if rng.bool() {
            end_well(&socket);
        }
    });
}
