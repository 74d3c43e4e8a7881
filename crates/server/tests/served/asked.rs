//! A small HTTP server that the server under test calls: an issuer of keys, or a back end with hooks.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use super::peer;
use crate::support::SOON;

type Answer = Box<dyn Fn(&str) -> String + Send + Sync>;

/// A server that responds as configured, and records its requests.
pub(crate) struct Asked {
    pub(crate) address: SocketAddr,
    answer: Arc<Mutex<Arc<Answer>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Asked {
    pub(crate) fn new(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let answer: Arc<Mutex<Arc<Answer>>> = Arc::new(Mutex::new(Arc::new(Box::new(answer))));
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (answers, seen) = (Arc::clone(&answer), Arc::clone(&heads));
        let address = peer::serve(move |_, mut socket| {
            socket.set_nodelay(true).expect("a socket");
            while let Some(request) = request(&mut socket) {
                seen.lock().push(request.clone());
                let answer = Arc::clone(&answers.lock());
                if socket.write_all(answer(&request).as_bytes()).is_err() {
                    return;
                }
            }
        });
        Self {
            address,
            answer,
            heads,
        }
    }

    /// Sets the function that returns the response to a request, given as its head and body.
    pub(crate) fn set_answer(&self, answer: impl Fn(&str) -> String + Send + Sync + 'static) {
        *self.answer.lock() = Arc::new(Box::new(answer));
    }

    /// Returns the heads of all requests so far, each followed by its body.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.heads.lock().len()
    }
}

fn request(socket: &mut TcpStream) -> Option<String> {
    socket.set_read_timeout(Some(SOON)).ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let mut request = String::from_utf8(head).ok()?;
    let small = request.to_ascii_lowercase();
    if let Some((_, rest)) = small.split_once("content-length:") {
        let length = rest.split('\r').next()?.trim().parse().ok()?;
        let mut body = vec![0; length];
        socket.read_exact(&mut body).ok()?;
        request.push_str(&String::from_utf8(body).ok()?);
    }
    Some(request)
}

/// Returns a complete response; `headers` are lines with their ends.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}
