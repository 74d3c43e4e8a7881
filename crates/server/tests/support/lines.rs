//! A back end on the push listener: sends lines, and receives response lines.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use serde_json::Value;

use super::SOON;

pub(crate) struct Lines {
    pub(crate) socket: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Lines {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("the push listener takes connections");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(SOON)).expect("a socket");
        let answers = BufReader::new(socket.try_clone().expect("a descriptor"));
        Self { socket, answers }
    }

    /// Sends a line that gets no response.
    pub(crate) fn send(&mut self, line: &Value) {
        self.raw(format!("{line}\n").as_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    /// Returns the next response line.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?} is no JSON: {error}"))
    }

    /// Sends a line and returns its response.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &Value) -> Value {
        self.send(line);
        self.answer()
    }

    /// Sends FIN and waits for the server's FIN. By then the server has processed all lines.
    pub(crate) fn finish(mut self) {
        self.socket
            .shutdown(Shutdown::Write)
            .expect("still connected");
        let mut rest = String::new();
        self.answers.read_line(&mut rest).expect("a clean end");
        assert_eq!(rest, "", "an unexpected answer");
    }
}
