//! A relay that can stall the traffic between a node and its server.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) struct Relay {
    pub(crate) port: u16,
    pipes: Arc<Mutex<Vec<Arc<Pipe>>>>,
    is_stalled: Arc<AtomicBool>,
    /// Number of connections so far.
    pub(crate) count: Arc<AtomicU32>,
}

/// A connection through the relay.
#[derive(Default)]
struct Pipe {
    /// True once the connection has subscribed to a channel.
    is_feed: AtomicBool,
    /// True once the relay has passed orders for a channel of the tests.
    has_orders: AtomicBool,
    /// True if the relay drops all data to the node and keeps the connection open.
    is_silent: AtomicBool,
    /// True if the relay holds back all data.
    is_held: AtomicBool,
    /// True once the server has closed the connection, after it executed everything it had read.
    has_ended: AtomicBool,
}

impl Pipe {
    /// Returns whether a channel home sends its commands over this connection.
    fn is_of_home(&self) -> bool {
        self.has_orders.load(Ordering::Relaxed) && !self.is_feed.load(Ordering::Relaxed)
    }
}

impl Relay {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let relay = Self {
            port: listener.local_addr().expect("a port").port(),
            pipes: Arc::default(),
            is_stalled: Arc::default(),
            count: Arc::default(),
        };
        let (pipes, is_stalled) = (Arc::clone(&relay.pipes), Arc::clone(&relay.is_stalled));
        let count = Arc::clone(&relay.count);
        thread::spawn(move || {
            for node in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                count.fetch_add(1, Ordering::Relaxed);
                let pipe = Arc::new(Pipe::default());
                pipes.lock().push(Arc::clone(&pipe));
                for is_up in [true, false] {
                    let ends = [node.try_clone(), server.try_clone()];
                    let [Ok(node), Ok(server)] = ends else {
                        continue;
                    };
                    let (pipe, is_stalled) = (Arc::clone(&pipe), Arc::clone(&is_stalled));
                    thread::spawn(move || match is_up {
                        true => copy(node, server, &pipe, &is_stalled, true),
                        false => copy(server, node, &pipe, &is_stalled, false),
                    });
                }
            }
        });
        relay
    }

    /// Drops all data to the node on the feeds that are open now.
    pub(crate) fn silence_feeds(&self) {
        for pipe in self.pipes.lock().iter() {
            let is_feed = pipe.is_feed.load(Ordering::Relaxed);
            pipe.is_silent.store(is_feed, Ordering::Relaxed);
        }
    }

    /// Drops all replies to channel homes on their command connections.
    pub(crate) fn silence_replies(&self) {
        for pipe in self.pipes.lock().iter() {
            pipe.is_silent.store(pipe.is_of_home(), Ordering::Relaxed);
        }
    }

    /// Holds back all data on the command connections of channel homes. Later connections are not affected.
    pub(crate) fn hold(&self) {
        for pipe in self.pipes.lock().iter() {
            pipe.is_held.store(pipe.is_of_home(), Ordering::Relaxed);
        }
    }

    /// Releases the held data, and waits until the server has executed the commands in it.
    pub(crate) fn release(&self) {
        let mut held = self.pipes.lock().clone();
        held.retain(|pipe| pipe.is_held.swap(false, Ordering::Relaxed));
        assert!(!held.is_empty(), "nothing was held");
        let begin = Instant::now();
        while !held
            .iter()
            .all(|pipe| pipe.has_ended.load(Ordering::Relaxed))
        {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the node uses a connection that was held"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stalls all connections if `is_stalled`, and resumes them otherwise.
    pub(crate) fn stall(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::Relaxed);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, pipe: &Pipe, is_stalled: &AtomicBool, is_up: bool) {
    let mut buffer = [0; 1 << 16];
    let mut is_open = true;
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        let bytes = &buffer[..count];
        if is_up {
            let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
            pipe.is_feed.fetch_or(has(b"SUBSCRIBE"), Ordering::Relaxed);
            let has_orders = has(b"kept:1") || has(b"room:1");
            pipe.has_orders.fetch_or(has_orders, Ordering::Relaxed);
        }
        while is_stalled.load(Ordering::Relaxed) || pipe.is_held.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if !is_up && pipe.is_silent.load(Ordering::Relaxed) {
            continue;
        }
        // The rest is read even if the receiver is gone: the server's connection would be reset if replies stayed
        // unread.
        is_open = is_open && to.write_all(bytes).is_ok();
    }
    let _ = to.shutdown(Shutdown::Write);
    pipe.has_ended.fetch_or(!is_up, Ordering::Relaxed);
}
