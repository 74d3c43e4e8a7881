//! Effects on connections of other workers: sent as messages and executed there as if they were local.

use std::collections::VecDeque;

use veche_frontends::outbox::Sending;
use veche_frontends::{AppId, Shared};
use veche_proto::websocket::MessageKind;
use veche_runtime::Runtime;
use veche_types::ConnectionId;

use super::find::{Finding, Search};
use super::here::Here;

/// Limit of queued bytes for one worker; beyond it messages are dropped.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Size from which a message takes no further actions.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of an action in addition to its data.
const ORDER_BYTES: usize = 64;

/// Actions for another worker, of one application.
pub struct AppMail {
    pub(super) app: AppId,
    orders: Vec<Order>,
    bytes: usize,
}

pub(super) enum Order {
    Send(ConnectionId, MessageKind, Vec<u8>),
    Close(ConnectionId, u16, String),
    /// A search by another worker, and the result of one of ours.
    Find(Search),
    Found(Finding),
}

/// The queued actions for other workers.
pub(super) struct Far {
    /// The queues by worker.
    lanes: Box<[Lane]>,
    /// The number of messages in all queues.
    pieces: usize,
    is_dropping: bool,
}

#[derive(Default)]
struct Lane {
    mail: VecDeque<AppMail>,
    bytes: usize,
}

impl Far {
    /// Creates the queues for a number of workers.
    pub(super) fn new(workers: u16) -> Self {
        Self {
            lanes: (0..workers).map(|_| Lane::default()).collect(),
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
        let order = Order::Send(to, kind, data.to_vec());
        self.order(worker, app, order, data.len());
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
        self.order(worker, app, Order::Close(of, code, reason), bytes);
    }

    pub(super) fn order(&mut self, worker: u16, app: AppId, order: Order, bytes: usize) {
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
                lane.mail.push_back(AppMail {
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

impl Here {
    /// Takes the next message for a worker.
    pub(super) fn next_mail(&mut self, worker: usize) -> Option<AppMail> {
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
    pub(super) fn has_mail(&self) -> bool {
        !self.far.is_empty()
    }

    /// Executes a message of another worker.
    pub(super) fn mail(&mut self, mail: AppMail, shared: &mut Shared) {
        let id = mail.app;
        for order in mail.orders {
            match order {
                Order::Send(to, kind, data) => {
                    if let Some(app) = self.app(id)
                        && app.runtime.is_open(to)
                        && shared.ports.outboxes.send(to, kind, &data) == Sending::Full
                    {
                        app.runtime.full(to);
                    }
                }
                Order::Close(of, code, reason) => {
                    if self.app(id).is_some_and(|app| app.runtime.closing(of)) {
                        shared.ports.kicks.push((of, code, reason));
                    }
                }
                Order::Find(search) => self.search_for(id, search, shared),
                Order::Found(finding) => self.found(id, finding),
            }
        }
    }
}
