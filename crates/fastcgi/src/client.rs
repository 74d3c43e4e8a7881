//! Connections to a FastCGI server, each with one request at a time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep_until, timeout};

use crate::address::Address;
use crate::params::Params;
use crate::record;
use crate::response::{PartialResponse, Response};

/// The maximum number of bytes of one read.
const READ_BYTES: usize = 65_536;

/// Limits of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// The time for which an idle connection is kept open. If the time is zero, each connection is closed
    /// after its response. An idle connection occupies a process of php-fpm. If php-fpm has a `pm.max_requests`, requests
    /// sent on idle connections may be lost.
    pub idle_timeout: Duration,
    /// The time limit for opening a connection.
    pub connect_timeout: Duration,
    /// Maximum length of a response in bytes, including its head.
    pub response_bytes_max: usize,
    /// The maximum number of stored bytes of a response's STDERR.
    pub log_bytes_max: usize,
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All processes are busy and the backlog is full, or the server reports overload. The script has not run.
    #[error("all processes of the FastCGI server are busy")]
    Overloaded,
    /// The connection failed. The script has not run.
    #[error("not connected: {0}")]
    Unreachable(#[source] io::Error),
    /// The connection ended before the response did. The script may have run.
    #[error("the connection ended before the response did")]
    Lost(#[source] io::Error),
    /// The response is not valid FastCGI.
    #[error("{0}")]
    Malformed(String),
    /// The response is longer than this limit.
    #[error("the response has more than {0} bytes")]
    TooLong(usize),
}

/// A client of one FastCGI server. Clones share the same connections.
///
/// The client opens one connection per concurrent request and has no limit of its own: the caller must not start more
/// concurrent requests than php-fpm has processes for this client. If a request's future is dropped, its connection is
/// closed, which the script notices when it writes.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    address: Address,
    limits: ClientLimits,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// Idle connections with the time at which each is closed, ordered by that time.
    connections: VecDeque<(Connection, Instant)>,
    /// Whether a task is running that closes expired connections.
    is_watched: bool,
}

#[derive(Debug)]
enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// The failure of a request on one connection.
struct Failure {
    error: Error,
    /// Whether no byte of the request was sent. If so, the request may be sent again on another connection.
    is_unsent: bool,
}

impl Client {
    /// Creates a client without connections.
    #[must_use]
    pub fn new(address: Address, limits: ClientLimits) -> Self {
        Self(Arc::new(Inner {
            address,
            limits,
            idle: Mutex::default(),
        }))
    }

    /// Sends a request and waits for its response.
    ///
    /// If no byte of the request could be sent because the server had closed the idle connection, the request is sent again on
    /// another connection. It is not repeated in any other case.
    ///
    /// # Errors
    ///
    /// No response was received. Whether the script may have run depends on the error.
    pub async fn request(&self, params: Params, body: &[u8]) -> Result<Response, Error> {
        let is_kept = !self.0.limits.idle_timeout.is_zero();
        let mut request = Vec::with_capacity(body.len() + 4096);
        record::begin(&mut request, is_kept);
        params.write(&mut request);
        record::body(&mut request, body);
        while let Some(connection) = self.0.take() {
            match self.on(connection, &request).await {
                Err(Failure {
                    is_unsent: true, ..
                }) => {}
                result => return result.map_err(|failure| failure.error),
            }
        }
        let connection = self.0.connect().await?;
        let result = self.on(connection, &request).await;
        result.map_err(|failure| failure.error)
    }

