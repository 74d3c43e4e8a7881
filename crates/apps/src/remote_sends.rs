//! Effects on connections of other workers: sent as messages and executed there as if they were local.

use std::collections::VecDeque;

use veche_frontends::outbox::SendResult;
use veche_frontends::{AppId, Context};
use veche_proto::websocket::MessageKind;
use veche_runtime::Runtime;
use veche_types::ConnectionId;

use super::app_hosts::AppHosts;
use super::user_search::{UserSearch, UserSearchResult};

/// Limit of queued bytes for one worker; beyond it messages are dropped.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// A message of at least this many bytes gets no further actions.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of an action in addition to its data.
const ORDER_BYTES: usize = 64;

/// Actions for another worker, of one application.
pub struct AppWorkerMessage {
    pub(super) app: AppId,
    orders: Vec<RemoteAction>,
    bytes: usize,
}

pub(super) enum RemoteAction {
    Send(ConnectionId, MessageKind, Vec<u8>),
    Close(ConnectionId, u16, String),
    /// A search by another worker, and the result of one of ours.
    Find(UserSearch),
    Found(UserSearchResult),
}

/// The queued actions for other workers.
pub(super) struct RemoteSends {
    /// The queues by worker.
    lanes: Box<[RemoteQueue]>,
    /// The number of messages in all queues.
    pieces: usize,
    is_dropping: bool,
}

#[derive(Default)]
struct RemoteQueue {
    mail: VecDeque<AppWorkerMessage>,
    bytes: usize,
}

impl RemoteSends {
    /// Creates the queues for a number of workers.
    pub(super) fn new(workers: u16) -> Self {
        Self {
            lanes: (0..workers).map(|_| RemoteQueue::default()).collect(),
            pieces: 0,
            is_dropping: false,
        }
    }

    pub(super) fn send(
        &mut self,
        worker: u16,
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
        worker: u16,
        app: AppId,
        of: ConnectionId,
        code: u16,
        reason: String,
    ) {
        let bytes = reason.len();
        self.enqueue(worker, app, RemoteAction::Close(of, code, reason), bytes);
    }

    pub(super) fn enqueue(&mut self, worker: u16, app: AppId, order: RemoteAction, bytes: usize) {
        let bytes = bytes + ORDER_BYTES;
        // Scripts may pass arbitrary worker numbers.
        let Some(lane) = self.lanes.get_mut(usize::from(worker)) else {
            return;
        };
        if lane.bytes + bytes > WAITING_BYTES_MAX {
            if !std::mem::replace(&mut self.is_dropping, true) {
                tracing::warn!(
                    target: "veche::apps::far",
                    worker,
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
    /// Takes the next message for a worker.
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

    /// Returns whether messages are queued for other workers.
    pub(super) fn has_app_messages(&self) -> bool {
        !self.far.is_empty()
    }

    /// Executes a message of another worker.
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
