//! The server side of HTTP, with blocking I/O: it handles one request after the other and sends the
//! test's responses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use veche_proto::http::{self, Framing, parse_head};

use super::serve;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The request line and headers as received.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the next request had already arrived when this one was read.
    pub(crate) is_followed: bool,
}

/// The state of the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Stay,
    Close,
}

/// Starts a server that answers request `number` of connection `connection` with `answer(connection, number, request)`.
pub(crate) fn serve_http(
    answer: impl Fn(u32, u32, Request) -> (Vec<u8>, After) + Send + Sync + 'static,
) -> SocketAddr {
    serve(move |connection, mut socket| {
        let mut input = Vec::new();
        for number in 0.. {
            let Some(request) = next(&mut socket, &mut input) else {
                return;
            };
            let (response, after) = answer(connection, number, request);
            if socket.write_all(&response).is_err() || after == After::Close {
                return;
            }
        }
    })
}

/// Returns a response with a `Content-Length`.
pub(crate) fn response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn next(socket: &mut TcpStream, input: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(at) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        fill(socket, input)?;
    };
    let head = input[..end].to_vec();
    let framing = parse_head(&head, &http::HeadLimits::default())
        .expect("the tester speaks HTTP")
        .framing;
    let length = match framing {
        Framing::Sized(length) => usize::try_from(length).expect("a body of this test"),
        Framing::None => 0,
        Framing::Chunked => panic!("the tester sends no chunks"),
    };
    while input.len() < end + length {
        fill(socket, input)?;
    }
    let body = input[end..end + length].to_vec();
    input.drain(..end + length);
    Some(Request {
        head: String::from_utf8(head).expect("a request of ASCII"),
        body,
        is_followed: !input.is_empty(),
    })
}

fn fill(socket: &mut TcpStream, input: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 << 10];
    match socket.read(&mut bytes) {
        Ok(count) if count > 0 => {
            input.extend_from_slice(&bytes[..count]);
            Some(())
        }
        _ => None,
    }
}
