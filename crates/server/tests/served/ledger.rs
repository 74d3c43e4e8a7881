//! Tests delivery under load: connected clients receive each message once, in the order of each source.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::support::server::KEY_HEADER;
use crate::support::{Http, Lines, Server, Setup, Socket, on_each};

const STAYING: usize = 120;
const COMING_AND_GOING: usize = 80;
const USERS: usize = 40;
const PUSHES: usize = 20_000;
const SOURCES: usize = 3;

/// The messages that one back end pushed to each user, in order.
type Book = HashMap<usize, Vec<String>>;

#[test]
fn the_books_balance() {
    on_each(balance);
}

fn balance(setup: Setup) {
    let server = Server::start(setup);
    let mut staying: Vec<(usize, Socket)> = (0..STAYING)
        .map(|i| {
            (
                i % USERS,
                Socket::open(server.public, &format!("/ws?user=u{}", i % USERS)),
            )
        })
        .collect();
    let done = AtomicBool::new(false);
    let (server, done) = (&server, &done);
    let books: Vec<Book> = thread::scope(|scope| {
        let sources: Vec<_> = (0..SOURCES)
            .map(|source| scope.spawn(move || push(server, source)))
            .collect();
        let crowds: Vec<_> = (0..2)
            .map(|crowd| scope.spawn(move || come_and_go(server, crowd, done)))
            .collect();
        let share = STAYING.div_ceil(2);
        let readers: Vec<_> = staying
            .chunks_mut(share)
            .map(|some| scope.spawn(move || read(some)))
            .collect();
        let books: Vec<Book> = sources
            .into_iter()
            .map(|source| source.join().expect("all pushed"))
            .collect();
        done.store(true, Ordering::Relaxed);
        let comings: usize = crowds
            .into_iter()
            .map(|crowd| crowd.join().expect("no connection was refused"))
            .sum();
        assert!(comings > 20, "only {comings} came and went");
        // After all back ends have ended, a final message is pushed to every user.
        let mut lines = Lines::connect(server.push);
        for user in 0..USERS {
            let answer =
                lines.ask(&json!({"user": format!("u{user}"), "data": "end", "ack": true}));
            assert!(
                answer["result"]["handed"].as_u64() >= Some((STAYING / USERS) as u64),
                "{answer}"
            );
        }
        for (user, seen) in readers
            .into_iter()
            .flat_map(|reader| reader.join().expect("they read to the end"))
        {
            for (source, book) in books.iter().enumerate() {
                let tag = format!("{source}:");
                let of_source: Vec<&String> =
                    seen.iter().filter(|text| text.starts_with(&tag)).collect();
                let pushed: Vec<&String> = book[&user].iter().collect();
                assert!(
                    of_source == pushed,
                    "u{user} saw {} of {} of {source}",
                    of_source.len(),
                    pushed.len()
                );
            }
            let pushed: usize = books.iter().map(|book| book[&user].len()).sum();
            assert_eq!(seen.len(), pushed, "u{user} received an unknown push");
        }
        books
    });
    let pushed: usize = books.iter().flat_map(HashMap::values).map(Vec::len).sum();
    assert_eq!(pushed, PUSHES / SOURCES * SOURCES);
}

/// Runs one back end. The last one pushes over HTTP, the others by push lines, of which every hundredth is
/// acknowledged.
fn push(server: &Server, source: usize) -> Book {
    let mut book: Book = (0..USERS).map(|user| (user, Vec::new())).collect();
    let mut note = |number: usize| {
        let user = (number * 7 + source) % USERS;
        let text = format!("{source}:{number}");
        book.get_mut(&user).expect("a user").push(text.clone());
        (format!("u{user}"), text)
    };
    let count = PUSHES / SOURCES;
    if source == SOURCES - 1 {
        let mut http = Http::connect(server.internal);
        for number in 0..count {
            let (user, text) = note(number);
            let body = json!({"user": user, "data": text}).to_string();
            let answer = http
                .request("POST", "/api/push", KEY_HEADER, body.as_bytes())
                .expect("an answer");
            assert_eq!(answer.status, 200);
        }
    } else {
        let mut lines = Lines::connect(server.push);
        let mut packet = Vec::new();
        for number in 0..count {
            let (user, text) = note(number);
            let ask = number % 100 == 99;
            packet.extend_from_slice(
                format!("{}\n", json!({"user": user, "data": text, "ack": ask})).as_bytes(),
            );
            if ask {
                lines.raw(&packet);
                packet.clear();
                let answer = lines.answer();
                assert!(
                    answer["result"]["handed"].as_u64() >= Some((STAYING / USERS) as u64),
                    "{answer}"
                );
            }
        }
        lines.raw(&packet);
        lines.finish();
    }
    book
}

/// Opens and closes connections in every way.
fn come_and_go(server: &Server, crowd: usize, done: &AtomicBool) -> usize {
    let mut here: Vec<Socket> = Vec::new();
    let mut came = 0;
    while !done.load(Ordering::Relaxed) {
        let user = (came * 3 + crowd) % USERS;
        here.push(Socket::open(server.public, &format!("/ws?user=u{user}")));
        came += 1;
        if here.len() >= COMING_AND_GOING / 2 {
            let leaving = here.swap_remove(came % here.len());
            match came % 3 {
                0 => leaving.leave(),
                1 => drop(leaving),
                _ => {
                    let linger = socket2::SockRef::from(&leaving.socket)
                        .set_linger(Some(std::time::Duration::ZERO));
                    linger.expect("a socket");
                }
            }
        }
    }
    came
}

/// Reads until every client has received the final message.
fn read(sockets: &mut [(usize, Socket)]) -> Vec<(usize, Vec<String>)> {
    let mut seen: Vec<(usize, Vec<String>)> = sockets
        .iter()
        .map(|(user, _)| (*user, Vec::new()))
        .collect();
    let mut open: Vec<usize> = (0..sockets.len()).collect();
    while !open.is_empty() {
        // A few messages of each client are read in turn, so that no backlog exceeds the socket's buffer.
        open.retain(|&index| {
            for _ in 0..8 {
                let text = sockets[index].1.text();
                if text == "end" {
                    return false;
                }
                seen[index].1.push(text);
            }
            true
        });
    }
    seen
}
