//! Handles the frames of a worker process, and passes answers, effects and calls to the server thread concerned.

use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::debug;
use veche_runtime::wire::{
    AppDescription, EventHead, EventName, Frame, FrameKind, FrameLimits, FromWorker, HandlerEnd,
    answer_id, encode,
};

use crate::figures::PoolFigures;
use crate::manager::LOG;
use crate::options::Options;
use crate::process::{PoolProcess, PoolProcessState};
use crate::shared::{FrameBatch, PoolMessage, ProcessKey, Shared, ThreadOutlet, bit};

/// The fields of a frame's head that determine which server thread gets the frame.
#[derive(Debug, Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: FrameKind,
    id: Option<u64>,
    event: Option<Value>,
    /// In an answer, `true` if the process accepts no further events. A value that is not a boolean makes the event
    /// fail.
    last: Option<Value>,
    failed: Option<Value>,
}

impl Envelope {
    fn read(head: &[u8]) -> serde_json::Result<Self> {
        match answer_id(head) {
            Some(id) => Ok(Self {
                kind: FrameKind::Answer,
                id: Some(id),
                event: None,
                last: None,
                failed: None,
            }),
            None => serde_json::from_slice(head),
        }
    }
}

/// The outcome of handling all frames that one read has returned.
#[derive(Debug, Default)]
pub(crate) struct ReadOutcome {
    /// Whether the process accepts events from now on.
    pub(crate) is_ready: bool,
    /// `Some` once an answer has announced the end of the process; `true` if that answer reports that its handler has
    /// failed.
    pub(crate) leaves: Option<bool>,
    /// The frames for each server thread.
    batches: Vec<(Arc<ThreadOutlet>, FrameBatch)>,
}

impl ReadOutcome {
    /// Adds a frame for a server thread.
    fn put(
        &mut self,
        process: ProcessKey,
        outlet: &Arc<ThreadOutlet>,
        event: Option<(u64, u64)>,
        frame: Frame<'_>,
    ) {
        let is_its = |(one, _): &(Arc<ThreadOutlet>, _)| Arc::ptr_eq(one, outlet);
        let place = self.batches.iter().position(is_its).unwrap_or_else(|| {
            let batch = FrameBatch::new(process);
            self.batches.push((Arc::clone(outlet), batch));
            self.batches.len() - 1
        });
        self.batches[place].1.push(event, frame);
    }

    /// Passes the frames to the server threads.
    pub(crate) fn deliver(&mut self) {
        for (outlet, batch) in self.batches.drain(..) {
            outlet.messages.push(PoolMessage::Frames(batch));
        }
    }
}

/// The parts of a pool that are needed to handle its processes' frames.
#[derive(Clone, Copy)]
pub(crate) struct Pool<'a> {
    pub(crate) options: &'a Options,
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) figures: &'a PoolFigures,
}

/// Handles a frame of a process. An error ends the process; its text is for the log, and empty if
/// the process has ended on request.
pub(crate) fn handle_frame(
    process: &mut PoolProcess,
    read: Frame<'_>,
    pool: Pool<'_>,
    outcome: &mut ReadOutcome,
    now: Instant,
) -> Result<(), String> {
    let Pool {
        options, shared, ..
    } = pool;
    let envelope = Envelope::read(read.head).map_err(|error| error.to_string())?;
    let is_begun = process.events != 0 || process.state == PoolProcessState::Ready;
    match (envelope.kind, is_begun) {
        (FrameKind::Hello, false) => hello(process, read, options, outcome, shared, now),
        (FrameKind::Answer, true) => {
            let id = envelope.id.unwrap_or_default();
            let Some((in_hand, took)) = process.answered(id, now) else {
                return Err(format!(
                    "the process answered event {id}, which was not sent to it"
                ));
            };
            if in_hand.job.is_some() {
                pool.figures.add_answer(took);
            }
            let is_last = envelope.last == Some(Value::Bool(true));
            if is_last {
                outcome.leaves = Some(envelope.failed.is_some());
            }
            match (in_hand.name, in_hand.job) {
                (_, Some(job)) => {
                    outcome.put(process.key, &job.outlet, Some((job.number, id)), read);
                }
                (EventName::Start, None) => {
                    own_failure(read, id, EventName::Start)?;
                    if is_last {
                        return Err(
                            "the process announced its end in its answer to the event start"
                                .to_owned(),
                        );
                    }
                    ready(process, outcome, shared);
                }
                (_, None) => return Err(String::new()),
            }
            Ok(())
        }
        (FrameKind::Effects | FrameKind::Call, true) => {
            let is_call = envelope.kind == FrameKind::Call;
            let id = match is_call {
                true => envelope.event.as_ref().and_then(Value::as_u64),
                false => envelope.id,
            };
            let in_hand = id.and_then(|id| Some((id, process.in_hand.get(&id)?)));
            match in_hand {
                Some((id, in_hand)) => {
                    if let Some(job) = &in_hand.job {
                        outcome.put(process.key, &job.outlet, Some((job.number, id)), read);
                    }
                }
                None if id.is_some() && !is_call => {
                    return Err("the process named an event that was not sent to it".to_owned());
                }
                None => {
                    if let Some(outlet) = shared.first_user() {
                        outcome.put(process.key, &outlet, None, read);
                    }
                }
            }
            Ok(())
        }
        // The process no longer needs the result of a call. The call continues, and the process ignores the result.
        (FrameKind::Cancel, true) => Ok(()),
        _ => Err("the process sent a frame that is not allowed at this point".to_owned()),
    }
}

