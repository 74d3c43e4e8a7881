//! One thread of a run: its sockets, its clients, and the load that controls them.
//!
//! Received bytes pass through TLS (if it is used) and the client's state to the load. All data that the load sends to
//! the client while it handles one chunk of received bytes is written together.

mod inbound;
mod io;
mod net;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use veche_net::{ConnectionId, Driver, Epoll, Options};
use veche_proto::websocket::Codecs;

use crate::client::{AddressFamilyChoice, ClientState, ClientTls, LoadClient};
use crate::clock::{MILLISECOND, SECOND, now_ns};
use crate::control::Control;
use crate::loads::Load;
use crate::plan::ThreadPlan;
use crate::resource_usage;
use crate::schedule::Schedule;
use crate::tally::Tally;

pub(crate) use io::LoadIo;
use net::EndpointAddresses;
pub(crate) use net::EngineState;

/// The time that servers have to answer the tester's closing handshake.
const LEAVE_NS: u64 = 2 * SECOND;
/// An iteration of the event loop that exceeds its intended wait by this much is a pause: the tester
/// was stopped or no core was free for it.
const PAUSE_NS: u64 = SECOND / 4;
/// The maximum wait for events, so that the thread notices the end of the run.
const WAIT_NS: u64 = 20 * MILLISECOND;

/// Runs a thread's part of the plan to its end.
pub(crate) fn run(
    share: &ThreadPlan,
    load: &mut dyn Load,
    control: &Control,
) -> std::io::Result<Tally> {
    // By default, the kernel may delay wakeups by 50 µs.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut engine = Engine::new(share, load)?;
    let mut driver = Epoll::new(Options {
        receives_max: 256,
        ..Options::default()
    })?;
    engine.run(&mut driver, share, control)?;
    // If the run was a shootout or was interrupted, some of the planned clients may never have been opened.
    engine.net.tally.asked = u64::from(engine.next);
    Ok(engine.net.tally)
}

struct Engine<'l> {
    net: EngineState,
    codecs: Codecs,
    /// Data decrypted by TLS.
    plain: Vec<u8>,
    load: &'l mut dyn Load,
    /// Number of the next client to open.
    next: u32,
}

impl<'l> Engine<'l> {
    fn new(share: &ThreadPlan, load: &'l mut dyn Load) -> std::io::Result<Self> {
        let plan = Arc::clone(&share.plan);
        let mut clients = Vec::new();
        let mut trusts = Vec::new();
        for (index, (endpoint, range)) in plan.endpoints.iter().zip(&share.ranges).enumerate() {
            trusts.push(if endpoint.target.scheme.is_tls() {
                Some(
                    ClientTls::new(&endpoint.tls, &endpoint.target.host)
                        .map_err(std::io::Error::other)?,
                )
            } else {
                None
            });
            clients.extend(range.clone().map(|number| LoadClient {
                transport: ConnectionId {
                    index: 0,
                    generation: 0,
                },
                state: ClientState::Closed,
                tls: None,
                began_ns: 0,
                endpoint: index as u16,
                number,
                was_open: false,
                family: AddressFamilyChoice::First,
            }));
        }
        let count = clients.len();
        Ok(Self {
            net: EngineState {
                tally: Tally {
                    asked: clients.len() as u64,
                    ..Tally::default()
                },
                now_ns: now_ns(),
                from_ns: u64::MAX,
                until_ns: u64::MAX,
                grace_until_ns: None,
                has_heartbeats: plan
                    .endpoints
                    .iter()
                    .any(|endpoint| !endpoint.heartbeats.is_empty()),
                rng: fastrand::Rng::with_seed(plan.seed ^ (u64::from(share.index) << 32)),
                clients,
                client_by_slot: Vec::new(),
                trusts,
                codecs: Codecs::new(),
                current: None,
                out: Vec::new(),
                encrypted: Vec::new(),
                spare: Vec::new(),
                opening: 0,
                sources: plan.sources.clone(),
                unsent: vec![0; count],
                unsent_in_all: 0,
                families: plan.endpoints.iter().map(EndpointAddresses::new).collect(),
                next_source: share.index as usize,
                work_began_ns: 0,
                plan,
            },
            codecs: Codecs::new(),
            plain: Vec::new(),
            load,
            next: 0,
        })
    }

