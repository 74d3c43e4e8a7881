//! One end of the control link, the socket between supervisor and server process. Both sides send
//! lines; only one side sends descriptors.
//!
//! The socket is non-blocking and the buffers are bounded, so neither side can block the other. The meaning of the lines is
//! defined in `message`. The owner of a link polls [`ControlLink::as_fd`], and calls [`ControlLink::receive`] and
//! [`ControlLink::flush`].
//!
//! Descriptors are passed as `SCM_RIGHTS` rather than inherited by number, since turning a number into a descriptor
//! requires `unsafe`; the socket itself is inherited as standard input for the same reason.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use veche_net::scm_rights;

/// Maximum length of a line in bytes. It can contain two configurations of at most 1 MiB as JSON strings, in which a
/// character takes up to six bytes.
const LINE_BYTES_MAX: usize = 16 << 20;
/// The maximum number of unsent bytes.
const UNSENT_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;
/// The maximum number of descriptors that are received but not yet taken.
const DESCRIPTORS_MAX: usize = 1 << 16;
const RECEIVE_BYTES: usize = 64 << 10;

/// One end of the control link between supervisor and server process.
pub(crate) struct ControlLink {
    socket: UnixStream,
    received: Vec<u8>,
    /// The length of the prefix of `received` that was searched and contains no line end.
    scanned: usize,
    descriptors: VecDeque<OwnedFd>,
    unsent: Vec<u8>,
    ended: bool,
}

impl ControlLink {
    /// Returns a link and the socket for the other process.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::new(ours)?, OwnedFd::from(theirs)))
    }

    /// Wraps the socket to the supervisor, which this process got as its standard input.
    pub(crate) fn from_stdin() -> io::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        // Fails if standard input is not a socket, which means that the server process was started by hand.
        rustix::net::sockopt::socket_type(&socket)?;
        Self::new(UnixStream::from(socket))
    }

    /// Wraps a socket used by the previous program, with the part of a line that it had received.
    pub(crate) fn adopt(socket: OwnedFd, received: Vec<u8>) -> io::Result<Self> {
        let mut link = Self::new(UnixStream::from(socket))?;
        link.received = received;
        Ok(link)
    }

    /// Returns the received part of an incomplete line.
    pub(crate) fn received(&self) -> &[u8] {
        &self.received
    }

    /// Returns whether all messages have been sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            received: Vec::new(),
            scanned: 0,
            descriptors: VecDeque::new(),
            unsent: Vec::new(),
            ended: false,
        })
    }

    /// Queues a message and sends as much as the socket accepts.
    ///
    /// # Errors
    /// The other side is gone, or the limit of unsent bytes is exceeded.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        if line.len() > LINE_BYTES_MAX || self.unsent.len() + line.len() > UNSENT_BYTES_MAX {
            let why = format!(
                "a message on the control link exceeds {} MiB, or more than {} MiB wait to be sent",
                LINE_BYTES_MAX >> 20,
                UNSENT_BYTES_MAX >> 20
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        self.unsent.extend_from_slice(&line);
        self.flush()
    }

    /// Sends descriptors ahead of the next message. They are attached to empty lines, which the receiver skips.
    ///
    /// # Errors
    /// Errors of the socket, including `WouldBlock`, which does not occur on a new socket.
    pub(crate) fn send_descriptors(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        for some in descriptors.chunks(scm_rights::DESCRIPTORS_MAX) {
            scm_rights::send(&self.socket, b"\n", some)?;
        }
        Ok(())
    }

    /// Sends a message with a descriptor ahead of it.
    ///
    /// # Errors
    /// `WouldBlock`: earlier messages have not been sent completely, and this one is not sent. Also the errors of
    /// [`Self::send_descriptors`] and [`Self::send`].
    pub(crate) fn send_with(
        &mut self,
        descriptor: BorrowedFd<'_>,
        message: &impl Serialize,
    ) -> io::Result<()> {
        self.flush()?;
        // While a line is partly unsent, the empty line with the descriptor would be inserted into it.
        if !self.is_flushed() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.send_descriptors(&[descriptor])?;
        self.send(message)
    }

    /// Sends as many pending bytes as the socket accepts.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.ended {
            self.unsent.clear();
        }
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(());
            }
            match self.socket.write(&self.unsent[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        self.unsent.drain(..sent);
        result
    }

    /// Returns the events to poll for: readable, and writable while bytes are pending.
    pub(crate) fn wants(&self) -> PollFlags {
        if self.unsent.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        }
    }

    /// Returns whether the other side has closed the link. Its last messages can still be taken with [`Self::next`].
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Closes the link after an error.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.unsent.clear();
    }

    /// Reads available data.
    ///
    /// # Errors
    /// Errors of the socket, or a line or a number of descriptors over the limits. The link can't be used after an error.
    pub(crate) fn receive(&mut self) -> io::Result<()> {
        let mut bytes = [0; RECEIVE_BYTES];
        loop {
            let keep = |descriptor| self.descriptors.push_back(descriptor);
            let taken = match scm_rights::receive(&self.socket, &mut bytes, keep) {
                Ok(taken) => taken,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                // The peer died without reading all of our data. Its last messages have been read by now, so this is the end of
                // the stream.
                Err(Errno::CONNRESET) => 0,
                Err(e) => return Err(e.into()),
            };
            if taken == 0 {
                self.ended = true;
                return Ok(());
            }
            self.received.extend_from_slice(&bytes[..taken]);
            if self.received.len() > 2 * LINE_BYTES_MAX || self.descriptors.len() > DESCRIPTORS_MAX
            {
                let why = format!(
                    "more than {} MiB or {DESCRIPTORS_MAX} descriptors received on the control link have not been read",
                    (2 * LINE_BYTES_MAX) >> 20
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
    }

    /// Takes the next message, if a complete one has arrived. An invalid line is an error of that line only: the caller
    /// logs it and continues.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Option<Result<T, serde_json::Error>> {
        loop {
            let Some(length) = memchr_line_end(&self.received[self.scanned..]) else {
                self.scanned = self.received.len();
                return None;
            };
            let end = self.scanned + length;
            let line: Vec<u8> = self.received.drain(..=end).collect();
            self.scanned = 0;
            if line.len() > 1 {
                return Some(serde_json::from_slice(&line));
            }
        }
    }

    /// Takes the first `count` received descriptors; `None` if there are fewer.
    pub(crate) fn take_descriptors(&mut self, count: usize) -> Option<Vec<OwnedFd>> {
        (count <= self.descriptors.len()).then(|| self.descriptors.drain(..count).collect())
    }
}

fn memchr_line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'\n')
}

