//! Hook requests of Centrifuge clients that applications decide: converts a session's request for the script, and the
//! response for the session.
//!
//! Each request gets exactly one decision: the script's, or a failure if the script fails, exceeds its time limit or
//! ends, or if too many requests are waiting.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{error, warn};
use veche_frontends::hooks::{self, Encoding, Given, Grant, Kind, Kinds, Question, QuestionId};
use veche_frontends::hooks::{Asker, Verdict};
use veche_frontends::{AppId, Shared};
use veche_hub::{ConnectionId, Payload, PayloadKind};
use veche_logging::Seldom;
use veche_runtime::hooks::{Blob, Data, Hook, HookCaller, HookRequest, HookResponse};
use veche_runtime::{Event, Runtime};

use super::here::{Here, LOG};

/// The most waiting requests of one kind for one application on one worker. The limit is per kind, so that bursts of
/// one kind, such as refreshes and disconnects, don't displace others.
const WAITING_MAX: usize = 4096;

/// The most requests that are expired in one turn.
const GIVEN_UP_MAX: usize = 256;

/// The undecided hook requests of one worker.
#[derive(Default)]
pub(super) struct Questions {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// The number of requests by application and kind.
    counts: Vec<[usize; Kind::ALL.len()]>,
    /// Deadlines in monotonic milliseconds with the numbers of the requests.
    due: BTreeSet<(u64, u64)>,
    /// Decisions that wait for their handlers' publications. This slows down clients that cause scripts to publish.
    held: Vec<Held>,
    warnings: Seldom,
}

/// A decision that waits until the publications after one number, up to another, are with the hub.
struct Held {
    behind: u64,
    up_to: u64,
    verdict: (ConnectionId, QuestionId, Verdict),
}

struct Waiting {
    app: AppId,
    kind: Kind,
    session: ConnectionId,
    id: QuestionId,
    due_ms: u64,
    /// The last deferred publication when the request was made.
    behind: u64,
    /// The request, if its VM had not started: it may be passed to newer code.
    question: Option<Box<Question>>,
}

impl Questions {
    /// Returns the next deadline; `u64::MAX` if there is none.
    pub(super) fn due_ms(&self) -> u64 {
        self.due.first().map_or(u64::MAX, |(due_ms, _)| *due_ms)
    }

    fn take(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        self.due.remove(&(waiting.due_ms, number));
        *self.count(waiting.app, waiting.kind) -= 1;
        Some(waiting)
    }

    /// Returns the requests that an application received before it had started; newer code may decide them instead.
    pub(super) fn not_begun(&self, app: AppId) -> impl Iterator<Item = (u64, HookRequest<'_>)> {
        let own = self.waiting.iter().filter(move |(_, one)| one.app == app);
        own.filter_map(|(number, one)| Some((*number, asked(one.question.as_deref()?))))
    }

    fn count(&mut self, AppId(app): AppId, kind: Kind) -> &mut usize {
        let place = usize::from(app);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, [0; Kind::ALL.len()]);
        }
        &mut self.counts[place][kind as usize]
    }
}

impl Here {
    /// Asks an application for a decision, which is stored in the requests, now or later, in every case.
    pub(super) fn decide_on(
        &mut self,
        app: AppId,
        timeout_ms: u64,
        question: &Question,
        shared: &mut Shared,
    ) {
        let (session, id) = (question.session, question.id);
        let now_ms = shared.now.mono_ms;
        let crowd = *self.questions.count(app, question.kind);
        if crowd >= WAITING_MAX || self.app(app).is_none() {
            if crowd >= WAITING_MAX && self.questions.warnings.is_due(now_ms) {
                let app = self.app_name(app);
                let kind = question.kind.name();
                warn!(target: LOG, app, kind, "{crowd} hook calls are pending: refusing more");
            }
            let verdicts = &mut shared.ports.verdicts;
            return verdicts.push_back((session, id, Verdict::Failed));
        }
        let is_starting = self.app(app).is_some_and(|app| app.runtime.is_starting());
        self.questions.last += 1;
        let number = self.questions.last;
        let due_ms = match timeout_ms {
            0 => u64::MAX,
            timeout_ms => now_ms.saturating_add(timeout_ms),
        };
        let waiting = Waiting {
            app,
            kind: question.kind,
            session,
            id,
            due_ms,
            behind: self.held.last(),
            question: is_starting.then(|| Box::new(question.clone())),
        };
        self.questions.waiting.insert(number, waiting);
        *self.questions.count(app, question.kind) += 1;
        if due_ms != u64::MAX {
            self.questions.due.insert((due_ms, number));
        }
        let asked = asked(question);
        self.run(app, None, shared, |app, now| {
            let request = &asked;
            app.runtime
                .handle_event(Event::Hook { number, request }, now);
        });
    }

    /// Fails the requests whose deadline has passed.
    pub(super) fn give_up_questions(&mut self, shared: &mut Shared) {
        let now_ms = shared.now.mono_ms;
        // The remaining ones are still due, so the next turn follows at once.
        for _ in 0..GIVEN_UP_MAX {
            let Some(&(due_ms, number)) = self.questions.due.first() else {
                return;
            };
            if due_ms > now_ms {
                return;
            }
            self.questions.due.pop_first();
            let Some(app) = self.questions.waiting.get(&number).map(|one| one.app) else {
                continue;
            };
            self.run(app, None, shared, |app, now| {
                app.runtime.handle_event(Event::HookGone { number }, now);
            });
            // Ends the request even if no VM knows it any more.
            self.ruled(number, HookResponse::Failed, shared);
        }
    }

