//! A relay between a node and its server that can stall the traffic.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) struct Relay {
    pub(crate) port: u16,
    pipes: Arc<Mutex<Vec<Arc<Pipe>>>>,
    is_stalled: Arc<AtomicBool>,
    /// Connections so far.
    pub(crate) count: Arc<AtomicU32>,
}

/// A connection.
#[derive(Default)]
struct Pipe {
    /// The connection has subscribed to a channel.
    is_feed: AtomicBool,
    /// Whether no data reaches the node any more while the connection stays open.
    is_silent: AtomicBool,
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

    /// Stops all data to the node on the current feeds.
    pub(crate) fn silence_feeds(&self) {
        for pipe in self.pipes.lock().iter() {
            let is_feed = pipe.is_feed.load(Ordering::Relaxed);
            pipe.is_silent.store(is_feed, Ordering::Relaxed);
        }
    }

    /// Holds all data back, or releases it.
    pub(crate) fn stall(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::Relaxed);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, pipe: &Pipe, is_stalled: &AtomicBool, is_up: bool) {
    let mut buffer = [0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        let bytes = &buffer[..count];
        if is_up && bytes.windows(9).any(|window| window == b"SUBSCRIBE") {
            pipe.is_feed.store(true, Ordering::Relaxed);
        }
        while is_stalled.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if !is_up && pipe.is_silent.load(Ordering::Relaxed) {
            continue;
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
