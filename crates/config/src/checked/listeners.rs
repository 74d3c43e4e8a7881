//! Checks `[[listen]]`: addresses that don't collide, and the risks of exposed listeners.

use std::net::{IpAddr, SocketAddr};

use veche_terminal::did_you_mean;

use super::{Checker, text, word};
use veche_frontends::access::{Hosts, ListenerAccess};

use crate::directives::ROLES;
use crate::names::{parse_client_address, parse_host, parse_network};
use crate::raw::RawTable;
use crate::types::{CertificateOrigin, ListenerConfig, ListenerRole};
use crate::value::DirectiveValue;

/// The properties that determine the risks of a listener on an address other than loopback.
#[derive(Clone, Copy)]
struct ListenerRisk {
    is_plain: bool,
    /// Whether clients can connect without a certificate.
    accepts_any_client: bool,
    has_keys: bool,
}

/// A `[[listen]]` section, as far as it is valid.
pub(super) struct CheckedListener {
    pub(super) name: Option<String>,
    /// `None` if the role is invalid.
    pub(super) role: Option<ListenerRole>,
    pub(super) address: Option<SocketAddr>,
    /// Whether clients may present certificates.
    pub(super) has_client_ca: bool,
    pub(super) exposure: Exposure,
    /// `None` if the listener has a problem.
    pub(super) listener: Option<ListenerConfig>,
}

/// The hosts that can read the data of a listener's clients in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposure {
    /// No other host can read the data: the listener uses TLS, or only this machine can connect.
    Protected,
    /// Only hosts between this machine and the trusted proxies can read the data, if the proxies
    /// terminate TLS.
    Proxied,
    /// Every host on the path between client and server can read the data.
    Open,
}

