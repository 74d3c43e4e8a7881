//! What connections ask of the process rather than of their worker.

use std::net::IpAddr;

use crate::context::blocks::{Block, Issued, NotBlocked};
use crate::context::look::Look;
use crate::context::note::Decision;

/// What is asked of the process rather than of a worker.
pub trait Process {
    /// Whether new work is welcome: `/health` says 200, else 503.
    fn is_ready(&self) -> bool;
    /// The text of `/metrics`.
    fn metrics(&self) -> String;
    /// Whether a client's address may have one more connection.
    fn address_has_room(&self, address: IpAddr) -> bool {
        let _ = address;
        true
    }
    /// A client's address has one more connection; whether it has not too many now.
    fn address_opened(&self, address: IpAddr) -> bool {
        let _ = address;
        true
    }
    /// One of those connections is this address's no more.
    fn address_closed(&self, address: IpAddr) {
        let _ = address;
    }
    /// Whether a client's address may begin one more handshake now, which counts.
    fn may_begin(&self, address: IpAddr, now_ms: u64) -> bool {
        let _ = (address, now_ms);
        true
    }
    /// A client's address has shown a wrong key; the milliseconds after which it may be wrong again, 0 for at once.
    fn wrong_key(&self, address: IpAddr, now_ms: u64) -> u64 {
        let _ = (address, now_ms);
        0
    }
    /// A user opens one more WebSocket, of which he may have `max`; whether he has room for it, and then it counts.
    fn user_opened(&self, user: &str, max: u32) -> bool {
        let _ = (user, max);
        true
    }
    /// One of those is closed.
    fn user_closed(&self, user: &str) {
        let _ = user;
    }
    /// Whether a user is not let in at that time, in seconds since 1970.
    fn is_blocked(&self, user: &str, now_s: u64) -> bool {
        let _ = (user, now_s);
        false
    }
    /// Whether a token was revoked that holds by itself.
    fn is_revoked(&self, token: &Issued<'_>, now_s: u64) -> bool {
        let _ = (token, now_s);
        false
    }
    /// From now on, for all workers.
    ///
    /// # Errors
    /// It is not so.
    fn block(&self, block: &Block, now_s: u64) -> Result<(), NotBlocked> {
        let _ = (block, now_s);
        Err(NotBlocked::TooMany)
    }
    /// Whether there is another node with that id.
    fn has_node(&self, id: &str) -> bool {
        let _ = id;
        false
    }
    /// How often a user's connections were ended so far, by the word of a back end.
    fn endings(&self) -> u64 {
        0
    }
    /// A user's connections are ended now, all but those of these ids.
    fn end_user(&self, user: &str, except: &[Box<str>]) {
        let _ = (user, except);
    }
    /// The only connection of a user that has this id is ended now.
    fn end_client(&self, user: &str, client: &str) {
        let _ = (user, client);
    }
    /// Whether either was so since there were so many [`endings`](Self::endings): what was found out of the user before
    /// does not let him in. `client` is the id of the connection, empty where it has none yet.
    fn is_ended_since(&self, user: &str, endings: u64, client: &str) -> bool {
        let _ = (user, endings, client);
        false
    }
    /// A user is unsubscribed from a channel now, by the word of a back end, with all connections or with the one of this
    /// id; counts as one of the [`endings`](Self::endings).
    fn end_subscription(&self, user: &str, channel: &str, client: Option<&str>) {
        let _ = (user, channel, client);
    }
    /// Whether that was so since there were so many: what was decided before does not subscribe the connection of this id.
    fn is_unsubscribed_since(&self, user: &str, channel: &str, endings: u64, client: &str) -> bool {
        let _ = (user, channel, endings, client);
        false
    }
    /// Something of ours went wrong that the operator should see in the log.
    fn trouble(&self, what: &str);
    /// By what clients know this process among others.
    fn node(&self) -> String {
        String::new()
    }
    /// Returns whether decisions are watched.
    fn is_watched(&self) -> bool {
        false
    }
    /// Reports a decision about a client; to be called only while decisions are watched.
    fn decided(&self, decision: &Decision<'_>) {
        let _ = decision;
    }
    /// A script of an application has failed, which is in the log already.
    fn script_failed(&self, app: &str, what: &str) {
        let _ = (app, what);
    }
    /// The `nodes` of `GET /api/info`: a JSON array.
    fn nodes(&self) -> String;
    /// What the admin page shows: a JSON object.
    fn look(&self, look: Look) -> String {
        let _ = look;
        "{}".to_owned()
    }
}
