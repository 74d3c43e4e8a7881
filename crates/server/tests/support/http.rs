//! A small HTTP client: one persistent connection, or single requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::SOON;

pub(crate) struct Http {
    pub(crate) socket: TcpStream,
    input: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// Returns all values of a header, in order.
    pub(crate) fn header_all(&self, name: &str) -> Vec<String> {
        let lines = self.head.lines().skip(1);
        let pairs = lines.filter_map(|line| line.split_once(':'));
        let found = pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned()).collect()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Http {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the listener takes connections"))
    }

    pub(crate) fn over(socket: TcpStream) -> Self {
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(SOON)).expect("a socket");
        Self {
            socket,
            input: Vec::new(),
        }
    }

    /// Sends a request; `headers` are complete lines.
    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> io::Result<Response> {
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n")
                .into_bytes();
        request.extend_from_slice(body);
        self.socket.write_all(&request)?;
        self.response()
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Returns the next complete response.
    pub(crate) fn response(&mut self) -> io::Result<Response> {
        let mut response = self.head()?;
        if response.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk()? {
                response.body.extend_from_slice(&chunk);
            }
            return Ok(response);
        }
        let length = response
            .header("content-length")
            .map_or(0, |length| length.parse().expect("a number"));
        while self.input.len() < length {
            self.fill()?;
        }
        response.body = self.input.drain(..length).collect();
        Ok(response)
    }

    /// Returns the next chunk of a body; `None` after the last.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = loop {
            if let Some(at) = self.input.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            self.fill()?;
        };
        let length = String::from_utf8_lossy(&self.input[..line]).into_owned();
        let length = usize::from_str_radix(&length, 16)
            .map_err(|_| io::Error::other(format!("no length of a chunk: {length:?}")))?;
        while self.input.len() < line + length + 4 {
            self.fill()?;
        }
        let chunk = self.input[line + 2..line + 2 + length].to_vec();
        self.input.drain(..line + length + 4);
        Ok((length > 0).then_some(chunk))
    }

    /// Returns the next `length` bytes of a body.
    pub(crate) fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.input.len() < length {
            self.fill()?;
        }
        Ok(self.input.drain(..length).collect())
    }

    /// Returns the next response's head, leaving the body to be read.
    pub(crate) fn head(&mut self) -> io::Result<Response> {
        let end = loop {
            if let Some(at) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill()?;
        };
        let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
        self.input.drain(..end);
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {head:?}")))?;
        Ok(Response {
            status,
            head,
            body: Vec::new(),
        })
    }

    /// Returns everything until the server's FIN.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self
            .fill()
            .map(|()| true)
            .or_else(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Ok(false),
                _ => Err(error),
            })?
        {}
        Ok(std::mem::take(&mut self.input))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.socket.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.input.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}

/// Performs a single GET.
#[track_caller]
pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    Http::connect(address)
        .request("GET", path, "", b"")
        .expect("an answer")
}

/// Performs a single API call with the default key.
#[track_caller]
pub(crate) fn call(address: SocketAddr, name: &str, body: &Value) -> Value {
    let body = body.to_string();
    let headers = super::server::KEY_HEADER;
    let response =
        Http::connect(address).request("POST", &format!("/api/{name}"), headers, body.as_bytes());
    let response = response.expect("an answer");
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}