impl AsFd for ControlLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (ControlLink, ControlLink) {
        let (a, b) = ControlLink::pair().expect("a socket pair");
        (a, ControlLink::new(UnixStream::from(b)).expect("a link"))
    }

    #[test]
    fn descriptors_arrive_ahead_of_their_line_and_in_order() {
        let (mut ours, mut theirs) = both();
        let sockets: Vec<_> = (0..150)
            .map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"))
            .collect();
        let borrowed: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        ours.send_descriptors(&borrowed).expect("sent");
        ours.send(&"start").expect("sent");
        theirs.receive().expect("received");
        assert_eq!(
            theirs.next::<String>().expect("a line").expect("JSON"),
            "start"
        );
        assert!(theirs.take_descriptors(151).is_none());
        let got = theirs.take_descriptors(150).expect("all of them");
        for (sent, got) in sockets.iter().zip(got) {
            let got = std::net::TcpListener::from(got);
            assert_eq!(
                sent.local_addr().expect("bound"),
                got.local_addr().expect("bound")
            );
        }
    }

    #[test]
    fn a_descriptor_goes_with_its_message_or_not_at_all() {
        let (mut ours, mut theirs) = both();
        let (here, there) = UnixStream::pair().expect("a socket pair");
        ours.send_with(there.as_fd(), &"first").expect("sent");
        ours.send(&"x".repeat(1 << 20)).expect("queued");
        let busy = ours.send_with(there.as_fd(), &"second");
        let busy = busy.expect_err("a line is on its way");
        assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
        theirs.receive().expect("received");
        let first = theirs.next::<String>().expect("a line").expect("JSON");
        let mut got = theirs.take_descriptors(1).expect("it came ahead");
        assert_eq!(
            (first.as_str(), theirs.take_descriptors(1).is_none()),
            ("first", true)
        );
        let mut got = UnixStream::from(got.pop().expect("one"));
        got.write_all(b"!").expect("sent");
        let mut byte = [0];
        io::Read::read_exact(&mut &here, &mut byte).expect("it is the other end");
        assert_eq!(&byte, b"!");
    }

    #[test]
    fn a_bad_line_spoils_itself_alone() {
        let (mut ours, mut theirs) = both();
        ours.unsent.extend_from_slice(b"{nonsense\n\n");
        ours.send(&7).expect("sent");
        theirs.receive().expect("received");
        assert!(theirs.next::<u32>().expect("a line").is_err());
        assert_eq!(theirs.next::<u32>().expect("a line").expect("JSON"), 7);
        assert!(theirs.next::<u32>().is_none());
    }

    #[test]
    fn a_long_line_waits_for_the_reader_and_arrives_whole() {
        let (mut ours, mut theirs) = both();
        let text = "x\n".repeat(1 << 20);
        ours.send(&text).expect("queued");
        assert!(!ours.unsent.is_empty(), "no socket buffer is that large");
        let got = loop {
            theirs.receive().expect("received");
            if let Some(got) = theirs.next::<String>() {
                break got.expect("JSON");
            }
            ours.flush().expect("flushed");
        };
        assert_eq!(got, text);
        assert!(ours.unsent.is_empty());
    }

    #[test]
    fn a_peer_that_does_not_read_is_an_error_at_a_limit() {
        let (mut ours, _theirs) = both();
        let text = "x".repeat(1 << 20);
        let refused = (0..100)
            .position(|_| ours.send(&text).is_err())
            .expect("an error");
        assert!(refused * text.len() <= UNSENT_BYTES_MAX + (1 << 20));
    }

    #[test]
    fn the_end_follows_all_messages() {
        let (mut ours, mut theirs) = both();
        ours.send(&1).expect("sent");
        drop(ours);
        theirs.receive().expect("received");
        assert!(theirs.has_ended());
        assert_eq!(theirs.next::<u32>().expect("a line").expect("JSON"), 1);
    }
}
