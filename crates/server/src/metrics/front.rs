//! Implements [`ProcessServices`]: the process-wide state that front ends query, such as shared
//! limits, bans, revoked sessions and metrics.

use std::net::IpAddr;

use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use veche_frontends::admin::AdminView;
use veche_frontends::issued_token::{Ban, BanError, IssuedToken};
use veche_frontends::{AuthDecision, ProcessServices};

use super::MetricsReport;
use crate::cluster::Seen;

impl ProcessServices for MetricsReport {
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

    fn address_has_capacity(&self, address: IpAddr) -> bool {
        self.common.addresses.have_room(address)
    }

    fn address_opened(&self, address: IpAddr) -> bool {
        self.common.addresses.opened(address)
    }

    fn address_closed(&self, address: IpAddr) {
        self.common.addresses.closed(address);
    }

    fn may_begin_handshake(&self, address: IpAddr, now_ms: u64) -> bool {
        self.common.addresses.may_begin(address, now_ms)
    }

    fn wrong_key(&self, address: IpAddr, now_ms: u64) -> u64 {
        let limit = &self.common.wrong_keys;
        let wait_ms = limit.wait_ms(address, now_ms);
        if wait_ms == 0 {
            limit.record_failure(address, now_ms);
        }
        wait_ms
    }

    fn user_opened(&self, user: &str, max: u32) -> bool {
        self.common.users.opened(user, max)
    }

    fn user_closed(&self, user: &str) {
        self.common.users.closed(user);
    }

    fn is_banned(&self, user: &str, now_s: u64) -> bool {
        self.common.blocks.has_user(user, now_s)
    }

    fn is_revoked(&self, token: &IssuedToken<'_>, now_s: u64) -> bool {
        self.common.blocks.has_token(token, now_s)
    }

    fn ban(&self, block: &Ban, now_s: u64) -> Result<(), BanError> {
        self.common.blocks.add(block, now_s)
    }

    fn disconnect_count(&self) -> u64 {
        self.common.identities.revoked_sessions().count()
    }

    fn disconnect_user(&self, user: &str, except: &[Box<str>]) {
        self.common.identities.revoked_sessions().add(user, except);
    }

    fn disconnect_client(&self, user: &str, client: &str) {
        self.common
            .identities
            .revoked_sessions()
            .add_client(user, client);
    }

    fn is_disconnected_since(&self, user: &str, endings: u64, client: &str) -> bool {
        self.common
            .identities
            .revoked_sessions()
            .has_since(user, endings, client)
    }

    fn unsubscribe_user(&self, user: &str, channel: &str, client: Option<&str>) {
        let ended = self.common.identities.revoked_sessions();
        ended.add_subscription(user, channel, client);
    }

    fn is_unsubscribed_since(&self, user: &str, channel: &str, endings: u64, client: &str) -> bool {
        let ended = self.common.identities.revoked_sessions();
        ended.has_subscription_since(user, channel, endings, client)
    }

    fn log_error(&self, what: &str) {
        tracing::error!("{what}");
    }

    fn watches_decisions(&self) -> bool {
        self.common.decisions.is_watched()
    }

    fn log_decision(&self, decision: &AuthDecision<'_>) {
        self.common.decisions.report(decision);
    }

    fn script_failed(&self, app: &str, what: &str) {
        if let Some(dev) = &self.dev {
            dev.failed(app, what);
        }
    }

    fn admin_view(&self, look: AdminView) -> String {
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
