//! Hook requests of Centrifuge clients. Applications decide on them. This module converts a session's request for the
//! script, and the script's response for the session.
//!
//! Each request gets exactly one decision: the script's, or a failure if the script fails, exceeds its time limit or
//! ends, or if too many requests are waiting.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{error, warn};
use veche_frontends::hooks::{
    self, Encoding, HookGrant, HookKind, HookKinds, HookRequest, HookRequestId, HookSubscription,
};
use veche_frontends::hooks::{HookCaller, HookDecision};
use veche_frontends::{AppId, Context};
use veche_hub::{ConnectionId, Payload, PayloadKind};
use veche_logging::LogThrottle;
use veche_runtime::hooks::{AppHookCaller, AppHookRequest, Hook, HookResponse};
use veche_runtime::{Event, Runtime};

use super::app_hosts::{AppHosts, LOG};

/// Maximum number of undecided requests per worker, application and kind of hook; further requests fail. Kinds are
/// limited separately, so that a burst of one kind, such as refreshes, does not displace others.
const WAITING_MAX: usize = 4096;

/// Maximum number of requests that time out in one turn.
const GIVEN_UP_MAX: usize = 256;

/// The undecided hook requests of one worker.
#[derive(Default)]
pub(super) struct PendingHooks {
    last: u64,
    waiting: BTreeMap<u64, PendingHook>,
    /// The number of undecided requests by application and kind of hook.
    counts: Vec<[usize; HookKind::ALL.len()]>,
    /// The deadlines in monotonic milliseconds, each with the number of its request.
    due: BTreeSet<(u64, u64)>,
    /// Decisions that are delayed until the hub has accepted the publications of their handlers. The delay slows down
    /// clients whose requests make scripts publish.
    held: Vec<DeferredDecision>,
    warnings: LogThrottle,
}

/// A hook decision that waits until certain deferred publications have been passed to the hub: those with numbers
/// above `behind`, up to and including `up_to`.
struct DeferredDecision {
    behind: u64,
    up_to: u64,
    decision: (ConnectionId, HookRequestId, HookDecision),
}

struct PendingHook {
    app: AppId,
    kind: HookKind,
    session: ConnectionId,
    id: HookRequestId,
    due_ms: u64,
    /// The number of the last publication that was deferred before the request was made.
    behind: u64,
    /// A copy of the request if it arrived before the application's runtime had finished starting. If the code is
    /// replaced, the newer code decides the request.
    request: Option<Box<HookRequest>>,
}

impl PendingHooks {
    /// Returns the earliest deadline in monotonic milliseconds; `u64::MAX` if there is none.
    pub(super) fn due_ms(&self) -> u64 {
        self.due.first().map_or(u64::MAX, |(due_ms, _)| *due_ms)
    }

    fn take(&mut self, number: u64) -> Option<PendingHook> {
        let waiting = self.waiting.remove(&number)?;
        self.due.remove(&(waiting.due_ms, number));
        *self.count(waiting.app, waiting.kind) -= 1;
        Some(waiting)
    }

    /// Returns the requests, with their numbers, that reached an application before it had finished starting. If the
    /// application is replaced, its newer code may decide them.
    pub(super) fn unstarted(&self, app: AppId) -> impl Iterator<Item = (u64, AppHookRequest<'_>)> {
        let own = self.waiting.iter().filter(move |(_, one)| one.app == app);
        own.filter_map(|(number, one)| Some((*number, hook_request(one.request.as_deref()?))))
    }

    fn count(&mut self, AppId(app): AppId, kind: HookKind) -> &mut usize {
        let place = usize::from(app);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, [0; HookKind::ALL.len()]);
        }
        &mut self.counts[place][kind as usize]
    }
}