/// Returns an error if the frame states that the process has failed to handle its own event `start`.
fn own_failure(frame: Frame<'_>, id: u64, name: EventName) -> Result<(), String> {
    let read = FromWorker::read(frame, |one| (one == id).then_some(name));
    match read.map_err(|error| error.message)? {
        FromWorker::Handled(handled) => match handled.end {
            Some(HandlerEnd::Failed(text)) => Err(format!("start: {text}")),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn hello(
    process: &mut PoolProcess,
    frame: Frame<'_>,
    options: &Options,
    outcome: &mut ReadOutcome,
    shared: &Arc<Shared>,
    now: Instant,
) -> Result<(), String> {
    let read = FromWorker::read(frame, |_| None).map_err(|error| error.message)?;
    let FromWorker::Hello(hello) = read else {
        return Err("the first frame of the process is not hello".to_owned());
    };
    let own = RawValue::from_string(options.options.clone()).ok();
    let offer = AppDescription {
        app: &options.name,
        instance: process.instance,
        limits: FrameLimits::default(),
        options: own.as_deref(),
    };
    let mut bytes = Vec::new();
    let (is_written, refused) = match offer.answer(&hello) {
        Ok(welcome) => (
            encode(&mut bytes, FrameLimits::default(), &welcome, &[]),
            None,
        ),
        Err(refuse) => {
            let why = refuse.message.to_string();
            (
                encode(&mut bytes, FrameLimits::default(), &refuse, &[]),
                Some(why),
            )
        }
    };
    is_written.map_err(|error| error.to_string())?;
    process.write_frame(bytes);
    if let Some(why) = refused {
        process.flush();
        return Err(format!("Veche refused the process: {why}"));
    }
    let names = EventName::ALL.iter();
    let handled = names.filter(|name| hello.events.iter().any(|one| one == name.name()));
    process.events = handled.map(|name| bit(*name)).sum();
    process.concurrency = hello.concurrency as usize;
    let (app, pid, sdk) = (&options.name, process.pid(), &hello.sdk);
    debug!(target: LOG, app, pid, %sdk, concurrency = process.concurrency, "a process has sent hello");
    if process.events & bit(EventName::Start) != 0 {
        hand_own(process, EventName::Start, now);
    } else {
        ready(process, outcome, shared);
    }
    Ok(())
}

fn ready(process: &mut PoolProcess, outcome: &mut ReadOutcome, shared: &Arc<Shared>) {
    process.state = PoolProcessState::Ready;
    outcome.is_ready = true;
    shared.set_ready(process.events);
}

/// Sends a process an event of its own lifecycle, such as `start`. The event belongs to no connection.
pub(crate) fn hand_own(process: &mut PoolProcess, name: EventName, now: Instant) {
    let mut frame = Vec::new();
    if encode(
        &mut frame,
        FrameLimits::default(),
        &EventHead::new(0, name),
        &[],
    )
    .is_ok()
    {
        process.hand(name, frame, None, now);
    }
}