impl Checker<'_> {
    pub(super) fn listeners<'t>(
        &mut self,
        tables: impl Iterator<Item = &'t RawTable>,
        has_keys: bool,
    ) -> Vec<CheckedListener> {
        let mut listeners: Vec<CheckedListener> = Vec::new();
        for table in tables {
            let before = self.problems.count();
            let role = table.is_sound("role").then(|| role_of(word(table, "role")));
            let address = self.address(table, &listeners);
            let name = self.name(table, &listeners);
            let tls = self.tls(table);
            let risk = ListenerRisk {
                is_plain: !table.has("tls"),
                accepts_any_client: tls.as_ref().is_none_or(|tls| {
                    tls.clients
                        .as_ref()
                        .is_none_or(|clients| !clients.is_required)
                }),
                has_keys,
            };
            if let (Some(role), Some(address)) = (role, address)
                && !address.ip().to_canonical().is_loopback()
            {
                self.exposed(table, role, address, risk);
            }
            let is_ordered = tls.as_ref().is_some_and(|tls| {
                let mut all = tls.certificates.iter();
                all.any(|one| matches!(one, CertificateOrigin::Acme(_)))
            });
            if is_ordered {
                self.warn_unreachable(table, address.map(|address| address.port()));
            }
            let has_client_ca = table.has("client_ca");
            let access = self.access(table, address);
            let mut listener = None;
            if self.problems.count() == before
                && let (Some(role), Some(address), Some(access)) = (role, address, access)
            {
                listener = Some(ListenerConfig {
                    index: table.index,
                    name: name.clone(),
                    address,
                    role,
                    tls,
                    access,
                });
            }
            listeners.push(CheckedListener {
                name,
                role,
                address,
                has_client_ca,
                exposure: match address {
                    Some(address)
                        if !table.has("tls") && !address.ip().to_canonical().is_loopback() =>
                    {
                        match table.has("trusted_proxies") {
                            true => Exposure::Proxied,
                            false => Exposure::Open,
                        }
                    }
                    _ => Exposure::Protected,
                },
                listener,
            });
        }
        if listeners.is_empty() && self.problems.is_empty() {
            let example = "[[listen]] with address = \"127.0.0.1:8080\"";
            self.problems.add(
                None,
                format!("no [[listen]], so no client could connect; add {example}"),
            );
        }
        listeners
    }

    fn access(&mut self, table: &RawTable, address: Option<SocketAddr>) -> Option<ListenerAccess> {
        let networks = self.networks(table);
        let trusted_proxies = self.each(table, "trusted_proxies", parse_network);
        let from = text(table, "client_address")?;
        let read = parse_client_address(&from).map_err(|why| format!("{why}, found {from:?}"));
        let client_address = self.take("client_address", table.value_at("client_address"), read);
        if table.has("client_address") && !table.has("trusted_proxies") {
            self.warn(
                table.key_at("client_address"),
                "client_address: has no effect without trusted_proxies",
            );
        }
        let proxy_protocol = table.value("proxy_protocol") == Some(DirectiveValue::Flag(true));
        if proxy_protocol && !table.has("trusted_proxies") {
            self.problems.add(
                table.key_at("proxy_protocol"),
                "proxy_protocol: without trusted_proxies no client could connect; set the addresses of the proxies",
            );
        }
        let listed = self.each(table, "hosts", parse_host)?;
        let hosts = if listed.iter().any(|name| name == "*") {
            Hosts::Any
        } else if !listed.is_empty() {
            Hosts::Listed(listed)
        } else if address?.ip().to_canonical().is_loopback() && !proxy_protocol {
            // The restriction to loopback hosts stops web pages that reach the listener through a browser. It is not
            // needed with `proxy_protocol`, because pages can't make a browser send a PROXY header.
            Hosts::Loopback
        } else {
            Hosts::Any
        };
        Some(ListenerAccess {
            networks: networks?,
            trusted_proxies: trusted_proxies?,
            client_address: client_address?,
            proxy_protocol,
            hosts,
        })
    }

    fn address(&mut self, table: &RawTable, before: &[CheckedListener]) -> Option<SocketAddr> {
        let text = self.required(table, "address")?;
        let at = table.value_at("address");
        let Ok(address) = text.parse::<SocketAddr>() else {
            let message = format!(
                "address: expected an IP address and a port such as \"127.0.0.1:8080\", found {text:?}{}",
                nearest_address(&text)
            );
            self.problems.add(at, message);
            return None;
        };
        // With port 0, each listener gets its own port.
        if address.port() != 0 && before.iter().any(|other| other.address == Some(address)) {
            self.problems.add(
                at,
                format!("address: another [[listen]] already uses {address}"),
            );
        }
        Some(address)
    }

    fn name(&mut self, table: &RawTable, before: &[CheckedListener]) -> Option<String> {
        let name = text(table, "name")?;
        let at = table.value_at("name");
        if !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        {
            self.problems.add(
                at,
                format!("name: expected letters, digits, \"-\" and \"_\", found {name:?}"),
            );
        }
        if ROLES.contains(&name.as_str()) {
            self.problems.add(
                at,
                format!("name: {name:?} is the name of a role; choose another"),
            );
        }
        if before
            .iter()
            .any(|other| other.name.as_ref() == Some(&name))
        {
            self.problems.add(
                at,
                format!("name: another [[listen]] is already called {name:?}"),
            );
        }
        Some(name)
    }

    /// Reports the risks of an internal or push listener on an address other than loopback. An internal listener without
    /// any authentication is a problem; other risks are warnings.
    fn exposed(
        &mut self,
        table: &RawTable,
        role: ListenerRole,
        address: SocketAddr,
        risk: ListenerRisk,
    ) {
        let at = table.value_at("address");
        match role {
            ListenerRole::Public => {}
            ListenerRole::Internal if !risk.has_keys && risk.accepts_any_client => self.problems.add(
                at,
                format!("address: {address} is not loopback, and without [api] keys every client that reaches it could push to every user; set keys or listen on 127.0.0.1"),
            ),
            ListenerRole::Internal if risk.accepts_any_client => {
                let keys = match (risk.is_plain, self.has_admin) {
                    (true, true) => {
                        ", and the keys of the API and of the admin page cross the network as plain text"
                    }
                    (true, false) => ", and the API keys cross the network as plain text",
                    (false, _) => "",
                };
                self.warn(
                    at,
                    format!("address: the internal listener on {address} is not loopback, so every client that reaches it can read /health and /metrics{keys}"),
                );
            }
            ListenerRole::Push if risk.accepts_any_client => self.warn(
                at,
                format!("address: the push listener on {address} is not loopback and requires no key, so every client that reaches it can push to every user"),
            ),
            ListenerRole::Internal | ListenerRole::Push => {}
        }
    }
}

fn role_of(word: &str) -> ListenerRole {
    match word {
        "internal" => ListenerRole::Internal,
        "push" => ListenerRole::Push,
        _ => ListenerRole::Public,
    }
}

/// Returns a hint that names the address which `text` probably means; empty if there is none.
fn nearest_address(text: &str) -> String {
    let meant = if text.parse::<u16>().is_ok() {
        format!("127.0.0.1:{text}")
    } else if let Ok(ip) = text.parse::<IpAddr>() {
        SocketAddr::new(ip, 8080).to_string()
    } else if let Some(port) = text.strip_prefix("localhost:") {
        format!("127.0.0.1:{port}")
    } else if let Some(port) = text.strip_prefix("*:").or_else(|| text.strip_prefix(':')) {
        format!("0.0.0.0:{port}")
    } else {
        return String::new();
    };
    if meant.parse::<SocketAddr>().is_ok() {
        did_you_mean(&meant)
    } else {
        String::new()
    }
}