    /// Handles the response of an application.
    pub(super) fn ruled(&mut self, number: u64, ruling: HookResponse, shared: &mut Shared) {
        let Some(Waiting {
            session,
            id,
            app,
            behind,
            ..
        }) = self.questions.take(number)
        else {
            return;
        };
        let verdict = verdict(ruling).unwrap_or_else(|why| {
            let app = self.app_name(app);
            error!(target: LOG, app, "app.centrifuge: {why}");
            Verdict::Failed
        });
        let verdict = (session, id, verdict);
        let up_to = self.held.last();
        match self.held.have_gone(behind, up_to) {
            true => shared.ports.verdicts.push_back(verdict),
            false => self.questions.held.push(Held {
                behind,
                up_to,
                verdict,
            }),
        }
    }

    /// Delivers decisions once the publications made since their request are with the hub.
    pub(super) fn hand_held_verdicts(&mut self, shared: &mut Shared) {
        let publications = &self.held;
        let may_go = |held: &mut Held| publications.have_gone(held.behind, held.up_to);
        let released = self.questions.held.extract_if(.., may_go);
        let verdicts = released.map(|held| held.verdict);
        shared.ports.verdicts.extend(verdicts);
    }
}

/// Updates the hooks that an application handles after its code was loaded.
pub(super) fn decides_on(runtime: &impl Runtime, kinds: &Kinds) {
    let hooks = Hook::ALL.into_iter();
    let hooks = hooks.filter(|hook| runtime.decides_on(*hook));
    kinds.set(hooks.map(|hook| match hook {
        Hook::Connect => Kind::Connect,
        Hook::Refresh => Kind::Refresh,
        Hook::Subscribe => Kind::Subscribe,
        Hook::SubRefresh => Kind::SubRefresh,
        Hook::Publish => Kind::Publish,
        Hook::Rpc => Kind::Rpc,
        Hook::Message => Kind::Message,
        Hook::Disconnect => Kind::Disconnect,
    }));
}

/// Converts a session's request for the runtime.
fn asked(question: &Question) -> HookRequest<'_> {
    let asker: &Asker = &question.asker;
    let hook = match question.kind {
        Kind::Connect => Hook::Connect,
        Kind::Refresh => Hook::Refresh,
        Kind::Subscribe => Hook::Subscribe,
        Kind::SubRefresh => Hook::SubRefresh,
        Kind::Publish => Hook::Publish,
        Kind::Rpc => Hook::Rpc,
        Kind::Message => Hook::Message,
        Kind::Disconnect => Hook::Disconnect,
    };
    let meta = asker.meta.as_ref();
    HookRequest {
        hook,
        caller: HookCaller {
            id: &asker.client,
            user: &question.user,
            transport: asker.transport,
            protocol: match asker.encoding {
                Encoding::Json => "json",
                Encoding::Protobuf => "protobuf",
            },
            name: &asker.name,
            version: &asker.version,
            remote: asker.address,
            headers: &asker.headers,
            meta: meta.map(|meta| &*meta.bytes),
        },
        subject: match (&question.end, question.kind) {
            (Some((_, reason)), _) => reason,
            (None, Kind::Rpc) => &question.method,
            (None, _) => &question.channel,
        },
        code: question.end.as_ref().map_or(0, |(code, _)| *code),
        token: &question.token.0,
        channels: &question.channels,
        data: question.data.as_ref().map(data),
    }
}

fn data(payload: &Payload) -> Data<'_> {
    match (payload.kind, std::str::from_utf8(&payload.bytes)) {
        (PayloadKind::Json, _) => Data::Json(&payload.bytes),
        (PayloadKind::Text, Ok(text)) => Data::Text(text),
        _ => Data::Binary(&payload.bytes),
    }
}

/// Converts a script's response for the session.
fn verdict(ruling: HookResponse) -> Result<Verdict, &'static str> {
    Ok(match ruling {
        HookResponse::Granted(granted) => {
            let channels = granted.channels.into_iter().map(|given| {
                Ok::<_, &'static str>(Given {
                    channel: given.channel.into(),
                    info: payload(given.info)?,
                    data: payload(given.data)?,
                    expires_at_s: given.expires_at_s,
                })
            });
            Verdict::Granted(Box::new(Grant {
                user: granted.user.into(),
                expires_at_s: granted.expires_at_s,
                is_expired: granted.is_expired,
                info: payload(granted.info)?,
                data: payload(granted.data)?,
                channels: channels.collect::<Result<_, _>>()?,
                meta: payload(granted.meta)?,
                skips_history: granted.skips_history,
            }))
        }
        HookResponse::Error {
            code,
            message,
            is_temporary,
        } => Verdict::Error {
            code,
            message: message.into(),
            is_temporary,
        },
        HookResponse::Disconnect { code, reason } => Verdict::Disconnect {
            code,
            reason: reason.into(),
        },
        HookResponse::Failed => Verdict::Failed,
    })
}

fn payload(blob: Option<Blob>) -> Result<Option<Payload>, &'static str> {
    Ok(match blob {
        None => None,
        Some(Blob::Bytes(bytes)) => Some(hooks::bytes(bytes)),
        Some(Blob::Json(text)) => {
            let text = String::from_utf8(text).map_err(|_| "a result is not UTF-8")?;
            Some(hooks::json(&text).ok_or("a result is nested too deep")?)
        }
    })
}