    /// Returns the number of idle connections.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        self.0.idle.lock().connections.len()
    }

    /// Sends a request on a connection, and keeps the connection if it can be reused.
    async fn on(&self, connection: Connection, request: &[u8]) -> Result<Response, Failure> {
        let limits = &self.0.limits;
        let (result, connection) = match connection {
            Connection::Unix(mut stream) => {
                let result = exchange(&mut stream, request, limits).await;
                (result, Connection::Unix(stream))
            }
            Connection::Tcp(mut stream) => {
                let result = exchange(&mut stream, request, limits).await;
                (result, Connection::Tcp(stream))
            }
        };
        let (partial, is_all_sent) = result?;
        let is_of_use = is_all_sent && partial.is_clean() && !limits.idle_timeout.is_zero();
        let response = partial.ended().map_err(|error| Failure {
            error,
            is_unsent: false,
        })?;
        if is_of_use {
            self.0.keep(connection);
        }
        Ok(response)
    }
}

/// Sends a request while its response is being read. Returns the response and whether the whole request was sent.
async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
    limits: &ClientLimits,
) -> Result<(PartialResponse, bool), Failure> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut partial = PartialResponse::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut left = request;
    // After a write error the peer no longer reads, but its response may have been sent before.
    let mut broken: Option<io::Error> = None;
    loop {
        tokio::select! {
            written = writer.write(left), if !left.is_empty() && broken.is_none() => match written {
                Ok(bytes) => left = &left[bytes..],
                Err(error) if left.len() == request.len() && !partial.has_begun() => {
                    return Err(Failure { error: Error::Lost(error), is_unsent: true });
                }
                Err(error) => broken = Some(error),
            },
            read = reader.read(&mut buffer) => {
                let lost = |error| Failure { error: Error::Lost(error), is_unsent: false };
                let bytes = match read {
                    Ok(0) => return Err(lost(broken.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))),
                    Ok(bytes) => bytes,
                    Err(error) => return Err(lost(error)),
                };
                let taken = partial.take(&buffer[..bytes], limits);
                if taken.map_err(|error| Failure { error, is_unsent: false })? {
                    return Ok((partial, left.is_empty()));
                }
            }
        }
    }
}

impl Inner {
    /// Returns the most recently used idle connection that the server has not closed.
    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some((connection, _)) = idle.connections.pop_back() {
            if connection.is_silent() {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let connecting = async {
            Ok::<_, io::Error>(match &self.address {
                Address::Unix(path) => Connection::Unix(UnixStream::connect(path).await?),
                Address::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Connection::Tcp(stream)
                }
            })
        };
        let within = self.limits.connect_timeout;
        match timeout(within, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            // The backlog of a Unix socket is full.
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::Overloaded),
            Ok(Err(error)) => Err(Error::Unreachable(error)),
            Err(_) => {
                let words = format!("no connection within {within:?}");
                Err(Error::Unreachable(io::Error::new(
                    io::ErrorKind::TimedOut,
                    words,
                )))
            }
        }
    }

    /// Stores an idle connection for the next request.
    fn keep(self: &Arc<Self>, connection: Connection) {
        let mut idle = self.idle.lock();
        let until = Instant::now() + self.limits.idle_timeout;
        idle.connections.push_back((connection, until));
        if !idle.is_watched {
            idle.is_watched = true;
            tokio::spawn(close_idle(Arc::downgrade(self), until));
        }
    }
}

/// Closes idle connections as they expire; ends when there are none left.
async fn close_idle(client: Weak<Inner>, mut next: Instant) {
    loop {
        sleep_until(next).await;
        let Some(client) = client.upgrade() else {
            return;
        };
        let mut idle = client.idle.lock();
        let now = Instant::now();
        while idle
            .connections
            .front()
            .is_some_and(|(_, until)| *until <= now)
        {
            idle.connections.pop_front();
        }
        match idle.connections.front() {
            Some((_, until)) => next = *until,
            None => {
                idle.is_watched = false;
                return;
            }
        }
    }
}

impl Connection {
    /// Returns whether the server has neither closed the connection nor sent data.
    fn is_silent(&self) -> bool {
        let stream = match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        };
        // Asks the kernel directly, since tokio may not have processed the end of the connection yet.
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let read = rustix::net::recv(stream, &mut [0_u8; 1], flags);
        matches!(read, Err(Errno::AGAIN))
    }
}
