//! Well-behaved clients: they send a message every few milliseconds, receive its echo, and record the latency.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Socket, now, percentile};

/// The interval between messages of one client.
const EVERY: Duration = Duration::from_millis(5);

/// The interval between new connections of a client that reconnects.
const ANEW_EVERY: Duration = Duration::from_millis(20);

/// The clients of one server.
pub(crate) struct Bystanders {
    server: SocketAddr,
    sockets: Vec<Socket>,
    has_newcomers: bool,
}

/// The latencies of well-behaved clients.
#[derive(Debug)]
pub(crate) struct Waits {
    /// The 99th percentile of the latency of echoes.
    p99: Duration,
    /// The maximum latency of echoes. It is only displayed, since the machine itself may cause it.
    worst: Duration,
    /// The 99th percentile of the latency of newcomers: connection, handshake and first echo.
    newcomers_p99: Duration,
}

impl Waits {
    /// Returns the values in milliseconds.
    pub(crate) fn shown(&self) -> Value {
        let ms = |wait: Duration| (wait.as_secs_f64() * 10_000.0).round() / 10.0;
        json!({"p99_ms": ms(self.p99), "worst_ms": ms(self.worst), "anew_p99_ms": ms(self.newcomers_p99)})
    }

    /// Returns whether these latencies exceed those of `beside`, measured on another server, by at most `later` per
    /// round trip.
    pub(crate) fn is_within(&self, beside: &Self, later: Duration) -> bool {
        self.p99 <= beside.p99 + later
            && self.newcomers_p99 <= beside.newcomers_p99 + ANEW_TRIPS * later
    }
}

/// The round trips of a new client: accept, upgrade, echo.
const ANEW_TRIPS: u32 = 3;

impl Bystanders {
    pub(crate) fn of(server: SocketAddr, count: usize) -> Self {
        Self {
            server,
            sockets: (0..count).map(|_| Socket::open(server, "/echo")).collect(),
            has_newcomers: false,
        }
    }

    /// Adds a client that reconnects for each message.
    pub(crate) fn with_newcomers(self, has_newcomers: bool) -> Self {
        Self {
            has_newcomers,
            ..self
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.sockets.len() as u64
    }

    /// Runs all clients until a time.
    ///
    /// The latency of a message counts from when it is due, even if it is sent later.
    pub(crate) fn speak(&mut self, until: Instant) -> Waits {
        let (server, has_newcomers) = (self.server, self.has_newcomers);
        let (mut samples, mut newcomers) = thread::scope(|scope| {
            let newcomers = scope.spawn(move || match has_newcomers {
                true => come(server, until),
                false => Vec::new(),
            });
            let sockets = self.sockets.iter_mut();
            let speaking: Vec<_> = sockets
                .map(|socket| scope.spawn(move || speak(socket, until)))
                .collect();
            let ended = speaking.into_iter().map(|thread| thread.join());
            let samples: Vec<Duration> = ended
                .flat_map(|samples| samples.expect("a bystander is served"))
                .collect();
            (samples, newcomers.join().expect("a newcomer is served"))
        });
        let worst = samples.iter().max().copied();
        Waits {
            p99: percentile(&mut samples, 0.99),
            worst: worst.unwrap_or_default(),
            newcomers_p99: match newcomers.is_empty() {
                true => Duration::ZERO,
                false => percentile(&mut newcomers, 0.99),
            },
        }
    }
}

/// Connects, exchanges a message and leaves, repeatedly. A slow round delays the start of the next round. The latency
/// of a round counts from the time at which it was due.
fn come(server: SocketAddr, until: Instant) -> Vec<Duration> {
    let mut samples = Vec::new();
    let mut due = now();
    while due < until {
        thread::sleep(due.saturating_duration_since(now()));
        let mut socket = Socket::open(server, "/echo");
        socket.say("hello");
        assert_eq!(socket.text(), "hello");
        samples.push(now() - due);
        socket.leave();
        due = now().max(due + ANEW_EVERY);
    }
    samples
}

/// Sends a message at each interval. All messages that became due while responses were awaited are sent at once: if
/// they were sent one by one, the delay by one long turn of the server would be counted for each of them.
fn speak(socket: &mut Socket, until: Instant) -> Vec<Duration> {
    let mut samples = Vec::new();
    let mut due = now();
    while due < until {
        thread::sleep(due.saturating_duration_since(now()));
        let mut sent = Vec::new();
        while due <= now() {
            let text = format!("message {}", samples.len() + sent.len());
            socket.say(&text);
            sent.push((text, due));
            due += EVERY;
        }
        for (text, due) in sent {
            assert_eq!(socket.text(), text);
            samples.push(now() - due);
        }
    }
    samples
}
