//! A process: its socket, its output and the events that it is handling.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use veche_runtime::wire::{EventName, FrameDecoder, FrameLimits, PREFIX_BYTES};
use veche_spawner::{PoolLink, Spawned};

use crate::figures::RestartReason;
use crate::lines::Lines;
use crate::options::Options;
use crate::output::OutputBuffer;
use crate::shared::{EventJob, ProcessKey};
use crate::watch::{Watch, WatchSource};

/// The maximum number of bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// The maximum number of events that wait in the socket of a process.
const AHEAD_MAX: u128 = 256;

/// Maximum total time of the events that wait in the socket of a process. One write then carries as
/// many events as the process handles in this time, and no event waits much longer than this for
/// the events before it.
const AHEAD_TIME: Duration = Duration::from_millis(1);

/// A process that takes longer than this for an event on average gets its events one at a time.
const QUICK: Duration = Duration::from_micros(200);

/// The beginning of an event's frame, before its id.
const HEAD: &[u8] = br#"{"type":"event","id":"#;

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolProcessState {
    /// The deadline for the process to send hello and to answer the event `start`.
    Starting { until: Instant },
    /// The process has answered the event `start` and accepts events.
    Ready,
    /// The process was requested to stop, or has announced its end. If it is still running at this time, it is killed.
    Stopping { until: Instant },
    /// The process's socket is closed. If the process is still running at this time, it is killed.
    Over { until: Instant },
}

/// An event assigned to a process.
#[derive(Debug)]
pub(crate) struct InHand {
    /// `None` for the events `start` and `stop`.
    pub(crate) job: Option<EventJob>,
    pub(crate) name: EventName,
    /// The time from which the process could handle the event; `None` while other events precede it.
    pub(crate) since: Option<Instant>,
}

/// One process of a pool.
#[derive(Debug)]
pub(crate) struct PoolProcess {
    pub(crate) key: ProcessKey,
    pub(crate) instance: u32,
    pub(crate) state: PoolProcessState,
    /// The process that this one replaces. The replaced process is ended once this one is ready.
    pub(crate) replaces: Option<ProcessKey>,
    /// The reason why the process has to be replaced, if any.
    pub(crate) worn: Option<RestartReason>,
    /// Whether the process was requested to stop.
    pub(crate) is_asked: bool,
    pub(crate) started: Instant,
    pub(crate) in_hand: BTreeMap<u64, InHand>,
    /// Resident memory in bytes at the last measurement.
    pub(crate) rss_bytes: u64,
    /// Number of answered events.
    pub(crate) jobs: u64,
    /// The events that the process handles, as a set of bits; see [`bit`](crate::shared::bit).
    pub(crate) events: u32,
    pub(crate) concurrency: usize,
    pid: u32,
    /// The memory figures of the process (`/proc/PID/statm`), opened by the spawner.
    statm: Option<File>,
    /// The exit status, once the spawner has reaped the process.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: Lines<File>,
    pub(crate) stderr: Lines<File>,
    /// The first lines that the process has written to its standard error while starting.
    pub(crate) start_errors: String,
    socket: Option<UnixStream>,
    decoder: FrameDecoder,
    output: OutputBuffer,
    /// Whether the pool thread waits until the socket accepts more.
    is_write_watched: bool,
    last_id: u64,
    /// The recent average duration of an event.
    pace: Duration,
    answered: Option<Instant>,
    /// Whether the process has handled an event other than its own `start` and `stop`.
    is_used: bool,
}

