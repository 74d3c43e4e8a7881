//! Checks `[pam]`, and that routes with passwords have a secure transport and a usable PAM service.

use veche_pam::PamService;

use super::identity::{duration, number};
use super::listeners::{CheckedListener, Exposure};
use super::{Checker, rate, text};
use crate::identity::PamConfig;
use crate::names::IdentitySource;
use crate::raw::RawTable;
use crate::types::RouteConfig;

impl Checker<'_> {
    /// Reads `[pam]`; `None` if a value is invalid.
    pub(super) fn pam(&mut self, table: &RawTable) -> Option<PamConfig> {
        let realm = text(table, "realm").expect("has a default");
        let fits = |c: char| (c == ' ' || c.is_ascii_graphic()) && c != '"' && c != '\\';
        if realm.is_empty() || !realm.chars().all(fits) {
            self.problems.add(
                table.value_at("realm"),
                "realm: expected visible ASCII characters and spaces, without \" and \\",
            );
            return None;
        }
        Some(PamConfig {
            realm,
            helpers: number(table, "helpers"),
            helper_idle: duration(table, "helper_idle"),
            timeout: duration(table, "timeout"),
            waiting: number(table, "waiting"),
            cache_time: Some(duration(table, "cache_time")).filter(|time| !time.is_zero()),
            wrong_per_address: rate(table, "wrong_per_address"),
        })
    }

    /// Checks the routes that use PAM.
    pub(super) fn passwords<'t>(
        &mut self,
        routes: impl Iterator<Item = (&'t RawTable, &'t Option<RouteConfig>)>,
        listeners: &[CheckedListener],
        is_sandboxed: bool,
    ) {
        let mut asked: Vec<&PamService> = Vec::new();
        for (table, route) in routes {
            let Some(route) = route else { continue };
            let Some(identity @ IdentitySource::Pam(service)) = route.handler.identity() else {
                continue;
            };
            let at = table.value_at("identity");
            if is_sandboxed {
                self.problems.add(
                    at,
                    format!("identity: \"{identity}\" can't be combined with server.sandbox, which prevents running programs and loading modules"),
                );
            } else if !asked.contains(&service) {
                asked.push(service);
                if let Err(why) = (self.world.pam)(service) {
                    self.problems
                        .add(at, format!("identity: \"{identity}\": {why}"));
                }
            }
            self.readable(table, identity, route, listeners);
        }
    }

    /// Reports plain-text transport of passwords, which are sent with every request.
    fn readable(
        &mut self,
        table: &RawTable,
        identity: &IdentitySource,
        route: &RouteConfig,
        all: &[CheckedListener],
    ) {
        let at = table.value_at("identity");
        let reached = |exposure: Exposure| {
            let mut on = route.listeners.iter().map(|index| &all[*index]);
            on.find(|listener| listener.exposure == exposure)
        };
        if let Some(open) = reached(Exposure::Open) {
            let label = open.address.map(|address| address.to_string());
            self.problems.add(
                at,
                format!(
                    "identity: \"{identity}\" makes clients send passwords, which could be read on the network at {}; give that listener tls, or let it listen on 127.0.0.1, or name the proxy that terminates TLS in trusted_proxies",
                    label.unwrap_or_default()
                ),
            );
        } else if let Some(proxied) = reached(Exposure::Proxied) {
            let label = proxied.address.map(|address| address.to_string());
            self.warn(
                at,
                format!(
                    "identity: \"{identity}\": passwords are sent in plain text between the trusted proxies and {}",
                    label.unwrap_or_default()
                ),
            );
        }
    }
}
