//! Warnings about settings that are allowed but dangerous in combination.

use veche_frontends::identity::token::TokenSource;
use veche_terminal::format_duration;

use super::{Checker, list};
use crate::identity::{IdentityHookConfig, JwtConfig};
use crate::names::{IdentitySource, OriginRule};
use crate::raw::RawTable;
use crate::types::{AdminConfig, ApiConfig, LimitsConfig, ListenerRole, RouteConfig};

impl Checker<'_> {
    /// Warns if pages of any origin may connect to a route for which browsers send credentials
    /// automatically.
    pub(super) fn ambient<'t>(
        &mut self,
        routes: impl Iterator<Item = (&'t RawTable, &'t Option<RouteConfig>)>,
        jwt: Option<&JwtConfig>,
    ) {
        let is_in_cookie = jwt.is_some_and(|jwt| {
            let mut places = jwt.places.iter();
            places.any(|place| matches!(place, TokenSource::Cookie(_)))
        });
        for (table, route) in routes {
            let Some(handler) = route.as_ref().map(|route| &route.handler) else {
                continue;
            };
            let shown = match handler.identity() {
                Some(IdentitySource::Cookie(_)) => "the cookie",
                Some(IdentitySource::Hook(_)) => "the cookies for the back end",
                Some(IdentitySource::Pam(_)) => "the password",
                Some(IdentitySource::Certificate(_)) => "the certificate",
                Some(IdentitySource::Token(_)) if is_in_cookie => "the token in a cookie",
                _ => continue,
            };
            let is_open = handler
                .websocket()
                .is_some_and(|websocket| websocket.origins.contains(&OriginRule::Any));
            if is_open {
                let item = list(table, "origins").iter().position(|one| one == "*");
                self.warn(
                    item.and_then(|item| table.item_at("origins", item)),
                    format!("origins: with \"*\" a page of any site can connect as its visitor, because the browser adds {shown} automatically; list the allowed sites"),
                );
            }
        }
    }

    /// Warns if the handshake times out before the identity hook does.
    pub(super) fn slow_hook(
        &mut self,
        table: &RawTable,
        hook: Option<&IdentityHookConfig>,
        routes: &[Option<RouteConfig>],
        limits: &LimitsConfig,
    ) {
        let is_asked = routes.iter().flatten().any(|route| {
            let identity = route.handler.identity();
            matches!(identity, Some(IdentitySource::Hook(_)))
        });
        if is_asked && hook.is_some_and(|hook| hook.timeout >= limits.handshake_timeout) {
            self.warn(
                table.value_at("timeout"),
                format!(
                    "timeout: a handshake may last {} (limits.handshake_timeout), including the back end's response; use a shorter timeout",
                    format_duration(limits.handshake_timeout)
                ),
            );
        }
    }

    /// Warns if a key opens both the API and the admin page.
    pub(super) fn shared_key(&mut self, table: &RawTable, admin: &AdminConfig, api: &ApiConfig) {
        if let Some(item) = admin.keys.iter().position(|key| api.keys.contains(key)) {
            self.warn(
                table.item_at("keys", item),
                "keys: this key is also one of [api], so every client that publishes with it can also use the admin page; use another",
            );
        }
    }

    /// Warns if any process on this machine may call the API, without a key or certificate.
    pub(super) fn keyless<'t>(
        &mut self,
        tables: impl Iterator<Item = &'t RawTable>,
        listeners: &[super::listeners::CheckedListener],
        has_keys: bool,
    ) {
        let accepts_any_client = |listener: &super::listeners::CheckedListener| {
            let tls = listener.listener.as_ref().and_then(|one| one.tls.as_ref());
            let clients = tls.and_then(|tls| tls.clients.as_ref());
            listener.role == Some(ListenerRole::Internal)
                && clients.is_none_or(|one| !one.is_required)
        };
        let mut open = tables
            .zip(listeners)
            .filter(|(_, listener)| accepts_any_client(listener));
        if !has_keys && let Some((table, _)) = open.next() {
            self.warn(
                table.at,
                "[[listen]] with role \"internal\" and no [api] keys, so every program and user of this machine can push to all users",
            );
        }
    }
}
