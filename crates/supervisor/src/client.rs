//! One connection to the control socket: request lines in, response lines out.
//!
//! The supervisor never blocks on a client, and a client can't make it use unbounded memory: buffers are bounded, one request
//! is processed at a time, and silent clients are dropped. This module does not execute the commands.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::request::{ANSWER_BYTES_MAX, ControlRequest, VERSION};
use veche_net::scm_rights;

/// The longest request line in bytes.
const REQUEST_BYTES_MAX: usize = 4 << 10;
/// The time limit for the client to send a request, and to read the response.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client of the control socket.
pub(crate) struct ControlClient {
    /// The number of the client, unique in this supervisor.
    pub(crate) id: u64,
    socket: UnixStream,
    received: Vec<u8>,
    /// The last file descriptor that came with a request.
    descriptor: Option<OwnedFd>,
    unsent: Vec<u8>,
    deadline: Instant,
    state: State,
    /// Whether the client has closed its sending direction. It may still wait for its response.
    is_half_closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for a request.
    Waiting,
    /// The supervisor is processing a request.
    Asked,
    /// The client requested a stop, and waits until the supervisor ends.
    Staying,
    /// The connection can't be used any more.
    Gone,
}

impl ControlClient {
    pub(crate) fn new(id: u64, socket: UnixStream, now: Instant) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            id,
            socket,
            received: Vec::new(),
            descriptor: None,
            unsent: Vec::new(),
            deadline: now + PATIENCE,
            state: State::Waiting,
            is_half_closed: false,
        })
    }

    /// Returns the events to poll for; `None` while the client waits for the supervisor, since no
    /// event could make progress then.
    pub(crate) fn poll_events(&self) -> Option<PollFlags> {
        let reads = !self.is_half_closed && self.state == State::Waiting && self.unsent.is_empty();
        match (reads, !self.unsent.is_empty()) {
            (_, true) => Some(PollFlags::OUT),
            (true, false) => Some(PollFlags::IN),
            (false, false) => None,
        }
    }

    /// Returns the time at which the client is dropped if it makes no progress; `None` while the supervisor has to act.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let is_ours_to_move = self.state == State::Waiting || !self.unsent.is_empty();
        is_ours_to_move.then_some(self.deadline)
    }

    /// Returns whether the client can be dropped.
    pub(crate) fn is_done(&self, now: Instant) -> bool {
        let has_no_more =
            self.is_half_closed && self.state == State::Waiting && self.unsent.is_empty();
        self.state == State::Gone
            || has_no_more
            || self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Reads and writes as much as the socket allows, and returns a complete request if there is one. Answers invalid requests
    /// itself.
    pub(crate) fn pump(&mut self, now: Instant) -> Option<ControlRequest> {
        self.send();
        if self.poll_events() != Some(PollFlags::IN) {
            return None;
        }
        self.fill();
        let end = self.received.iter().position(|&byte| byte == b'\n');
        let length = match end {
            Some(end) => end + 1,
            None if self.received.len() >= REQUEST_BYTES_MAX => {
                self.refuse("the request is longer than 4 KiB");
                return None;
            }
            // The last line may lack its newline.
            None if self.is_half_closed && !self.received.is_empty() => self.received.len(),
            None => return None,
        };
        let line: Vec<u8> = self.received.drain(..length).collect();
        match serde_json::from_slice::<ControlRequest>(&line) {
            Ok(request) if request.version == VERSION => {
                self.state = State::Asked;
                Some(request)
            }
            Ok(request) => {
                self.refuse(&format!(
                    "version {} of the control protocol is not supported, only version {VERSION}",
                    request.version
                ));
                None
            }
            Err(error) => {
                self.refuse(&format!("invalid request: {error}"));
                None
            }
        }
        .inspect(|_| self.deadline = now + PATIENCE)
    }

    /// Takes the file descriptor that came with the request, if there is one.
    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Responds to the request: `"ok": true` with the members of the result, if it is an object, or
    /// `"ok": false` with the error.
    pub(crate) fn answer(&mut self, result: Result<Value, String>, now: Instant) {
        let mut line = match result {
            Ok(Value::Object(mut members)) => {
                members.insert("ok".to_owned(), Value::Bool(true));
                Value::Object(members)
            }
            Ok(_) => json!({"ok": true}),
            Err(error) => json!({"ok": false, "error": error}),
        }
        .to_string();
        line.push('\n');
        if line.len() > ANSWER_BYTES_MAX {
            self.state = State::Gone;
            return;
        }
        if self.state == State::Asked {
            self.state = State::Waiting;
        }
        self.deadline = now + PATIENCE;
        self.unsent.extend_from_slice(line.as_bytes());
        self.send();
    }

    /// Returns whether no response is pending: no request is being processed, and all responses have been sent.
    pub(crate) fn reply_done(&self) -> bool {
        self.unsent.is_empty() && self.state != State::Asked
    }

    /// Keeps the connection open until the supervisor exits: the end of the connection tells the client that the supervisor has
    /// ended.
    pub(crate) fn stay(&mut self) {
        self.state = State::Staying;
    }

    fn refuse(&mut self, why: &str) {
        let line = format!("{}\n", json!({"ok": false, "error": why}));
        self.unsent.extend_from_slice(line.as_bytes());
        self.received.clear();
        // Data after an invalid line is ignored.
        self.is_half_closed = true;
        self.send();
    }

    /// Reads once per call of [`Self::pump`], so that a client that sends continuously can't starve others.
    fn fill(&mut self) {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        let room = REQUEST_BYTES_MAX - self.received.len();
        let keep = |descriptor| self.descriptor = Some(descriptor);
        match scm_rights::receive(&self.socket, &mut bytes[..room], keep) {
            Ok(0) => self.is_half_closed = true,
            Ok(n) => self.received.extend_from_slice(&bytes[..n]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.state = State::Gone,
        }
    }

    fn send(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if is_for_later(&e) => return,
                Err(_) => {
                    self.state = State::Gone;
                    self.unsent.clear();
                }
            }
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl AsFd for ControlClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
