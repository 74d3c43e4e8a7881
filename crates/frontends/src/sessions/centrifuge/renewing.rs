//! Renewals by hooks: when a connection or subscription expires, a hook decides whether it
//! continues.
//!
//! The client is not involved, and its commands do not wait for the decision. If the hook fails to
//! decide, the request is repeated later, and the connection or subscription continues until then.

use std::borrow::Cow;
use std::sync::Arc;

use veche_centrifuge::{DisconnectCode, Push, PushBody, UnsubscribeCode};

use super::frame::ReplyFrame;
use super::hook_requests::{HookQuery, check_decision};
use super::{Centrifuge, Flow, SessionContext, State};
use crate::context::hooks::{HookDecision, HookGrant, HookKind, HookRequestId};
use crate::context::identity::Validity;
use crate::context::log_note::NoteLevel;
use crate::context::route::Route;

/// Delay in milliseconds before a failed hook request is repeated.
const AGAIN_MS: u64 = 60_000;

/// The outcome of a renewal request.
enum RenewalOutcome {
    /// The connection or subscription is valid until this time in milliseconds since 1970; `None`: indefinitely.
    Until(Option<u64>, Box<HookGrant>),
    Later,
    Over,
    /// The client is disconnected with this code and reason.
    End(u16, Cow<'static, str>),
}

impl Centrifuge {
    /// Returns whether a hook has to decide when the connection expires and no request for its decision is
    /// pending yet.
    pub(crate) fn renews_by_hook(&self, route: &Route) -> bool {
        self.state == State::Connected
            && self.hooks.refresh.is_none()
            && route.hook_target(HookKind::Refresh).is_some()
    }

    /// Sends hook requests for the connection and the subscriptions that have expired.
    pub(super) fn request_renewal(&mut self, cx: &mut SessionContext<'_>) {
        let now_ms = cx.shared.now.wall_ms;
        let is_over = |expires_ms: u64| now_ms >= expires_ms;
        let lease = cx
            .lease
            .as_deref()
            .and_then(|lease| lease.validity.until_ms);
        if lease.is_some_and(is_over)
            && self.renews_by_hook(cx.route())
            && let Some(target) = cx.route().hook_target(HookKind::Refresh)
        {
            self.hooks.refresh =
                self.hook_request(target, HookKind::Refresh, HookQuery::default(), cx);
        }
        let Some(target) = cx.route().hook_target(HookKind::SubRefresh) else {
            return;
        };
        for channel in self.subscriptions.to_renew(now_ms, self.channel_awaited()) {
            let ask = HookQuery {
                channel: &channel,
                ..HookQuery::default()
            };
            if let Some(request_id) = self.hook_request(target, HookKind::SubRefresh, ask, cx) {
                self.subscriptions.begin_renewal(&channel, request_id);
            }
        }
    }

    /// Handles a decision on a renewal. Returns how the session is closed, or `None` if it stays open.
    pub(super) fn handle_renewal(
        &mut self,
        request_id: HookRequestId,
        decision: HookDecision,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        let now_ms = cx.shared.now.wall_ms;
        if self.hooks.refresh == Some(request_id) {
            self.hooks.refresh = None;
            self.deadline_changed = true;
            return match renewal(HookKind::Refresh, decision, cx) {
                RenewalOutcome::Until(expires_ms, grant) => {
                    if let Some(info) = grant.info {
                        Arc::make_mut(&mut self.info).conn_info = Some(info);
                    }
                    self.prolong(expires_ms, cx);
                    None
                }
                RenewalOutcome::Later => {
                    // The connection may have been extended in the meantime, so its expiry is not made earlier.
                    let lease = cx.lease.as_deref();
                    if let Some(until_ms) = lease.and_then(|lease| lease.validity.until_ms) {
                        self.prolong(Some(until_ms.max(now_ms + AGAIN_MS)), cx);
                    }
                    None
                }
                RenewalOutcome::Over => Some(DisconnectCode::Expired.into()),
                RenewalOutcome::End(code, reason) => Some(Flow::Close(code, reason)),
            };
        }
        let channel = self.subscriptions.end_renewal(request_id)?;
        self.deadline_changed = true;
        match renewal(HookKind::SubRefresh, decision, cx) {
            RenewalOutcome::Until(expires_ms, grant) => {
                self.subscriptions.renew(&channel, expires_ms, grant.info);
                None
            }
            RenewalOutcome::Later => {
                let expires_ms = self.subscriptions.expires_ms(&channel);
                let again_ms = expires_ms.map(|expires_ms| expires_ms.max(now_ms + AGAIN_MS));
                self.subscriptions.renew(&channel, again_ms, None);
                None
            }
            // The client can't renew a server-side subscription by subscribing again, so its
            // connection ends.
            RenewalOutcome::Over if self.subscriptions.is_by_server(&channel) => {
                Some(DisconnectCode::SubscriptionExpired.into())
            }
            RenewalOutcome::Over => {
                self.leave(&channel, cx);
                let mut frame =
                    ReplyFrame::new(self.push_encoding(), cx.shared.requests.outboxes.spare());
                frame.push(&Push {
                    channel: &channel,
                    body: PushBody::Unsubscribe(UnsubscribeCode::Expired.into()),
                });
                frame.send(cx.id, &mut cx.shared.requests.outboxes);
                cx.shared.requests.outboxes.recycle(frame.into_bytes());
                None
            }
            RenewalOutcome::End(code, reason) => Some(Flow::Close(code, reason)),
        }
    }

    fn prolong(&self, expires_ms: Option<u64>, cx: &mut SessionContext<'_>) {
        match (&mut *cx.lease, expires_ms) {
            (Some(lease), Some(expires_ms)) => {
                lease.validity = Validity {
                    until_ms: Some(expires_ms),
                    leeway_ms: 0,
                };
            }
            (lease, None) => *lease = None,
            // A back end has removed the expiry in the meantime: the connection stays valid indefinitely.
            (None, Some(_)) => {}
        }
    }
}

/// Converts a hook's decision on a renewal to its outcome.
fn renewal(kind: HookKind, decision: HookDecision, cx: &mut SessionContext<'_>) -> RenewalOutcome {
    match check_decision(decision) {
        Ok(HookDecision::Granted(grant)) => {
            let expires_ms = grant.expires_at_s.map(|at_s| at_s.saturating_mul(1000));
            let now_ms = cx.shared.now.wall_ms;
            let is_over = grant.is_expired || expires_ms.is_some_and(|at_ms| at_ms <= now_ms);
            match is_over {
                true => RenewalOutcome::Over,
                false => RenewalOutcome::Until(expires_ms, grant),
            }
        }
        Ok(HookDecision::Disconnect { code, reason }) => {
            RenewalOutcome::End(code, String::from(reason).into())
        }
        Ok(HookDecision::Error { .. } | HookDecision::Failed | HookDecision::Unhandled) => {
            RenewalOutcome::Later
        }
        Err(why) => {
            let what = format!("hook {}: {why}", kind.name());
            cx.shared.log(cx.id, NoteLevel::Warn, what);
            RenewalOutcome::Later
        }
    }
}
