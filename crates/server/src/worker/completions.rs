//! The inbox for results that other threads have completed for this worker: identity checks and
//! hook decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use veche_frontends::hooks::{HookDecision, HookRequestId};
use veche_frontends::identity::{CompletionSink, IdentityResult};
use veche_mailbox::Wake as _;
use veche_net::{ConnectionId, Waker};

use super::{WorkerApps, WorkerState};

/// A worker's inbox of completions. Each connection has at most one pending request, so the number of connections
/// bounds the inbox.
#[derive(Debug)]
pub(super) struct CompletionInbox {
    pending: Mutex<Vec<(ConnectionId, CompletionEvent)>>,
    /// True if the worker was woken and has not taken the completions since.
    is_announced: AtomicBool,
    waker: Waker,
}

#[derive(Debug)]
enum CompletionEvent {
    Finding(IdentityResult),
    HookDecision(HookRequestId, HookDecision),
}

impl CompletionInbox {
    pub(super) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            pending: Mutex::default(),
            is_announced: AtomicBool::new(false),
            waker,
        })
    }

    /// Adds a hook's decision about a connection to the inbox. The connection may be closed by now. Callable from any
    /// thread.
    pub(super) fn decide(
        &self,
        id: ConnectionId,
        request_id: HookRequestId,
        decision: HookDecision,
    ) {
        self.push(id, CompletionEvent::HookDecision(request_id, decision));
    }

    fn push(&self, id: ConnectionId, completion: CompletionEvent) {
        self.pending.lock().push((id, completion));
        if !self.is_announced.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    fn take(&self) -> Vec<(ConnectionId, CompletionEvent)> {
        // The flag is usually unset, since completions are rare. Loading it first avoids writing to
        // a shared cache line.
        if !self.is_announced.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // The flag is cleared before the completions are taken, so that a later completion wakes the worker again.
        self.is_announced.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.pending.lock())
    }
}

impl CompletionSink for CompletionInbox {
    fn complete(&self, id: ConnectionId, identity_result: IdentityResult) {
        self.push(id, CompletionEvent::Finding(identity_result));
    }
}

impl<A: WorkerApps> WorkerState<A> {
    /// Delivers the completions since the last turn.
    pub(super) fn take_completions(&mut self) {
        for (id, completion) in self.completions.take() {
            match completion {
                CompletionEvent::Finding(identity_result) => {
                    self.worker.handle_identity(id, identity_result)
                }
                CompletionEvent::HookDecision(request_id, decision) => {
                    self.worker.handle_hook_decision(id, request_id, decision);
                }
            }
        }
    }
}
