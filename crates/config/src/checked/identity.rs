//! Checks `[jwt]`, `[subscription_jwt]` and `[identity_hook]`: keys have exactly one source
//! and are readable, URLs are valid, and routes with tokens have keys.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;
use veche_calls::SecretUrl;
use veche_jwt::ClaimRules;

use super::{Checker, list, text, word};
use crate::directives::{DefaultValue, Section};
use crate::identity::{
    IdentityHookConfig, JwtConfig, KeySource, PreviousSecret, PublishedKeySet, short_secret,
};
use crate::names::{IdentitySource, parse_header_name, parse_place, parse_url};
use crate::raw::RawTable;
use crate::types::{RouteConfig, RouteHandler};
use crate::value::DirectiveValue;

/// The directives for keys, of which exactly one is set.
const SOURCES: [&str; 4] = ["secret_file", "secret_env", "key_file", "jwks"];

/// The directives for the previous secret.
const PREVIOUS: [&str; 2] = ["previous_secret_file", "previous_secret_env"];

impl Checker<'_> {
    /// Reads `[jwt]` or `[subscription_jwt]`. Returns `None` if the section has no keys or is
    /// invalid.
    pub(super) fn jwt(&mut self, table: &RawTable) -> Option<JwtConfig> {
        let given: Vec<&str> = SOURCES.into_iter().filter(|name| table.has(name)).collect();
        let name = match given.as_slice() {
            [] => return None,
            [name] => *name,
            [.., last] => {
                self.problems.add(
                    table.key_at(last),
                    format!(
                        "{last}: only one of these can be the source of keys: {}",
                        sources()
                    ),
                );
                return None;
            }
        };
        let places = match table.section {
            Section::Jwt => self.each(table, "token", parse_place),
            _ => Some(Vec::new()),
        };
        if name != "jwks" && table.has("jwks_ca") {
            let why = "jwks_ca: has no effect without \"jwks\"";
            self.problems.add(table.key_at("jwks_ca"), why);
        }
        let refuses_short_secrets = word(table, "short_secret") == "refuse";
        let source = self.key_source(table, name)?;
        self.keys_of(table, name, &source, refuses_short_secrets);
        let previous = self.previous(table, name, refuses_short_secrets);
        let places = places?;
        Some(JwtConfig {
            keys: source,
            previous,
            refuses_short_secrets,
            rules: ClaimRules {
                issuers: list(table, "issuer"),
                audiences: list(table, "audience"),
                needs_expiry: matches!(
                    table.value("require_exp"),
                    Some(DirectiveValue::Flag(true))
                ),
                leeway_s: duration(table, "leeway").as_secs(),
                user: text(table, "user").expect("has a default"),
            },
            places,
        })
    }

    /// Checks that keys can be read and used.
    fn keys_of(
        &mut self,
        table: &RawTable,
        name: &str,
        source: &KeySource,
        refuses_short_secrets: bool,
    ) {
        let at = table.value_at(name);
        match (self.world.jwt_keys)(source) {
            Err(why) => self.problems.add(at, format!("{name}: {why}")),
            Ok(Some(length)) if refuses_short_secrets => {
                let why = format!("{name}: {}", short_secret(length));
                self.problems.add(at, why);
            }
            Ok(short) => {
                if let Some(length) = short {
                    self.warn(at, format!("{name}: {}", short_secret(length)));
                }
                if let KeySource::SecretFile(file) = source {
                    self.only_for_some(name, at, file);
                }
            }
        }
    }

    /// Reads the secret that was valid before a rotation; `None` if none is set or it is invalid.
    fn previous(
        &mut self,
        table: &RawTable,
        beside: &str,
        refuses_short_secrets: bool,
    ) -> Option<PreviousSecret> {
        let given: Vec<&str> = PREVIOUS
            .into_iter()
            .filter(|name| table.has(name))
            .collect();
        let until = "previous_secret_until";
        let name = match given.as_slice() {
            [] => {
                if table.has(until) {
                    let why = format!(
                        "{until}: has no effect without previous_secret_file or previous_secret_env"
                    );
                    self.problems.add(table.key_at(until), why);
                }
                return None;
            }
            [name] if beside.starts_with("secret_") => *name,
            [name] => {
                let why = format!("{name}: has no effect without secret_file or secret_env");
                self.problems.add(table.key_at(name), why);
                return None;
            }
            [.., last] => {
                let why = format!("{last}: only one previous secret can be set");
                self.problems.add(table.key_at(last), why);
                return None;
            }
        };
        let keys = self.key_source(table, name)?;
        self.keys_of(table, name, &keys, refuses_short_secrets);
        let until_s = match table.value(until) {
            Some(DirectiveValue::Integer(at_s)) => Some(at_s),
            _ => None,
        };
        Some(PreviousSecret { keys, until_s })
    }

    /// Reports a section for subscription tokens that has no keys and therefore no effect.
    pub(super) fn report_unused(&mut self, table: &RawTable) {
        // Directives with defaults don't count: the output of `veche config`, which is a valid configuration, sets them
        // all.
        let mut directives = table.section.directives();
        let is_given = directives.any(|directive| {
            matches!(directive.default, DefaultValue::Unset(_)) && table.has(directive.name)
        });
        if is_given && !SOURCES.iter().any(|name| table.has(name)) {
            let header = table.section.header();
            let why = format!(
                "{header} needs keys to check tokens with: one of {}",
                sources()
            );
            self.problems.add(table.at, why);
        }
    }

    fn key_source(&mut self, table: &RawTable, name: &str) -> Option<KeySource> {
        let given = text(table, name)?;
        Some(match name {
            "secret_file" | "previous_secret_file" => KeySource::SecretFile(self.base.join(given)),
            "secret_env" | "previous_secret_env" => KeySource::SecretVariable(given),
            "key_file" => KeySource::PublicFile(self.base.join(given)),
            _ => {
                let url = self.take("jwks", table.value_at("jwks"), parse_url(&given))?;
                if url.expose().starts_with("http://") && !is_near(&url) {
                    self.warn(
                        table.value_at("jwks"),
                        "jwks: keys fetched over http:// can be replaced on the network; use https://",
                    );
                }
                KeySource::Published(PublishedKeySet {
                    url,
                    refresh: duration(table, "jwks_refresh"),
                    ca: self.ca(table, "jwks_ca"),
                })
            }
        })
    }

    /// Reads `[identity_hook]`; `None` if a value is invalid.
    pub(super) fn identity_hook(&mut self, table: &RawTable) -> Option<IdentityHookConfig> {
        let headers = self.each(table, "headers", parse_header_name);
        Some(IdentityHookConfig {
            timeout: duration(table, "timeout"),
            cache_time: Some(duration(table, "cache_time")).filter(|time| !time.is_zero()),
            cache_entries: number(table, "cache_entries"),
            concurrency: number(table, "concurrency"),
            waiting: number(table, "waiting"),
            failures: number(table, "failures"),
            pause: duration(table, "pause"),
            ca: self.ca(table, "ca"),
            headers: headers?,
        })
    }

    pub(super) fn ca(&mut self, table: &RawTable, name: &str) -> Option<PathBuf> {
        let file = self.base.join(text(table, name)?);
        if let Err(why) = (self.world.client_ca)(&file) {
            self.problems
                .add(table.value_at(name), format!("{name}: {why}"));
        }
        Some(file)
    }

    /// Checks that routes with tokens have keys.
    pub(super) fn tokens<'t>(
        &mut self,
        routes: impl Iterator<Item = (&'t RawTable, &'t Option<RouteConfig>)>,
        jwt: &RawTable,
    ) {
        if SOURCES.iter().any(|name| jwt.has(name)) {
            return;
        }
        for (table, route) in routes {
            let handler = route.as_ref().map(|route| &route.handler);
            let Some(identity) = handler.and_then(RouteHandler::identity) else {
                continue;
            };
            if matches!(identity, IdentitySource::Token(_)) {
                self.problems.add(
                    table.value_at("identity"),
                    format!("identity: \"jwt\" needs keys to check tokens with: a section [jwt] with one of {}", sources()),
                );
            }
        }
    }
}

fn sources() -> String {
    SOURCES.map(|name| format!("{name:?}")).join(", ")
}

/// Returns whether a URL refers to this machine.
pub(super) fn is_near(url: &SecretUrl) -> bool {
    let url = Url::parse(url.expose()).ok();
    match url.as_ref().and_then(Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Reads a number that has a default.
pub(super) fn number(table: &RawTable, name: &str) -> u32 {
    match table.value(name) {
        Some(DirectiveValue::Integer(number)) => u32::try_from(number)
            .expect("the range of the directive must fit into the integer type"),
        other => unreachable!("{name} must be a number and have a default, not {other:?}"),
    }
}

/// Reads a duration; zero if it is off.
pub(super) fn duration(table: &RawTable, name: &str) -> Duration {
    match table.value(name) {
        Some(DirectiveValue::Duration(duration)) => duration,
        _ => Duration::ZERO,
    }
}
