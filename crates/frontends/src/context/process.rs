//! The services that the whole process, rather than one worker, provides to connections.

use std::net::IpAddr;

use crate::context::admin_view::AdminView;
use crate::context::issued_token::{Ban, BanError, IssuedToken};
use crate::context::log_note::AuthDecision;

/// Services of the process. The defaults do nothing and suit tests.
pub trait ProcessServices {
    /// Returns whether the server accepts work; if so, `/health` answers 200, otherwise 503.
    fn is_ready(&self) -> bool;
    /// Returns the text of `/metrics`.
    fn metrics(&self) -> String;
    /// Returns whether a client address may open another connection.
    fn address_has_capacity(&self, address: IpAddr) -> bool {
        let _ = address;
        true
    }
    /// Counts a connection of a client address; returns whether the address is within its limit.
    fn address_opened(&self, address: IpAddr) -> bool {
        let _ = address;
        true
    }
    /// Removes a closed connection from the count of its address.
    fn address_closed(&self, address: IpAddr) {
        let _ = address;
    }
    /// Counts a handshake of a client address; returns whether the address is within its handshake rate.
    fn may_begin_handshake(&self, address: IpAddr, now_ms: u64) -> bool {
        let _ = (address, now_ms);
        true
    }
    /// Records a wrong key from a client address. Returns 0 if the address is within its limit of wrong keys,
    /// otherwise the milliseconds until it is within the limit again.
    fn wrong_key(&self, address: IpAddr, now_ms: u64) -> u64 {
        let _ = (address, now_ms);
        0
    }
    /// Counts another session of a user if the user has fewer than `max` sessions; returns whether it was counted.
    fn user_opened(&self, user: &str, max: u32) -> bool {
        let _ = (user, max);
        true
    }
    /// Removes a closed session from the count of its user.
    fn user_closed(&self, user: &str) {
        let _ = user;
    }
    /// Returns whether a user is banned at this time, in seconds since 1970.
    fn is_banned(&self, user: &str, now_s: u64) -> bool {
        let _ = (user, now_s);
        false
    }
    /// Returns whether a token that is otherwise valid was revoked. `now_s`: the time in seconds since 1970.
    fn is_revoked(&self, token: &IssuedToken<'_>, now_s: u64) -> bool {
        let _ = (token, now_s);
        false
    }
    /// Adds or lifts a ban, for all workers. `now_s`: the time in seconds since 1970.
    ///
    /// # Errors
    /// [`BanError::TooMany`]: the ban is not in force. [`BanError::NotWritten`]: it is in force, but could not be
    /// saved.
    fn ban(&self, block: &Ban, now_s: u64) -> Result<(), BanError> {
        let _ = (block, now_s);
        Err(BanError::TooMany)
    }
    /// Returns whether the cluster has another node with this id.
    fn has_node(&self, id: &str) -> bool {
        let _ = id;
        false
    }
    /// Returns the number of disconnects and unsubscriptions that back ends have requested so far. A caller stores the
    /// number and later passes it to [`is_disconnected_since`](Self::is_disconnected_since) or
    /// [`is_unsubscribed_since`](Self::is_unsubscribed_since), to find out whether a user was affected in the meantime.
    fn disconnect_count(&self) -> u64 {
        0
    }
    /// Records that a back end disconnects a user's connections, except those with these ids. The record makes pending
    /// authentications of the user void; open sessions receive the command separately. Increments
    /// [`disconnect_count`](Self::disconnect_count).
    fn disconnect_user(&self, user: &str, except: &[Box<str>]) {
        let _ = (user, except);
    }
    /// Records that a back end disconnects the user's connection with this id, with the effect of
    /// [`disconnect_user`](Self::disconnect_user) on this connection.
    fn disconnect_client(&self, user: &str, client: &str) {
        let _ = (user, client);
    }
    /// Returns whether the user was disconnected since [`disconnect_count`](Self::disconnect_count) had the value
    /// `endings`. If so, an authentication that began at that value is void. `client` is the connection's id, empty if
    /// it has none yet.
    fn is_disconnected_since(&self, user: &str, endings: u64, client: &str) -> bool {
        let _ = (user, endings, client);
        false
    }
    /// Records that a back end unsubscribes a user from a channel, on the connection `client` or, if it is `None`, on
    /// all connections of the user. The record makes pending decisions about the subscription void. Increments
    /// [`disconnect_count`](Self::disconnect_count).
    fn unsubscribe_user(&self, user: &str, channel: &str, client: Option<&str>) {
        let _ = (user, channel, client);
    }
    /// Returns whether the user was unsubscribed from the channel since [`disconnect_count`](Self::disconnect_count)
    /// had the value `endings`. If so, a decision that was requested at that value must not subscribe the connection
    /// `client`.
    fn is_unsubscribed_since(&self, user: &str, channel: &str, endings: u64, client: &str) -> bool {
        let _ = (user, channel, endings, client);
        false
    }
    /// Logs an internal error for the operator.
    fn log_error(&self, what: &str);
    /// Returns the id of this node, as clients receive it.
    fn node(&self) -> String {
        String::new()
    }
    /// Returns whether the decision log is being watched.
    fn watches_decisions(&self) -> bool {
        false
    }
    /// Reports a decision about a client. Only called while the decision log is being watched.
    fn log_decision(&self, decision: &AuthDecision<'_>) {
        let _ = decision;
    }
    /// Reports an error in a script; the caller has already logged it.
    fn script_failed(&self, app: &str, what: &str) {
        let _ = (app, what);
    }
    /// Returns the value of `nodes` in `GET /api/info`: a JSON array.
    fn nodes(&self) -> String;
    /// Returns the data of a view of the admin page: a JSON object.
    fn admin_view(&self, look: AdminView) -> String {
        let _ = look;
        "{}".to_owned()
    }
}
