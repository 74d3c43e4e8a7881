//! The lease of a session that was opened with a token: the session ends when the token expires, unless a new token
//! of the same user arrives in time.

use veche_types::Now;

use super::{SocketRole, WebSocketStage};
use crate::context::hooks::HookKind;
use crate::context::identity::{AuthError, Identity, IdentityLease, Validity};
use crate::context::session::Session;
use crate::context::worker_context::Context;

/// Why a token was not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// The session is closed or closing.
    #[error("the connection is closed")]
    Closed,
    /// The session was not opened with a token, or does not expire.
    #[error("the connection was not opened with a token")]
    NoLease,
    /// The token belongs to another user.
    #[error("the token belongs to another user")]
    OtherUser,
    /// The token is invalid.
    #[error("{0}")]
    Refused(AuthError),
}

/// Time in milliseconds after the expiry of a connection or subscription token within which it can still be renewed.
pub(crate) const GRACE_MS: u64 = 25_000;

/// Maximum time in milliseconds after which an expiry is checked again, since the wall clock may be changed.
const RETRY_MS: u64 = 60 * 60 * 1000;

impl<S: Session> WebSocketStage<S> {
    /// Returns the monotonic time in milliseconds at which the session has to end, or at which the
    /// expiry has to be checked again; `u64::MAX` if the session does not expire. The session ends when
    /// its identity expires, or at the end of the grace period if it has one.
    pub(crate) fn expiry_ms(&self, now: Now) -> u64 {
        // Clients that renew their tokens themselves, and hooks that decide on a renewal, have a
        // grace period.
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

    /// Returns the monotonic time in milliseconds at which a hook request to extend the session has to
    /// be sent, or at which the expiry has to be checked again; `u64::MAX` if no hook extends it.
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

    /// Sets when the session expires, in seconds since 1970; `None` means never. Has no effect on a session that
    /// does not expire.
    pub(super) fn prolong(&mut self, expires_at_s: Option<u64>) {
        match (&mut self.lease, expires_at_s) {
            (Some(lease), Some(at_s)) => lease.validity = Validity::until_s(Some(at_s)),
            (lease, None) => *lease = None,
            (None, Some(_)) => {}
        }
    }

    /// Replaces the session's token. Returns for how many milliseconds the new one is valid; `None`: indefinitely.
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
            .verify(token, &shared.identity_checks())
            .map_err(|unknown| {
                if let AuthError::InvalidToken(refusal) = unknown {
                    shared.stats.token_refused(refusal);
                }
                RenewError::Refused(unknown)
            })?;
        if renewed.user != lease.user {
            return Err(RenewError::OtherUser);
        }
        // A ban closes the sessions of its user. If an application has assigned another user to this
        // session, a ban of the token's user has not closed it, so that ban is checked here.
        if shared.is_banned(&renewed.user) {
            return Err(RenewError::Refused(AuthError::Blocked));
        }
        shared.stats.tokens_renewed.add(1);
        let until_ms = renewed.validity.until_ms;
        **lease = renewed;
        Ok(until_ms.map(|until_ms| until_ms.saturating_sub(shared.now.wall_ms)))
    }
}
