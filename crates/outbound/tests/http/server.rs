//! Servers of the tests, which misbehave as needed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// A server that handles each connection with a function of the test, on a separate thread.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Server {
    /// Creates a server; the handler gets each connection and the number of earlier ones.
    pub(crate) fn new(handle: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", handle)
    }

    pub(crate) fn at(
        address: &str,
        handle: impl Fn(TcpStream, usize) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let counts = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let [accepted, open, most] = counts.clone();
        let handle = Arc::new(handle);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                let before = counts[0].fetch_add(1, SeqCst);
                let now = counts[1].fetch_add(1, SeqCst) + 1;
                counts[2].fetch_max(now, SeqCst);
                let (handle, open) = (Arc::clone(&handle), Arc::clone(&counts[1]));
                thread::spawn(move || {
                    handle(stream, before);
                    open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self {
            address,
            accepted,
            open,
            most,
        }
    }

    /// Creates a server that sends the same response to each request.
    pub(crate) fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |mut stream, _| {
            while head(&mut stream).is_some() {
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        })
    }

    /// Creates a server that sends one response and closes the connection.
    pub(crate) fn saying_once(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |mut stream, _| {
            head(&mut stream);
            let _ = stream.write_all(&answer);
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    /// Returns the highest number of concurrent connections.
    pub(crate) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }

    /// Waits until all connections are closed.
    pub(crate) fn until_empty(&self) {
        for _ in 0..1000 {
            if self.open.load(SeqCst) == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("a connection was left open");
    }
}

/// Reads a request's head and its announced body; `None` at the end of the connection.
pub(crate) fn head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let mut head = String::from_utf8_lossy(&head).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    head.push_str(&String::from_utf8_lossy(&body));
    Some(head)
}

/// Returns a response with this body.
pub(crate) fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Sends nothing until the other side closes.
pub(crate) fn until_gone(stream: &mut impl Read) {
    let mut bytes = [0; 4096];
    while matches!(stream.read(&mut bytes), Ok(1..)) {}
}
