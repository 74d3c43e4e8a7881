//! The process-wide state that front ends query: shared limits, bans and revoked sessions, reports.

use std::net::IpAddr;

use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use veche_frontends::admin::Look;
use veche_frontends::blocks::{Block, Issued, NotBlocked};
use veche_frontends::{Decision, Process};

use super::Report;
use crate::cluster::Seen;

impl Process for Report {
    fn is_ready(&self) -> bool {
        self.common.is_ready()
    }

    fn metrics(&self) -> String {
        let mut text = String::with_capacity(16 << 10);
        // Writing to a string can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn node(&self) -> String {
        self.uid.clone()
    }

    fn address_has_room(&self, address: IpAddr) -> bool {
        self.common.addresses.have_room(address)
    }

    fn address_opened(&self, address: IpAddr) -> bool {
        self.common.addresses.opened(address)
    }

    fn address_closed(&self, address: IpAddr) {
        self.common.addresses.closed(address);
    }

    fn may_begin(&self, address: IpAddr, now_ms: u64) -> bool {
        self.common.addresses.may_begin(address, now_ms)
    }

    fn wrong_key(&self, address: IpAddr, now_ms: u64) -> u64 {
        let guesses = &self.common.wrong_keys;
        let wait_ms = guesses.wait_ms(address, now_ms);
        if wait_ms == 0 {
            guesses.wrong(address, now_ms);
        }
        wait_ms
    }

    fn user_opened(&self, user: &str, max: u32) -> bool {
        self.common.users.opened(user, max)
    }

    fn user_closed(&self, user: &str) {
        self.common.users.closed(user);
    }

    fn is_blocked(&self, user: &str, now_s: u64) -> bool {
        self.common.blocks.has_user(user, now_s)
    }

    fn is_revoked(&self, token: &Issued<'_>, now_s: u64) -> bool {
        self.common.blocks.has_token(token, now_s)
    }

    fn block(&self, block: &Block, now_s: u64) -> Result<(), NotBlocked> {
        self.common.blocks.add(block, now_s)
    }

    fn endings(&self) -> u64 {
        self.common.identities.ended().count()
    }

    fn end_user(&self, user: &str, except: &[Box<str>]) {
        self.common.identities.ended().add(user, except);
    }

    fn end_client(&self, user: &str, client: &str) {
        self.common.identities.ended().add_client(user, client);
    }

    fn is_ended_since(&self, user: &str, endings: u64, client: &str) -> bool {
        self.common
            .identities
            .ended()
            .has_since(user, endings, client)
    }

    fn end_subscription(&self, user: &str, channel: &str, client: Option<&str>) {
        let ended = self.common.identities.ended();
        ended.add_subscription(user, channel, client);
    }

    fn is_unsubscribed_since(&self, user: &str, channel: &str, endings: u64, client: &str) -> bool {
        let ended = self.common.identities.ended();
        ended.has_subscription_since(user, channel, endings, client)
    }

    fn trouble(&self, what: &str) {
        tracing::error!("{what}");
    }

    fn is_watched(&self) -> bool {
        self.common.decisions.is_watched()
    }

    fn decided(&self, decision: &Decision<'_>) {
        self.common.decisions.report(decision);
    }

    fn script_failed(&self, app: &str, what: &str) {
        if let Some(dev) = &self.dev {
            dev.failed(app, what);
        }
    }

    fn look(&self, look: Look) -> String {
        self.seen(look).to_string()
    }

    fn nodes(&self) -> String {
        let cluster = self.common.cluster.as_ref().map(|cluster| cluster.seen());
        let name = cluster.as_ref().map_or("veche", Seen::name);
        let own = json!({
            "uid": self.uid,
            "name": name,
            "version": env!("CARGO_PKG_VERSION"),
            "num_clients": self.sum(|s| &s.sessions),
            "num_users": self.sum(|s| &s.users),
            "num_channels": self.sum(|s| &s.channels),
            "num_subs": self.sum(|s| &s.subscriptions),
            "uptime": self.common.started.elapsed().as_secs(),
        });
        let others = cluster.iter().flat_map(Seen::info);
        let nodes: Vec<Value> = std::iter::once(own).chain(others).collect();
        Value::from(nodes).to_string()
    }

    fn has_node(&self, id: &str) -> bool {
        let cluster = self.common.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.has(id))
    }
}