impl AppHosts {
    /// Requests a decision from an application. Exactly one decision is added to `hook_decisions` of the context's
    /// requests, in this call or later.
    pub(super) fn run_hook(
        &mut self,
        app: AppId,
        timeout_ms: u64,
        request: &HookRequest,
        shared: &mut Context,
    ) {
        let (session, id) = (request.session, request.id);
        let now_ms = shared.now.mono_ms;
        let pending_count = *self.pending_hooks.count(app, request.kind);
        if pending_count >= WAITING_MAX || self.app(app).is_none() {
            if pending_count >= WAITING_MAX && self.pending_hooks.warnings.is_due(now_ms) {
                let app = self.app_name(app);
                let kind = request.kind.name();
                warn!(target: LOG, app, kind, "{pending_count} hook calls are pending: refusing more");
            }
            let decisions = &mut shared.requests.hook_decisions;
            return decisions.push_back((session, id, HookDecision::Failed));
        }
        let is_starting = self.app(app).is_some_and(|app| app.runtime.is_starting());
        self.pending_hooks.last += 1;
        let number = self.pending_hooks.last;
        let due_ms = match timeout_ms {
            0 => u64::MAX,
            timeout_ms => now_ms.saturating_add(timeout_ms),
        };
        let waiting = PendingHook {
            app,
            kind: request.kind,
            session,
            id,
            due_ms,
            behind: self.held.last_number(),
            request: is_starting.then(|| Box::new(request.clone())),
        };
        self.pending_hooks.waiting.insert(number, waiting);
        *self.pending_hooks.count(app, request.kind) += 1;
        if due_ms != u64::MAX {
            self.pending_hooks.due.insert((due_ms, number));
        }
        let asked = hook_request(request);
        self.run(app, None, shared, |app, now| {
            let request = &asked;
            app.runtime
                .handle_event(Event::Hook { number, request }, now);
        });
    }

    /// Fails the requests whose deadline has passed.
    pub(super) fn expire_hooks(&mut self, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        // If more requests are due, the next turn follows at once, since their deadlines have passed.
        for _ in 0..GIVEN_UP_MAX {
            let Some(&(due_ms, number)) = self.pending_hooks.due.first() else {
                return;
            };
            if due_ms > now_ms {
                return;
            }
            self.pending_hooks.due.pop_first();
            let Some(app) = self.pending_hooks.waiting.get(&number).map(|one| one.app) else {
                continue;
            };
            self.run(app, None, shared, |app, now| {
                app.runtime.handle_event(Event::HookGone { number }, now);
            });
            // Fails the request even if no VM has it any more, for example because the VM was replaced.
            self.hook_answered(number, HookResponse::Failed, shared);
        }
    }

    /// Handles an application's response to a hook request.
    pub(super) fn hook_answered(
        &mut self,
        number: u64,
        response: HookResponse,
        shared: &mut Context,
    ) {
        let Some(PendingHook {
            session,
            id,
            app,
            behind,
            ..
        }) = self.pending_hooks.take(number)
        else {
            return;
        };
        let decision = hook_decision(response).unwrap_or_else(|why| {
            let app = self.app_name(app);
            error!(target: LOG, app, "app.centrifuge: {why}");
            HookDecision::Failed
        });
        let decision = (session, id, decision);
        let up_to = self.held.last_number();
        match self.held.are_published(behind, up_to) {
            true => shared.requests.hook_decisions.push_back(decision),
            false => self.pending_hooks.held.push(DeferredDecision {
                behind,
                up_to,
                decision,
            }),
        }
    }

    /// Delivers the delayed decisions for which all awaited publications have been passed to the hub.
    pub(super) fn deliver_deferred_decisions(&mut self, shared: &mut Context) {
        let publications = &self.held;
        let may_go =
            |held: &mut DeferredDecision| publications.are_published(held.behind, held.up_to);
        let released = self.pending_hooks.held.extract_if(.., may_go);
        let decisions = released.map(|held| held.decision);
        shared.requests.hook_decisions.extend(decisions);
    }
}