    fn run(
        &mut self,
        driver: &mut Epoll,
        share: &ThreadPlan,
        control: &Control,
    ) -> std::io::Result<()> {
        let plan = Arc::clone(&share.plan);
        let live = control.thread(share.index);
        let mut pace = plan
            .connect_rate
            .map(|rate| Schedule::new(share.rate(rate)));
        let opening_max = share.limit(plan.opening_max);
        let opens_first = self.load.opens_first();
        let mut stage = Stage::Opening;
        let mut marks = resource_usage::CpuMark::default();
        let mut shown_second = 0;
        // The time at which the current iteration should end; used to detect pauses during the run.
        let mut expected = None;
        if !opens_first {
            live.ready.store(true, Relaxed);
        }
        loop {
            let now = now_ns();
            self.net.now_ns = now;
            let mut due = now + WAIT_NS;
            let may_open = match stage {
                Stage::Opening => opens_first,
                Stage::Running => true,
                Stage::Draining | Stage::Leaving(_) => false,
            };
            if may_open {
                due = due.min(self.open_some(driver, opening_max, &mut pace));
            }
            let all_open = self.next >= self.load.opens_until(&self.net) && self.net.opening == 0;
            match stage {
                Stage::Opening => {
                    if opens_first && all_open {
                        live.ready.store(true, Relaxed);
                    }
                    let start = control.start_ns();
                    due = due.min(start.max(now));
                    if control.is_stopped() {
                        self.net.until_ns = now;
                        stage = Stage::Draining;
                    } else if now >= start {
                        self.net.from_ns = start + plan.warmup_ns;
                        self.net.until_ns = plan
                            .duration_ns
                            .map_or(u64::MAX, |duration| self.net.from_ns + duration);
                        self.load.begin(
                            &mut LoadIo {
                                driver,
                                net: &mut self.net,
                            },
                            start,
                        );
                        stage = Stage::Running;
                        due = now;
                    }
                }
                Stage::Running => {
                    let measured_ns = now.saturating_sub(self.net.from_ns);
                    let pause_ns = expected.map_or(0, |expected| now.saturating_sub(expected));
                    if pause_ns >= PAUSE_NS && measured_ns > 0 {
                        let tally = &mut self.net.tally;
                        tally.pause_ns_max = tally.pause_ns_max.max(pause_ns);
                    }
                    if measured_ns / SECOND > shown_second {
                        shown_second = measured_ns / SECOND;
                        let p99_ns = self.net.tally.latency.recent_p99_ns(measured_ns);
                        live.p99_ns.store(p99_ns, Relaxed);
                    }
                    marks.begin_at(self.net.from_ns, now, &mut self.net.tally);
                    if control.is_stopped() {
                        self.net.until_ns = self.net.until_ns.min(now);
                    }
                    let is_over =
                        now >= self.net.until_ns || (all_open && self.load.is_done(&self.net));
                    if is_over {
                        if self.net.until_ns == u64::MAX {
                            self.net.until_ns = now;
                        } else {
                            // Messages due before the end are sent even if they are late, so that
                            // the figures show a delay of the tester.
                            self.load.due(&mut LoadIo {
                                driver,
                                net: &mut self.net,
                            });
                        }
                        marks.end(&mut self.net.tally);
                        live.done.store(true, Relaxed);
                        stage = Stage::Draining;
                        due = now;
                    } else {
                        due = due.min(self.net.until_ns);
                        let next = self.load.due(&mut LoadIo {
                            driver,
                            net: &mut self.net,
                        });
                        due = due.min(next);
                    }
                }
                Stage::Draining => {
                    live.done.store(true, Relaxed);
                    self.load.drain(&mut LoadIo {
                        driver,
                        net: &mut self.net,
                    });
                    let give_up = self.net.until_ns.saturating_add(plan.timeout_ns);
                    let is_held = control.is_held();
                    if control.is_aborted()
                        || (!is_held && (self.load.is_settled(&self.net) || now >= give_up))
                    {
                        self.load.finish(&mut self.net);
                        self.leave(driver);
                        stage = Stage::Leaving(now + LEAVE_NS);
                    }
                }
                Stage::Leaving(until) => {
                    let is_gone = self
                        .net
                        .clients
                        .iter()
                        .all(|client| matches!(client.state, ClientState::Closed));
                    if is_gone || now >= until || control.is_aborted() {
                        return Ok(());
                    }
                }
            }
            live.show(&self.net.tally);
            let then = now_ns();
            let wait = due.saturating_sub(then);
            // The first iteration of the run may take long because it has much to send, so it does not
            // count as a pause.
            expected = match (&stage, expected) {
                (Stage::Running, Some(_)) => Some(now + wait),
                (Stage::Running, None) => Some(then + wait),
                _ => None,
            };
            self.turn(driver, wait)?;
        }
    }

    /// Opens connections as the rate permits; returns when to continue.
    fn open_some(
        &mut self,
        driver: &mut Epoll,
        opening_max: u32,
        pace: &mut Option<Schedule>,
    ) -> u64 {
        let now = self.net.now_ns;
        let until = self.load.opens_until(&self.net);
        while self.net.opening < opening_max && self.next < until {
            let due = match pace {
                None => now_ns(),
                Some(pace) => {
                    let due = pace.due(now);
                    if due > now {
                        return due;
                    }
                    pace.next();
                    self.net.tally.late_connects += u64::from(now - due > MILLISECOND);
                    due
                }
            };
            let client_index = self.next;
            self.next += 1;
            let mut io = LoadIo {
                driver,
                net: &mut self.net,
            };
            if let Err(fault) = io.open_due(client_index, due) {
                self.fail(driver, client_index, &fault);
            }
        }
        u64::MAX
    }

    fn turn(&mut self, driver: &mut Epoll, wait_ns: u64) -> std::io::Result<()> {
        self.net.work_began_ns = 0;
        let wait = Duration::from_nanos(wait_ns);
        driver.turn_within(Some(wait), &mut |driver, event| self.event(driver, event))?;
        if self.net.work_began_ns > 0 && self.net.now_ns >= self.net.from_ns {
            let lag = now_ns() - self.net.work_began_ns;
            self.net.tally.lag_ns_max = self.net.tally.lag_ns_max.max(lag);
        }
        Ok(())
    }

    /// Closes all open clients.
    fn leave(&mut self, driver: &mut Epoll) {
        for client_index in 0..self.net.clients.len() as u32 {
            let mut io = LoadIo {
                driver,
                net: &mut self.net,
            };
            io.leave(client_index);
        }
    }
}

enum Stage {
    /// Connections are being opened. Those that are open wait until all are open.
    Opening,
    Running,
    /// The run waits for the last answers.
    Draining,
    /// The run waits until this time for servers to answer the closing handshake.
    Leaving(u64),
}
