//! Renewal by hooks: when a connection or subscription expires, a hook decides whether it continues.
//!
//! Clients are not involved, and no command waits for it. Without a decision the hook is asked again later, and the
//! session continues until then.

use std::borrow::Cow;
use std::sync::Arc;

use veche_centrifuge::{DisconnectCode, Push, PushBody, UnsubscribeCode};

use super::deciding::{Ask, checked};
use super::frame::Frame;
use super::{Centrifuge, Context, Flow, State};
use crate::context::hooks::{Grant, Kind, QuestionId, Verdict};
use crate::context::identity::Term;
use crate::context::note::NoteLevel;
use crate::context::route::Route;

/// Delay before a failed request is repeated.
const AGAIN_MS: u64 = 60_000;

/// The outcome of a renewal request.
enum Renewed {
    /// Valid until then, in milliseconds since 1970; `None`: indefinitely.
    Until(Option<u64>, Box<Grant>),
    Later,
    Over,
    /// The client is disconnected.
    End(u16, Cow<'static, str>),
}

impl Centrifuge {
    /// Returns whether a hook has to be asked when the connection expires, and is not being asked yet.
    pub(crate) fn asks_for_time(&self, route: &Route) -> bool {
        self.state == State::Connected
            && self.deciding.refresh.is_none()
            && route.decider(Kind::Refresh).is_some()
    }

    /// Sends requests for what has expired.
    pub(super) fn ask_for_time(&mut self, cx: &mut Context<'_>) {
        let now_ms = cx.shared.now.wall_ms;
        let is_over = |expires_ms: u64| now_ms >= expires_ms;
        let lease = cx.lease.as_deref().and_then(|lease| lease.term.until_ms);
        if lease.is_some_and(is_over)
            && self.asks_for_time(cx.route())
            && let Some(decider) = cx.route().decider(Kind::Refresh)
        {
            self.deciding.refresh = self.question(decider, Kind::Refresh, Ask::default(), cx);
        }
        let Some(decider) = cx.route().decider(Kind::SubRefresh) else {
            return;
        };
        for channel in self.subscriptions.to_renew(now_ms, self.channel_awaited()) {
            let ask = Ask {
                channel: &channel,
                ..Ask::default()
            };
            if let Some(question) = self.question(decider, Kind::SubRefresh, ask, cx) {
                self.subscriptions.begin_renewal(&channel, question);
            }
        }
    }

    /// Handles a decision on a renewal; returns what happens to the session, if anything.
    pub(super) fn renewed(
        &mut self,
        question: QuestionId,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        let now_ms = cx.shared.now.wall_ms;
        if self.deciding.refresh == Some(question) {
            self.deciding.refresh = None;
            self.is_hurried = true;
            return match renewal(Kind::Refresh, verdict, cx) {
                Renewed::Until(expires_ms, grant) => {
                    if let Some(info) = grant.info {
                        Arc::make_mut(&mut self.info).conn_info = Some(info);
                    }
                    self.prolong(expires_ms, cx);
                    None
                }
                Renewed::Later => {
                    // It may have been extended in the meantime.
                    let lease = cx.lease.as_deref();
                    if let Some(until_ms) = lease.and_then(|lease| lease.term.until_ms) {
                        self.prolong(Some(until_ms.max(now_ms + AGAIN_MS)), cx);
                    }
                    None
                }
                Renewed::Over => Some(DisconnectCode::Expired.into()),
                Renewed::End(code, reason) => Some(Flow::Close(code, reason)),
            };
        }
        let channel = self.subscriptions.end_renewal(question)?;
        self.is_hurried = true;
        match renewal(Kind::SubRefresh, verdict, cx) {
            Renewed::Until(expires_ms, grant) => {
                self.subscriptions.renew(&channel, expires_ms, grant.info);
                None
            }
            Renewed::Later => {
                let expires_ms = self.subscriptions.expires_ms(&channel);
                let again_ms = expires_ms.map(|expires_ms| expires_ms.max(now_ms + AGAIN_MS));
                self.subscriptions.renew(&channel, again_ms, None);
                None
            }
            // The client can't subscribe to it again.
            Renewed::Over if self.subscriptions.is_given(&channel) => {
                Some(DisconnectCode::SubscriptionExpired.into())
            }
            Renewed::Over => {
                self.leave(&channel, cx);
                let mut frame = Frame::new(self.dialect(), cx.shared.ports.outboxes.spare());
                frame.push(&Push {
                    channel: &channel,
                    body: PushBody::Unsubscribe(UnsubscribeCode::Expired.into()),
                });
                frame.send(cx.id, &mut cx.shared.ports.outboxes);
                cx.shared.ports.outboxes.recycle(frame.into_bytes());
                None
            }
            Renewed::End(code, reason) => Some(Flow::Close(code, reason)),
        }
    }

    fn prolong(&self, expires_ms: Option<u64>, cx: &mut Context<'_>) {
        match (&mut *cx.lease, expires_ms) {
            (Some(lease), Some(expires_ms)) => {
                lease.term = Term {
                    until_ms: Some(expires_ms),
                    leeway_ms: 0,
                };
            }
            (lease, None) => *lease = None,
            // A back end has removed the expiry in the meantime.
            (None, Some(_)) => {}
        }
    }
}

/// Evaluates a decision on a renewal.
fn renewal(kind: Kind, verdict: Verdict, cx: &mut Context<'_>) -> Renewed {
    match checked(verdict) {
        Ok(Verdict::Granted(grant)) => {
            let expires_ms = grant.expires_at_s.map(|at_s| at_s.saturating_mul(1000));
            let now_ms = cx.shared.now.wall_ms;
            let is_over = grant.is_expired || expires_ms.is_some_and(|at_ms| at_ms <= now_ms);
            match is_over {
                true => Renewed::Over,
                false => Renewed::Until(expires_ms, grant),
            }
        }
        Ok(Verdict::Disconnect { code, reason }) => Renewed::End(code, String::from(reason).into()),
        Ok(Verdict::Error { .. } | Verdict::Failed) => Renewed::Later,
        Err(why) => {
            let what = format!("hook {}: {why}", kind.name());
            cx.shared.note(cx.id, NoteLevel::Warn, what);
            Renewed::Later
        }
    }
}