/// Updates the set of hooks that an application handles. Called after its code was loaded.
pub(super) fn update_hook_kinds(runtime: &impl Runtime, kinds: &HookKinds) {
    let hooks = Hook::ALL.into_iter();
    let hooks = hooks.filter(|hook| runtime.decides_on(*hook));
    kinds.set(hooks.map(|hook| match hook {
        Hook::Connect => HookKind::Connect,
        Hook::Refresh => HookKind::Refresh,
        Hook::Subscribe => HookKind::Subscribe,
        Hook::SubRefresh => HookKind::SubRefresh,
        Hook::Publish => HookKind::Publish,
        Hook::Rpc => HookKind::Rpc,
        Hook::Message => HookKind::Message,
        Hook::Disconnect => HookKind::Disconnect,
    }));
}

/// Converts a session's request for the runtime.
fn hook_request(request: &HookRequest) -> AppHookRequest<'_> {
    let caller: &HookCaller = &request.caller;
    let hook = match request.kind {
        HookKind::Connect => Hook::Connect,
        HookKind::Refresh => Hook::Refresh,
        HookKind::Subscribe => Hook::Subscribe,
        HookKind::SubRefresh => Hook::SubRefresh,
        HookKind::Publish => Hook::Publish,
        HookKind::Rpc => Hook::Rpc,
        HookKind::Message => Hook::Message,
        HookKind::Disconnect => Hook::Disconnect,
    };
    let meta = caller.meta.as_ref();
    AppHookRequest {
        hook,
        caller: AppHookCaller {
            id: &caller.client,
            user: &request.user,
            transport: caller.transport,
            protocol: match caller.encoding {
                Encoding::Json => "json",
                Encoding::Protobuf => "protobuf",
            },
            name: &caller.name,
            version: &caller.version,
            remote: caller.address,
            headers: &caller.headers,
            meta: meta.map(|meta| &*meta.bytes),
        },
        subject: match (&request.disconnect, request.kind) {
            (Some((_, reason)), _) => reason,
            (None, HookKind::Rpc) => &request.method,
            (None, _) => &request.channel,
        },
        code: request.disconnect.as_ref().map_or(0, |(code, _)| *code),
        token: &request.token.0,
        channels: &request.channels,
        data: request.data.as_ref().map(Payload::borrow),
    }
}

/// Converts a script's response for the session.
fn hook_decision(response: HookResponse) -> Result<HookDecision, &'static str> {
    Ok(match response {
        HookResponse::Granted(granted) => {
            let channels = granted.channels.into_iter().map(|given| {
                Ok::<_, &'static str>(HookSubscription {
                    channel: given.channel.into(),
                    info: checked(given.info)?,
                    data: checked(given.data)?,
                    expires_at_s: given.expires_at_s,
                })
            });
            HookDecision::Granted(Box::new(HookGrant {
                user: granted.user.into(),
                expires_at_s: granted.expires_at_s,
                is_expired: granted.is_expired,
                info: checked(granted.info)?,
                data: checked(granted.data)?,
                channels: channels.collect::<Result<_, _>>()?,
                meta: checked(granted.meta)?,
                skips_history: granted.skips_history,
            }))
        }
        HookResponse::Error {
            code,
            message,
            is_temporary,
        } => HookDecision::Error {
            code,
            message: message.into(),
            is_temporary,
        },
        HookResponse::Disconnect { code, reason } => HookDecision::Disconnect {
            code,
            reason: reason.into(),
        },
        HookResponse::Unhandled => HookDecision::Unhandled,
        HookResponse::Failed => HookDecision::Failed,
    })
}

/// Checks a payload that is said to be JSON. Bytes that are valid JSON are marked as JSON.
fn checked(payload: Option<Payload>) -> Result<Option<Payload>, &'static str> {
    let Some(given) = payload else {
        return Ok(None);
    };
    let payload = hooks::bytes(given.bytes);
    if given.kind == PayloadKind::Json && payload.kind != PayloadKind::Json {
        return Err(match std::str::from_utf8(&payload.bytes) {
            Err(_) => "a result of the hook handler is not UTF-8",
            Ok(_) => "a result of the hook handler is nested too deep",
        });
    }
    Ok(Some(payload))
}
