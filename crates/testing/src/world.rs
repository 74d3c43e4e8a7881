//! The world of one test run: a real worker with the applications, on a simulated network and clock.
//!
//! Only sockets, the clock and external services are simulated: requests pass through the real front ends, routes and hub.
//! Clients are identified by number; expectations are checked in [`super::runner`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use veche_apps::{AppRecorder, CallExecutor};
use veche_calls::CallErrorKind;
use veche_clock::now;
use veche_net::{ConnectionId, Driver as _, ListenerId, Simulated};
use veche_proto::websocket::Codecs;
use veche_script::Now;

use super::client::{OpeningState, TestClient, Welcome};
use super::outside::{DialedSocket, MockServices};

/// The start of each run: 2026-01-01 00:00:00 UTC.
const WALL_MS: u64 = 1_767_225_600_000;
/// The monotonic clock at the start of each run, in milliseconds.
pub(super) const MONO_MS: u64 = 1_000_000;

/// The maximum number of consecutive turns of the worker's loop without new input, at the same simulated time. A run that
/// exceeds it fails, because its applications never become idle.
const TURNS_MAX: u64 = 5000;

/// The number of turns between checks of the time limit in real time.
const TURNS_PER_LOOK: u64 = 64;

/// The server under test: its routes and applications. Each run starts a separate worker from it.
pub trait TestServer {
    /// Returns a listener for HTTP by name or role (`public`, `internal`), or the first public one for an empty name,
    /// and its address.
    ///
    /// # Errors
    /// The configuration has no such listener.
    fn listener(&self, wanted: &str) -> Result<(ListenerId, String), String>;

    /// Returns the listener for the line protocol of back ends, which exists whether or not it is configured.
    fn push_listener(&self) -> ListenerId;

    /// Starts a worker and its applications on a separate network.
    ///
    /// # Errors
    /// Why an application can't start.
    fn start(&self, run: RunOptions<'_>) -> Result<Box<dyn TestWorker>, String>;
}

/// A worker on a simulated network.
pub trait TestWorker {
    /// Returns the simulated network of the worker.
    fn network(&mut self) -> &mut Simulated;

    /// Runs one turn of the worker's loop.
    ///
    /// # Errors
    /// Errors of the network driver.
    fn turn(&mut self) -> io::Result<()>;

    /// Returns the time at which applications have work to do, in monotonic milliseconds; `u64::MAX` for never.
    fn apps_deadline_ms(&self) -> u64;
}

/// The parameters with which the worker of a run is started.
pub struct RunOptions<'a> {
    /// The seed of all randomness.
    pub seed: u64,
    /// The services to start; `None` for all.
    pub services: Option<&'a [String]>,
    /// Records the publications of the applications.
    pub recorder: AppRecorder,
    /// Executes outgoing calls of handlers, in place of real services.
    pub calls: Box<dyn CallExecutor>,
    /// The monotonic clock at the start, in milliseconds.
    pub mono_ms: u64,
    /// The wall clock at the start, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// The world of one run.
pub(super) struct TestWorld {
    worker: Box<dyn TestWorker>,
    pub(super) clients: Vec<TestClient>,
    pub(super) recorder: AppRecorder,
    pub(super) outside: MockServices,
    back_end: Option<usize>,
    /// Connections that applications have opened to stubs of WebSocket servers, and that the test has not accepted yet:
    /// for each, the stub's number, the client's number and the URL.
    callers: Vec<(usize, usize, String)>,
    push_listener: ListenerId,
    codecs: Codecs,
    /// The time limit of the run, in real time.
    ends: Instant,
    within: Duration,
}

impl TestWorld {
    /// Creates a world with the named services; `None`: with all.
    pub(super) fn new(
        server: &dyn TestServer,
        seed: u64,
        within: Duration,
        services: Option<&[String]>,
    ) -> Result<Self, String> {
        let recorder = AppRecorder::default();
        let outside = MockServices::new(recorder.clone());
        let worker = server.start(RunOptions {
            seed,
            services,
            recorder: recorder.clone(),
            calls: Box::new(outside.clone()),
            mono_ms: MONO_MS,
            wall_ms: WALL_MS,
        })?;
        Ok(Self {
            worker,
            clients: Vec::new(),
            recorder,
            outside,
            back_end: None,
            callers: Vec::new(),
            push_listener: server.push_listener(),
            codecs: Codecs::default(),
            ends: now() + within,
            within,
        })
    }

    pub(super) fn network(&mut self) -> &mut Simulated {
        self.worker.network()
    }

    /// Returns the client with this number, and the network.
    pub(super) fn client(&mut self, number: usize) -> Option<(&mut TestClient, &mut Simulated)> {
        let client = self.clients.get_mut(number)?;
        Some((client, self.worker.network()))
    }

    pub(super) fn now_ms(&mut self) -> u64 {
        self.network().now_ms()
    }