impl PoolProcess {
    /// Wraps a process that was just started.
    pub(crate) fn new(
        spawned: Spawned,
        options: &Options,
        key: ProcessKey,
        instance: u32,
        now: Instant,
    ) -> Self {
        Self {
            key,
            instance,
            state: PoolProcessState::Starting {
                until: now + options.start_timeout,
            },
            replaces: None,
            worn: None,
            is_asked: false,
            rss_bytes: 0,
            started: now,
            in_hand: BTreeMap::new(),
            jobs: 0,
            events: 0,
            concurrency: 1,
            pid: spawned.pid,
            statm: spawned.statm,
            status: None,
            stdout: Lines::new(Some(spawned.stdout)),
            stderr: Lines::new(Some(spawned.stderr)),
            start_errors: String::new(),
            socket: Some(spawned.socket),
            decoder: FrameDecoder::new(FrameLimits::default()),
            output: OutputBuffer::default(),
            is_write_watched: false,
            last_id: 0,
            pace: QUICK * 2,
            answered: None,
            is_used: false,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Adds the process's socket, standard output and standard error to the sources that the pool thread waits for.
    pub(crate) fn watch(&self, watch: &Watch) -> rustix::io::Result<()> {
        let key = self.key;
        if let Some(socket) = &self.socket {
            watch.add(socket, WatchSource::Socket(key))?;
        }
        if let Some(pipe) = self.stdout.pipe() {
            watch.add(pipe, WatchSource::Output(key))?;
        }
        if let Some(pipe) = self.stderr.pipe() {
            watch.add(pipe, WatchSource::Output(key))?;
        }
        Ok(())
    }

    /// If there is output, makes the pool thread wait until the socket accepts more bytes.
    /// Otherwise ends that wait.
    pub(crate) fn watch_writes(&mut self, watch: &Watch) {
        let writes = self.has_output();
        if writes != self.is_write_watched
            && let Some(socket) = &self.socket
        {
            let set = watch.set_writes(socket, WatchSource::Socket(self.key), writes);
            self.is_write_watched = writes && set.is_ok();
        }
    }

    /// Returns whether the pool thread waits until the socket accepts more, and then writes.
    pub(crate) fn is_write_watched(&self) -> bool {
        self.is_write_watched
    }

    /// Returns whether the output has bytes that the socket has not accepted.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns how many more events the process accepts now.
    pub(crate) fn room(&self) -> usize {
        if self.state != PoolProcessState::Ready {
            return 0;
        }
        let ahead = match self.pace < QUICK {
            true => (AHEAD_TIME.as_nanos() / self.pace.as_nanos().max(1)).min(AHEAD_MAX) as usize,
            false => 0,
        };
        (self.concurrency + ahead).saturating_sub(self.in_hand.len())
    }

    /// Appends a whole frame to the output.
    pub(crate) fn write_frame(&mut self, frame: Vec<u8>) {
        self.output.push_rest(frame, 0);
    }

    /// Sends an event. The id 0 in `frame` is replaced by a new id. The outcome goes to the outlet of `job`.
    pub(crate) fn hand(
        &mut self,
        name: EventName,
        frame: Vec<u8>,
        job: Option<EventJob>,
        now: Instant,
    ) {
        self.last_id += 1;
        let id = self.last_id.to_string();
        let mut head = [0; 4];
        head.copy_from_slice(&frame[..4]);
        // The placeholder id `0`, a single digit, is replaced by the real id.
        let head_bytes = u32::from_le_bytes(head) + id.len() as u32 - 1;
        self.output.push(&head_bytes.to_le_bytes());
        self.output.push(&frame[4..PREFIX_BYTES]);
        self.output.push(HEAD);
        self.output.push(id.as_bytes());
        self.output.push_rest(frame, PREFIX_BYTES + HEAD.len() + 1);
        self.is_used |= job.is_some();
        let is_begun = self.in_hand.len() < self.concurrency;
        let since = is_begun.then_some(now);
        self.in_hand
            .insert(self.last_id, InHand { job, name, since });
    }

    /// Removes an answered event. Returns it and its duration.
    pub(crate) fn answered(&mut self, id: u64, now: Instant) -> Option<(InHand, Duration)> {
        let taken = self.in_hand.remove(&id)?;
        self.jobs += 1;
        let begun = taken.since.unwrap_or(now);
        let begun = self.answered.map_or(begun, |last| begun.max(last));
        let took = now.saturating_duration_since(begun);
        self.pace = (self.pace * 7 + took) / 8;
        self.answered = Some(now);
        for next in self.in_hand.values_mut().take(self.concurrency) {
            next.since.get_or_insert(now);
        }
        Some((taken, took))
    }

    /// Returns the time since which the process is idle; `None` while it handles an event. Also
    /// `None` before its first event, since replacing an unused process would gain nothing.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.is_used && self.in_hand.is_empty();
        self.answered.filter(|_| is_idle)
    }

    /// Returns whether the process has announced that it ends by itself, and has not closed its socket yet.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.is_asked && matches!(self.state, PoolProcessState::Stopping { .. })
    }

    /// Returns the event that has been handled for the longest time, and the time at which its handling began. Returns
    /// `None` if no event is being handled.
    pub(crate) fn oldest(&self) -> Option<(Instant, EventName)> {
        let begun = self.in_hand.values().take(self.concurrency);
        let begun = begun.filter_map(|one| Some((one.since?, one.name)));
        begun.min_by_key(|(since, _)| *since)
    }

    /// Writes as much as the socket accepts. If the process has closed the socket, drops the output and returns `false`.
    pub(crate) fn flush(&mut self) -> bool {
        let Some(socket) = &mut self.socket else {
            return true;
        };
        let is_open = self.output.write_to(socket).is_ok();
        if !is_open {
            self.output.clear();
        }
        is_open
    }

    /// Reads from the socket once, and calls `frame` with the head and the payload of each frame. After an error of this
    /// function, the caller must end the process. The error text is empty if the socket has ended.
    pub(crate) fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        mut frame: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(socket) = &mut self.socket else {
            return Ok(());
        };
        buffer.resize(READ_BYTES, 0);
        let count = match socket.read(buffer) {
            Ok(0) => {
                let is_within = self.decoder.is_within_frame();
                let why = if is_within {
                    "the output of the process ended within a frame"
                } else {
                    ""
                };
                return Err(why.to_owned());
            }
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(_) => return Err(String::new()),
        };
        let mut decoder =
            std::mem::replace(&mut self.decoder, FrameDecoder::new(FrameLimits::default()));
        let mut input = &buffer[..count];
        let result = loop {
            match decoder.decode(&mut input) {
                Ok(None) => break Ok(()),
                Ok(Some(read)) => {
                    if let Err(why) = frame(self, read.head, read.payload) {
                        break Err(why);
                    }
                }
                Err(error) => {
                    break Err(format!(
                        "the output of the process does not follow the runtime protocol: {error}"
                    ));
                }
            }
        };
        self.decoder = decoder;
        result
    }

    /// Closes the socket; the process is killed at `until` unless it has ended.
    pub(crate) fn close(&mut self, until: Instant) {
        self.socket = None;
        self.output.clear();
        self.state = PoolProcessState::Over { until };
    }

    /// Kills the process and all its children.
    pub(crate) fn kill(&self, link: &mut Option<PoolLink>) {
        if let Some(link) = link
            && self.status.is_none()
        {
            link.kill(self.key.0);
        }
    }

    /// Returns the current resident memory in bytes.
    pub(crate) fn read_rss_bytes(&self) -> Option<u64> {
        let mut bytes = [0; 128];
        let count = self.statm.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..count]).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }
}
