//! Checks that served folders contain none of the files named in the configuration.

use std::path::{Path, PathBuf};

use veche_terminal::shown;

use super::Environment;
use crate::identity::JwtConfig;
use crate::names::IdentitySource;
use crate::types::{Config, RouteHandler};

/// A folder whose files are served.
pub(super) struct ServedFolder {
    /// The position of the directive.
    pub(super) at: Option<usize>,
    /// The name of the directive.
    pub(super) name: &'static str,
    pub(super) folder: PathBuf,
}

/// A file or folder named in the configuration.
struct ReferencedFile<'c> {
    path: PathBuf,
    what: &'c str,
    /// Whether this is a folder in which the server creates files. A served folder must neither contain such a folder
    /// nor be inside it.
    is_folder: bool,
}

/// Returns a problem for each served folder that contains a referenced file. This check follows symbolic links, although
/// the server does not follow them when it serves files.
pub(super) fn problems(
    served: &[ServedFolder],
    config: &Config,
    world: &Environment<'_>,
) -> Vec<(Option<usize>, String)> {
    if served.is_empty() {
        return Vec::new();
    }
    let named: Vec<(ReferencedFile<'_>, PathBuf)> = named(config)
        .into_iter()
        .filter_map(|named| {
            let real = (world.real)(&named.path)?;
            Some((named, real))
        })
        .collect();
    let of_folder = |one: &ServedFolder| {
        let root = (world.real)(&one.folder)?;
        let mut inside: Vec<String> = named
            .iter()
            .filter(|(named, real)| {
                real.starts_with(&root) || (named.is_folder && root.starts_with(real))
            })
            .map(|(named, _)| format!("{} ({})", shown(&named.path), named.what))
            .collect();
        inside.dedup();
        let list = inside.join(", ");
        let name = one.name;
        let folder = match shown(&one.folder).to_string() {
            folder if folder.is_empty() => ".".to_owned(),
            folder => folder,
        };
        (!inside.is_empty()).then(|| {
            let why = format!(
                "{name}: clients could read files that the configuration names, because {folder} contains {list}; serve a folder without them"
            );
            (one.at, why)
        })
    };
    served.iter().filter_map(of_folder).collect()
}

fn named(config: &Config) -> Vec<ReferencedFile<'_>> {
    let mut all = Vec::new();
    let mut file = |what, path: &Path| {
        all.push(ReferencedFile {
            path: path.to_owned(),
            what,
            is_folder: false,
        });
    };
    file("this configuration", &config.file);
    let services = config.services.iter().map(|service| &service.app);
    for app in config.apps.iter().chain(services) {
        if let Some(script) = app.own_script() {
            file("a script", script);
        }
    }
    file("the control socket", &config.server.control);
    if let Some(log) = &config.server.log.file {
        file("the log", log);
    }
    if let Some(log) = &config.access_log {
        file("the access log", &log.file);
    }
    if let Some(blocks) = &config.api.blocks {
        file("blocked users", blocks);
    }
    for key in &config.api.files {
        file("a key of the API", key);
    }
    for key in &config.admin.files {
        file("a key of the admin page", key);
    }
    let events = config.events.iter().flat_map(|events| &events.files);
    let hooks = config.hooks.iter().flat_map(|hooks| &hooks.files);
    for secret in events.chain(hooks) {
        file("a secret", secret);
    }
    for keys in config.tokens().flat_map(JwtConfig::files) {
        file("token keys", keys);
    }
    let tls_configs = config.listeners.iter().filter_map(|l| l.tls.as_ref());
    for tls in tls_configs {
        for from in &tls.certificates {
            for one in from.files() {
                file("a certificate or its key", one);
            }
        }
        if let Some(clients) = &tls.clients {
            file("authorities", &clients.ca);
        }
    }
    let asked = [&config.identity_hook.ca, &config.acme.ca];
    let of_events = config.events.iter().map(|events| &events.ca);
    let of_hooks = config.hooks.iter().map(|hooks| &hooks.ca);
    for ca in asked.into_iter().chain(of_events).chain(of_hooks).flatten() {
        file("authorities", ca);
    }
    let identities = config.routes.iter().map(|route| &route.handler);
    for identity in identities.filter_map(RouteHandler::identity) {
        if let IdentitySource::Pam(service) = identity {
            for rules in service.files() {
                file("PAM rules", &rules);
            }
        }
    }
    let history = config
        .history
        .iter()
        .map(|history| ("history", history.path.clone()));
    let ordered = !config.ordered().is_empty();
    let acme = ordered.then(|| ("ACME certificates", config.acme.folder()));
    let tables = config.server.snapshots.iter();
    let tables = tables.map(|folder| ("saved tables", folder.clone()));
    all.extend(
        history
            .chain(acme)
            .chain(tables)
            .map(|(what, path)| ReferencedFile {
                path,
                what,
                is_folder: true,
            }),
    );
    all
}
