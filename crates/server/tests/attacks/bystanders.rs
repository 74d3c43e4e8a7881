//! Clients that behave: they say something every few milliseconds and get it back, and how long that took is kept.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Socket, now, percentile};

/// Between two messages of one of them.
const EVERY: Duration = Duration::from_millis(5);

/// Clients of one server.
pub(crate) struct Bystanders(Vec<Socket>);

impl Bystanders {
    pub(crate) fn of(server: SocketAddr, count: usize) -> Self {
        Self((0..count).map(|_| Socket::open(server, "/echo")).collect())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// All of them speak until then; the 99th percentile of what it took.
    ///
    /// Each message has a time when it is due, and its time counts from there: what is held up by an answer that was
    /// late counts as late itself.
    pub(crate) fn speak(&mut self, until: Instant) -> Duration {
        let mut samples: Vec<Duration> = thread::scope(|scope| {
            let sockets = self.0.iter_mut();
            let speaking: Vec<_> = sockets
                .map(|socket| scope.spawn(move || speak(socket, until)))
                .collect();
            let ended = speaking.into_iter().map(|thread| thread.join());
            ended
                .flat_map(|samples| samples.expect("a bystander is served"))
                .collect()
        });
        percentile(&mut samples, 0.99)
    }
}

fn speak(socket: &mut Socket, until: Instant) -> Vec<Duration> {
    let mut samples = Vec::new();
    let mut due = now();
    while due < until {
        thread::sleep(due.saturating_duration_since(now()));
        let text = format!("message {}", samples.len());
        socket.say(&text);
        assert_eq!(socket.text(), text);
        samples.push(now() - due);
        due += EVERY;
    }
    samples
}
