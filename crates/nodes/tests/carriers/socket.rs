//! A transport over a Unix socket: each frame is a length and an envelope, and a frame of length zero returns a credit.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use veche_nodes::{
    DecodeError, DecodeErrorCounts, Envelope, MESSAGE_BYTES_MAX, NodeId, NodeTransport,
    NodeTransportFull, Sequencer,
};

use super::{A, B, CREDITS, Pair, received, samples};

/// Maximum number of bytes that wait to be written; when it is reached, sending is refused.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// One end of the socket.
pub(crate) struct Socket {
    stream: UnixStream,
    out: Vec<u8>,
    into: Vec<u8>,
    /// The number of data messages sent that the other end has not processed.
    unfinished: u32,
    ignored: DecodeErrorCounts,
    /// Whether the other end has sent an impossible length, after which nothing can be parsed.
    is_broken: bool,
}

impl Socket {
    fn new(stream: UnixStream) -> Self {
        stream
            .set_nonblocking(true)
            .expect("a socket that does not block");
        Self {
            stream,
            out: Vec::new(),
            into: Vec::new(),
            unfinished: 0,
            ignored: DecodeErrorCounts::default(),
            is_broken: false,
        }
    }

    fn flush(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The other end has closed the socket.
                Err(_) => return self.out.clear(),
            }
        }
    }

    fn fill(&mut self) {
        let mut buffer = [0; 16 << 10];
        while let Ok(count) = self.stream.read(&mut buffer) {
            if count == 0 {
                return;
            }
            self.into.extend_from_slice(&buffer[..count]);
        }
    }

    /// Returns the next frame that contains an envelope; handles credits before it.
    fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            let (length, rest) = self.into.split_first_chunk()?;
            let length = u32::from_be_bytes(*length) as usize;
            if length > MESSAGE_BYTES_MAX {
                self.ignored.add(DecodeError::TooLarge);
                self.is_broken = true;
                return None;
            }
            if rest.len() < length {
                return None;
            }
            let frame = rest[..length].to_vec();
            self.into.drain(..size_of::<u32>() + length);
            match frame.is_empty() {
                true => self.unfinished = self.unfinished.saturating_sub(1),
                false => return Some(frame),
            }
        }
    }
}

impl NodeTransport for Socket {
    fn send(&mut self, _: NodeId, envelope: Envelope) -> Result<(), NodeTransportFull> {
        let is_data = envelope.message.is_data();
        let has_credit = !is_data || self.unfinished < CREDITS;
        let bytes = envelope.encode();
        match bytes {
            Ok(bytes) if has_credit && self.out.len() + bytes.len() <= WAITING_BYTES_MAX => {
                self.unfinished += u32::from(is_data);
                self.out
                    .extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                self.out.extend_from_slice(&bytes);
                self.flush();
                Ok(())
            }
            Ok(_) | Err(_) => Err(NodeTransportFull(Box::new(envelope))),
        }
    }

    fn receive(&mut self) -> Option<Envelope> {
        self.flush();
        self.fill();
        while !self.is_broken {
            match Envelope::decode(&self.frame()?) {
                Ok(envelope) => return Some(envelope),
                Err(ignored) => self.ignored.add(ignored),
            }
        }
        None
    }

    fn return_credit(&mut self, _: NodeId) {
        self.out.extend_from_slice(&0_u32.to_be_bytes());
        self.flush();
    }
}

impl Pair for Socket {
    fn pair() -> (Self, Self) {
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        (Self::new(a), Self::new(b))
    }

    fn cut(one: &mut Self, other: &mut Self) {
        (*one, *other) = Self::pair();
    }
}

/// Sends a frame with these bytes.
fn send_frame(socket: &mut Socket, bytes: &[u8]) {
    socket
        .out
        .extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    socket.out.extend_from_slice(bytes);
    socket.flush();
}

#[test]
fn socket_hostile() {
    let (mut a, mut b) = Socket::pair();
    let envelope = Sequencer::new(A).wrap(samples::relay(b"x"), 0);
    send_frame(&mut a, b"something else");
    let mut later = envelope.encode().expect("a message that can be encoded");
    later[4] += 1;
    send_frame(&mut a, &later);
    // Returns more credits than were taken, which must have no effect.
    (0..2 * CREDITS).for_each(|_| a.return_credit(B));
    assert_eq!(a.send(B, envelope.clone()), Ok(()));
    assert_eq!(received(&mut b), envelope);
    let expected = DecodeErrorCounts {
        foreign: 1,
        other_version: 1,
        ..DecodeErrorCounts::default()
    };
    assert_eq!((b.ignored, b.unfinished), (expected, 0));
    a.out.extend_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(a.send(B, envelope), Ok(()));
    assert_eq!(b.receive(), None);
    assert!(b.is_broken && b.ignored.too_large == 1);
}