    pub(super) fn now(&mut self) -> Now {
        let mono_ms = self.now_ms();
        let wall_ms = WALL_MS + (mono_ms - MONO_MS);
        Now { mono_ms, wall_ms }
    }

    /// Returns the milliseconds until applications act on their own; `None` for never.
    pub(super) fn apps_due_in_ms(&mut self) -> Option<u64> {
        let now_ms = self.now_ms();
        match self.worker.apps_deadline_ms() {
            u64::MAX => None,
            due_ms => Some(due_ms.saturating_sub(now_ms)),
        }
    }

    /// Connects a client and performs its first action; returns its number.
    pub(super) fn dial(
        &mut self,
        listener: ListenerId,
        remote: Option<IpAddr>,
        begin: impl FnOnce(ConnectionId, &mut Simulated) -> TestClient,
    ) -> usize {
        let remote = remote.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port = 50_000 + (self.clients.len() % 10_000) as u16;
        let from = SocketAddr::new(remote, port);
        let network = self.worker.network();
        let id = network.dial(listener, from);
        self.clients.push(begin(id, network));
        self.clients.len() - 1
    }

    /// Returns the number of the client that is the back end; connects it first if necessary.
    pub(super) fn back_end(&mut self) -> usize {
        if let Some(number) = self.back_end {
            return number;
        }
        let number = self.dial(self.push_listener, None, |id, _| TestClient::back_end(id));
        self.back_end = Some(number);
        number
    }

    /// Runs turns until the worker is idle.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        let (mut turns, mut by_itself) = (0_u64, 0);
        while by_itself < TURNS_MAX {
            turns += 1;
            self.worker
                .turn()
                .map_err(|error| format!("the worker failed: {error}"))?;
            self.take_calls();
            let network = self.worker.network();
            for client in &mut self.clients {
                client.hear(network, &mut self.codecs);
            }
            if network.idle_until_ms().is_some() {
                return Ok(());
            }
            by_itself = if network.has_delivered() {
                0
            } else {
                by_itself + 1
            };
            if turns.is_multiple_of(TURNS_PER_LOOK) {
                self.look_at_the_clock()?;
            }
        }
        Err(
            "the application does not become idle: it continues to work while the simulated time stands still"
                .to_owned(),
        )
    }

    /// Returns an error if the run has exceeded its time limit.
    fn look_at_the_clock(&self) -> Result<(), String> {
        if now() < self.ends {
            return Ok(());
        }
        Err(format!(
            "the test took longer than {} s of real time",
            self.within.as_secs()
        ))
    }

    /// Returns the time at which the world has work to do without further input, in monotonic milliseconds; `u64::MAX` for
    /// never. Valid after [`settle`](Self::settle).
    pub(super) fn next_ms(&mut self) -> u64 {
        let rests_ms = self.network().idle_until_ms().unwrap_or(0);
        rests_ms.min(self.outside.next_ms())
    }

    /// Accepts or refuses the connections that applications have dialed.
    fn take_calls(&mut self) {
        let network = self.worker.network();
        for (id, address) in network.take_dials() {
            let Some(DialedSocket {
                url,
                server: Some((stub, says)),
            }) = self.outside.dialed(address)
            else {
                network.refuse_dial(id);
                continue;
            };
            match says {
                // A stub that simulates a timeout: the connection is never established, and the application's time limit ends
                // the attempt.
                Err(fault) if fault.kind == CallErrorKind::Timeout => {}
                Err(_) => network.refuse_dial(id),
                Ok(says) => {
                    let text =
                        |key: &str| Some(says.get(key).text()).filter(|text| !text.is_empty());
                    let status = says.get("status").number();
                    let welcome = Welcome {
                        protocol: text("protocol"),
                        refusal: status
                            .map(|status| (status as u16, says.get("body").bytes().to_vec())),
                    };
                    network.accept_dial(id);
                    self.callers.push((stub, self.clients.len(), url));
                    self.clients.push(TestClient::serve(id, welcome));
                }
            }
        }
    }

    /// Accepts the next connection to the mocked WebSocket server of a stub; returns the client's number and the URL.
    pub(super) fn accept(&mut self, stub: usize) -> Option<(usize, String)> {
        let clients = &self.clients;
        let is_open = |client: usize| matches!(clients[client].opening, OpeningState::Open { .. });
        let mut callers = self.callers.iter();
        let place = callers.position(|(of, client, _)| *of == stub && is_open(*client))?;
        let (_, client, url) = self.callers.remove(place);
        Some((client, url))
    }

    /// Sets the clock to `now_ms`, which must not be later than the next due event.
    pub(super) fn set_now_ms(&mut self, now_ms: u64) -> Result<(), String> {
        self.network().set_now_ms(now_ms);
        self.outside.set_now_ms(now_ms);
        self.look_at_the_clock()
    }
}
