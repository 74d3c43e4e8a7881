//! A session that a token has opened: it ends with the token, unless another one of the same user comes in time.

use veche_types::Now;

use super::{SocketRole, WebSocketStage};
use crate::context::hooks::HookKind;
use crate::context::identity::{AuthError, Identity, IdentityLease, Validity};
use crate::context::session::Session;
use crate::context::worker_context::Context;

/// Why a token does not take the place of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// The session is over, or on its way there.
    #[error("the connection is closed")]
    Closed,
    /// No token has opened the session.
    #[error("no token has opened this connection")]
    NoLease,
    /// The token is another user's.
    #[error("the token is another user's")]
    OtherUser,
    /// It does not hold.
    #[error("{0}")]
    Refused(AuthError),
}

/// So long after its token is over a connection, or a subscription, may still be given another one.
pub(crate) const GRACE_MS: u64 = 25_000;

/// A token that holds for longer is looked at again then: the wall clock may have been set.
const RETRY_MS: u64 = 60 * 60 * 1000;

impl<S: Session> WebSocketStage<S> {
    /// When the token holds no more, by the monotonic clock, or when to look again; `u64::MAX` without one.
    pub(crate) fn expiry_ms(&self, now: Now) -> u64 {
        // Clients that renew their tokens by themselves have a little more time for it, and so have hooks.
        let grace_ms = |lease: &IdentityLease| match &self.side {
            SocketRole::Server(route)
                if self.session.renews_token()
                    && (!lease.is_final || route.hook_target(HookKind::Refresh).is_some()) =>
            {
                GRACE_MS
            }
            _ => 0,
        };
        let left_ms = |lease: &IdentityLease| {
            let grace_ms = grace_ms(lease);
            let end_ms = lease.validity.until_ms?.saturating_add(grace_ms);
            Some(end_ms.saturating_sub(now.wall_ms).min(RETRY_MS))
        };
        let left_ms = self.lease.as_deref().and_then(left_ms);
        left_ms.map_or(u64::MAX, |left_ms| now.mono_ms.saturating_add(left_ms))
    }

    /// When somebody is to be asked whether the connection may stay, by the monotonic clock, or when to look again.
    pub(super) fn renewal_ms(&self, now: Now) -> u64 {
        let SocketRole::Server(route) = &self.side else {
            return u64::MAX;
        };
        let lease = self.lease.as_deref();
        let lease = lease.filter(|_| self.session.renews_by_hook(route));
        let until_ms = lease.and_then(|lease| lease.validity.until_ms);
        let left_ms = until_ms.map(|until_ms| until_ms.saturating_sub(now.wall_ms));
        left_ms.map_or(u64::MAX, |left_ms| {
            now.mono_ms.saturating_add(left_ms.min(RETRY_MS))
        })
    }

    /// Holds until then, in seconds since 1970; `None`: for as long as it likes. Only where a token has opened it.
    pub(super) fn prolong(&mut self, expires_at_s: Option<u64>) {
        match (&mut self.lease, expires_at_s) {
            (Some(lease), Some(at_s)) => lease.validity = Validity::until_s(Some(at_s)),
            (lease, None) => *lease = None,
            (None, Some(_)) => {}
        }
    }

    /// Another token; how long that holds, in milliseconds from now, `None` for ever.
    pub(crate) fn renew(
        &mut self,
        token: &str,
        shared: &Context,
    ) -> Result<Option<u64>, RenewError> {
        if self.is_closing() {
            return Err(RenewError::Closed);
        }
        let (Some(lease), SocketRole::Server(route)) = (&mut self.lease, &self.side) else {
            return Err(RenewError::NoLease);
        };
        let Identity::Token(tokens) = &route.identity else {
            return Err(RenewError::NoLease);
        };
        let (renewed, _) = tokens
            .judge(token, &shared.identity_checks())
            .map_err(|unknown| {
                if let AuthError::InvalidToken(refusal) = unknown {
                    shared.stats.token_refused(refusal);
                }
                RenewError::Refused(unknown)
            })?;
        if renewed.user != lease.user {
            return Err(RenewError::OtherUser);
        }
        // The session may go by another name, by which it was not found.
        if shared.is_banned(&renewed.user) {
            return Err(RenewError::Refused(AuthError::Blocked));
        }
        shared.stats.tokens_renewed.add(1);
        let until_ms = renewed.validity.until_ms;
        **lease = renewed;
        Ok(until_ms.map(|until_ms| until_ms.saturating_sub(shared.now.wall_ms)))
    }
}
