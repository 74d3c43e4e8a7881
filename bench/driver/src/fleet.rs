//! Opening many connections: non-blocking connects from several loopback addresses, the handshake, optionally one
//! message and its answer. `fleet::open` wants all of them; `storm` looks at who failed and how long each took.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::poll::Poll;
use crate::stream::{self, Stream};
use crate::{Target, handshake, tls};

/// Connections per source address: below the default range of local ports, and few enough to keep bind quick.
const PER_SOURCE: usize = 10_000;

/// What a storm tells about its connections.
pub struct Opened {
    pub connections: Vec<Option<Stream>>,
    /// Microseconds from connect to the 101.
    pub handshake_us: Histogram<u64>,
    /// Microseconds from the message to its answer.
    pub answer_us: Histogram<u64>,
    pub failures: BTreeMap<String, usize>,
}

/// The first message of a connection and what must come back.
pub struct FirstMessage {
    pub frame: Vec<u8>,
    pub answer: Vec<u8>,
}

enum Stage {
    Connecting,
    Head,
    Answer,
}

struct Attempt {
    stream: Stream,
    stage: Stage,
    since: Instant,
    received: Vec<u8>,
}

/// Opens all connections or says why one failed.
pub fn open(target: &Target, path: impl Fn(usize) -> String) -> anyhow::Result<Vec<Stream>> {
    let opened = attempt(target, path, None, Duration::from_secs(120))?;
    if let Some((failure, count)) = opened.failures.first_key_value() {
        bail!(
            "{count} of {} connections failed: {failure}",
            target.connections
        );
    }
    Ok(opened.connections.into_iter().flatten().collect())
}

/// Opens connections, `target.opening` at a time (0: all at once), and keeps those that opened.
pub fn attempt(
    target: &Target,
    path: impl Fn(usize) -> String,
    first: Option<&FirstMessage>,
    deadline: Duration,
) -> anyhow::Result<Opened> {
    let limit = if target.opening == 0 {
        target.connections
    } else {
        target.opening
    };
    let mut poll = Poll::new()?;
    let mut opened = Opened {
        connections: Vec::with_capacity(target.connections),
        handshake_us: Histogram::new(3)?,
        answer_us: Histogram::new(3)?,
        failures: BTreeMap::new(),
    };
    let mut attempts: Vec<Option<Attempt>> = Vec::with_capacity(target.connections);
    let mut busy = 0;
    let end = Instant::now() + deadline;
    let tls = target.tls.then(tls::config).transpose()?;
    while attempts.len() < target.connections || busy > 0 {
        while attempts.len() < target.connections && busy < limit {
            let index = attempts.len();
            let stream = Stream::new(connect(target.address, index)?, tls.as_ref())?;
            poll.writable(&stream, index)?;
            attempts.push(Some(Attempt {
                stream,
                stage: Stage::Connecting,
                since: Instant::now(),
                received: Vec::new(),
            }));
            opened.connections.push(None);
            busy += 1;
        }
        let ready: Vec<usize> = poll
            .wait(Duration::from_millis(100))?
            .map(|(name, _)| name)
            .collect();
        for index in ready {
            let Some(attempt) = &mut attempts[index] else {
                continue;
            };
            match advance(attempt, index, target, &path, first, &poll, &mut opened) {
                Ok(false) => continue,
                Ok(true) => {
                    let attempt = attempts[index].take().context("an attempt that is there")?;
                    poll.remove(&attempt.stream)?;
                    opened.connections[index] = Some(attempt.stream);
                }
                Err(error) => {
                    attempts[index] = None;
                    *opened.failures.entry(error.to_string()).or_default() += 1;
                }
            }
            busy -= 1;
        }
        if Instant::now() > end {
            let late = attempts.iter().flatten().count();
            opened
                .failures
                .insert("not done at the deadline".into(), late);
            break;
        }
    }
    Ok(opened)
}

/// One step of one connection; true when it is open.
fn advance(
    attempt: &mut Attempt,
    index: usize,
    target: &Target,
    path: &impl Fn(usize) -> String,
    first: Option<&FirstMessage>,
    poll: &Poll,
    opened: &mut Opened,
) -> anyhow::Result<bool> {
    if let Stage::Connecting = attempt.stage {
        if let Some(error) = attempt.stream.socket.take_error()? {
            bail!("connect: {error}");
        }
        let request = handshake::request(target.address, &path(index));
        ensure!(
            attempt.stream.write(&request)? == request.len(),
            "a handshake that does not fit the send buffer"
        );
        poll.change(&attempt.stream, index, false)?;
        attempt.stage = Stage::Head;
        return Ok(false);
    }
    // Before the handshake of TLS is over, what was written waits in it.
    attempt.stream.shake()?;
    let mut buffer = [0; 16 * 1024];
    let count = stream::read(&mut attempt.stream, &mut buffer)?;
    if count == 0 {
        return Ok(false);
    }
    attempt.received.extend_from_slice(&buffer[..count]);
    if let Stage::Head = attempt.stage {
        let Some(length) = handshake::response(&attempt.received)? else {
            return Ok(false);
        };
        ensure!(
            length == attempt.received.len(),
            "bytes behind the 101 that nobody asked for"
        );
        opened
            .handshake_us
            .record(attempt.since.elapsed().as_micros() as u64)?;
        let Some(first) = first else { return Ok(true) };
        attempt.received.clear();
        attempt.since = Instant::now();
        ensure!(
            attempt.stream.write(&first.frame)? == first.frame.len(),
            "a message that does not fit the send buffer"
        );
        attempt.stage = Stage::Answer;
        return Ok(false);
    }
    let first = first.ok_or_else(|| anyhow!("no first message"))?;
    if attempt.received.len() < first.answer.len() {
        return Ok(false);
    }
    ensure!(
        attempt.received == first.answer,
        "another answer than the message"
    );
    opened
        .answer_us
        .record(attempt.since.elapsed().as_micros() as u64)?;
    Ok(true)
}

/// Starts a connect. Loopback targets get source addresses 127.0.0.2, .3, … in turn, since one address has fewer
/// ports than some scenarios have connections. Closing resets: no run leaves TIME_WAIT to the next.
pub fn connect(address: SocketAddr, index: usize) -> anyhow::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_tcp_nodelay(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    if address.ip().is_loopback() && address.is_ipv4() {
        let source = Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(index / PER_SOURCE)?);
        socket.bind(&SockAddr::from(SocketAddrV4::new(source, 0)))?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error).context("connect"),
    }
    Ok(socket.into())
}
