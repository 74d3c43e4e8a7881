//! Actions of applications on connections of other workers. They are sent as messages and executed there as if they
//! were local.

use std::collections::VecDeque;

use veche_frontends::outbox::SendResult;
use veche_frontends::{AppId, Context};
use veche_proto::websocket::MessageKind;
use veche_runtime::Runtime;
use veche_types::{ConnectionId, WorkerId};

use super::app_hosts::AppHosts;
use super::user_search::{UserSearch, UserSearchResult};

/// Maximum number of bytes queued for one worker; further actions for that worker are dropped.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// A queued message that has reached this many bytes gets no further actions; the next action begins a new message.
const PIECE_BYTES: usize = 64 << 10;

/// The assumed size of an action without its data, in bytes.
const ORDER_BYTES: usize = 64;

/// Actions of one application for connections of another worker.
pub struct AppWorkerMessage {
    pub(super) app: AppId,
    orders: Vec<RemoteAction>,
    bytes: usize,
}

pub(super) enum RemoteAction {
    Send(ConnectionId, MessageKind, Vec<u8>),
    Close(ConnectionId, u16, String),
    /// Requests that the receiving worker search for a user's connections.
    Find(UserSearch),
    Found(UserSearchResult),
}

/// The queued actions for other workers.
pub(super) struct RemoteSends {
    /// The queue for each worker, by the worker's index.
    lanes: Box<[RemoteQueue]>,
    /// The total number of messages in the queues of all workers.
    pieces: usize,
    is_dropping: bool,
}

#[derive(Default)]
struct RemoteQueue {
    mail: VecDeque<AppWorkerMessage>,
    bytes: usize,
}

impl RemoteSends {
    /// Creates empty queues, one for each of `workers` workers.
    pub(super) fn new(workers: u16) -> Self {
        Self {
            lanes: (0..workers).map(|_| RemoteQueue::default()).collect(),
            pieces: 0,
            is_dropping: false,
        }
    }

    pub(super) fn send(
        &mut self,
        worker: WorkerId,
        app: AppId,
        to: ConnectionId,
        kind: MessageKind,
        data: &[u8],
    ) {
        let order = RemoteAction::Send(to, kind, data.to_vec());
        self.enqueue(worker, app, order, data.len());
    }

    pub(super) fn close(
        &mut self,
        worker: WorkerId,
        app: AppId,
        of: ConnectionId,
        code: u16,
        reason: String,
    ) {
        let bytes = reason.len();
        self.enqueue(worker, app, RemoteAction::Close(of, code, reason), bytes);
    }

    pub(super) fn enqueue(
        &mut self,
        worker: WorkerId,
        app: AppId,
        order: RemoteAction,
        bytes: usize,
    ) {
        let bytes = bytes + ORDER_BYTES;
        // The worker number comes from the script, so it may be invalid; the action is then ignored.
        let Some(lane) = self.lanes.get_mut(usize::from(worker.0)) else {
            return;
        };
        if lane.bytes + bytes > WAITING_BYTES_MAX {
            if !std::mem::replace(&mut self.is_dropping, true) {
                tracing::warn!(
                    target: "veche::apps::far",
                    worker = worker.0,
                    "dropped messages to connections of a worker that is too slow"
                );
            }
            return;
        }
        lane.bytes += bytes;
        match lane.mail.back_mut() {
            Some(mail) if mail.app == app && mail.bytes < PIECE_BYTES => {
                mail.orders.push(order);
                mail.bytes += bytes;
            }
            _ => {
                lane.mail.push_back(AppWorkerMessage {
                    app,
                    orders: vec![order],
                    bytes,
                });
                self.pieces += 1;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces == 0
    }
}

impl AppHosts {
    /// Takes the next queued message for a worker.
    pub(super) fn next_app_message(&mut self, worker: usize) -> Option<AppWorkerMessage> {
        let lane = self.far.lanes.get_mut(worker)?;
        let mail = lane.mail.pop_front()?;
        lane.bytes -= mail.bytes;
        self.far.pieces -= 1;
        if lane.mail.is_empty() {
            self.far.is_dropping = false;
        }
        Some(mail)
    }

    /// Returns whether messages for other workers are queued.
    pub(super) fn has_app_messages(&self) -> bool {
        !self.far.is_empty()
    }

    /// Executes the actions in a message from another worker.
    pub(super) fn receive_app_message(&mut self, mail: AppWorkerMessage, shared: &mut Context) {
        let id = mail.app;
        for order in mail.orders {
            match order {
                RemoteAction::Send(to, kind, data) => {
                    if let Some(app) = self.app(id)
                        && app.runtime.is_open(to)
                        && shared.requests.outboxes.send(to, kind, &data) == SendResult::Full
                    {
                        app.runtime.mark_full(to);
                    }
                }
                RemoteAction::Close(of, code, reason) => {
                    if self.app(id).is_some_and(|app| app.runtime.mark_closing(of)) {
                        shared.requests.disconnects.push((of, code, reason));
                    }
                }
                RemoteAction::Find(search) => self.search_local(id, search, shared),
                RemoteAction::Found(finding) => self.search_answered(id, finding),
            }
        }
    }
}
