//! Converts raw values to a [`Config`]: checks rules across several values, and warns about risky values.
//!
//! Checking continues after each problem, and skips values that already have a problem. This module accesses the
//! machine only through [`Environment`], for files, folders, certificates and secrets.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use veche_frontends::access::NetworkRules;
use veche_frontends::rate::Rate;
use veche_logging::{LogFormat, LogLevel, LogSettings, Rotation};
use veche_terminal::{Problem, ProblemReport, Problems, shown};

use super::acme::AcmeConfig;
use super::directives::{Directive, Section};
use super::effective::EffectiveConfig;
use super::excerpt;
use super::identity::KeySource;
use super::names::parse_network;
use super::raw::{self, RawTable};
use super::readiness::made_by_systemd;
use super::secret::{SecretSource, SecretValue};
use super::types::*;
use super::value::DirectiveValue;

mod access_log;
mod acme;
mod answers;
mod apps;
mod databases;
mod engine;
mod events;
mod fastcgi;
mod history;
mod hooks;
mod identity;
mod listeners;
mod namespaces;
mod passwords;
mod processes;
mod risks;
mod routes;
mod served;
mod services;
mod tls;

use served::ServedFolder;

pub use tls::{EXPIRY_WARNING_DAYS, expires};

/// The machine's state as the checks see it.
pub(super) struct Environment<'w> {
    pub(super) is_folder: &'w dyn Fn(&Path) -> bool,
    pub(super) is_file: &'w dyn Fn(&Path) -> bool,
    /// Returns the canonical path, even if only the parent folder exists; `None` if it can't be determined.
    pub(super) real: &'w dyn Fn(&Path) -> Option<PathBuf>,
    /// Returns whether every user of the machine may read a file.
    pub(super) is_world_readable: &'w dyn Fn(&Path) -> bool,
    /// Reads a certificate and its key. The error is a line that tells the operator what to change.
    pub(super) certificate: &'w dyn Fn(&Path, &Path) -> Result<CertificateFacts, String>,
    /// Reads a secret from its source. The error is a line that tells the operator what to change, without the secret.
    pub(super) secret: &'w dyn Fn(&SecretSource) -> Result<SecretValue, String>,
    /// Checks that the CA certificates for verifying client certificates can be read.
    pub(super) client_ca: &'w dyn Fn(&Path) -> Result<(), String>,
    /// Reads the keys that verify tokens. Returns the length of the secret if it is too short, otherwise `None`. The
    /// error is a line that tells the operator what to change.
    pub(super) jwt_keys: &'w dyn Fn(&KeySource) -> Result<Option<usize>, String>,
    /// Checks that a PAM service can be used. The error is a line that tells the operator what to change.
    pub(super) pam: &'w dyn Fn(&veche_pam::PamService) -> Result<(), String>,
    /// The system's folder for persistent state, if there is one.
    pub(super) state_folder: Option<PathBuf>,
    /// The current time in Unix seconds.
    pub(super) now_s: i64,
}

/// The properties of a certificate that the checks need.
#[derive(Clone, Debug)]
pub(super) struct CertificateFacts {
    pub(super) valid_from_s: i64,
    pub(super) valid_until_s: i64,
    pub(super) is_key_exposed: bool,
}

impl CertificateFacts {
    /// Returns facts that pass every check, for a certificate that is not examined.
    pub(super) fn unchecked() -> Self {
        Self {
            valid_from_s: i64::MIN,
            valid_until_s: i64::MAX,
            is_key_exposed: false,
        }
    }
}

/// Checks `text`, the content of `file`.
pub(super) fn check(
    file: &Path,
    text: &str,
    world: &Environment<'_>,
) -> Result<Config, ProblemReport> {
    let mut problems = Problems::new(file, text);
    let tables = raw::read(text, &mut problems);
    let mut checker = Checker {
        problems,
        warnings: Vec::new(),
        world,
        file,
        base: base_of(file),
        acme: None,
        has_admin: false,
        served: Vec::new(),
    };
    let one = |section| {
        tables.iter().find(|table| table.section == section).expect(
            "a section that is missing in the file must have been created with its defaults",
        )
    };
    let all = |section| tables.iter().filter(move |table| table.section == section);

    let server = checker.server(one(Section::Server));
    let access_log = checker.access_log(one(Section::AccessLog));
    let limits = limits(one(Section::Limits));
    let api = checker.api(one(Section::Api));
    let has_keys = !api.keys.is_empty() || !one(Section::Api).is_sound("keys");
    let admin = checker.admin(one(Section::Admin));
    checker.has_admin = !admin.keys.is_empty();
    checker.shared_key(one(Section::Admin), &admin, &api);
    checker.acme = checker.acme(one(Section::Acme));
    let listeners = checker.listeners(all(Section::Listen), has_keys);
    checker.check_admin_listener(one(Section::Admin), &listeners);
    checker.keyless(all(Section::Listen), &listeners, has_keys);
    let mut apps = checker.apps(all(Section::App));
    let services = checker.services(all(Section::Service), &apps);
    let databases = checker.databases(all(Section::Database));
    let routes = checker.routes(all(Section::Route), &listeners, &mut apps, has_keys);
    let namespaces = checker.namespaces(all(Section::Namespace));
    checker.budgets(&limits, all(Section::Namespace).zip(&namespaces));
    let wildcards = Checker::wildcards(all(Section::Namespace));
    let history = checker.history(one(Section::History), &namespaces);
    let engine = checker.engine(one(Section::Engine), history.as_ref());
    let node_name = self::text(one(Section::Node), "name");
    let jwt = checker.jwt(one(Section::Jwt));
    let subscription_jwt = checker.jwt(one(Section::SubscriptionJwt));
    checker.report_unused(one(Section::SubscriptionJwt));
    checker.ambient(all(Section::Route).zip(&routes), jwt.as_ref());
    let identity_hook = checker.identity_hook(one(Section::IdentityHook));
    checker.slow_hook(
        one(Section::IdentityHook),
        identity_hook.as_ref(),
        &routes,
        &limits,
    );
    let hooks = checker.hooks(
        one(Section::Hooks),
        all(Section::Namespace).zip(&namespaces),
        &routes,
    );
    let pam = checker.pam(one(Section::Pam));
    let listener = checker.listener(one(Section::Events), &mut apps);
    checker.unused_apps(&apps);
    let events = checker.events(
        one(Section::Events),
        all(Section::Namespace).zip(&namespaces),
    );
    checker.tokens(all(Section::Route).zip(&routes), one(Section::Jwt));
    checker.passwords(
        all(Section::Route).zip(&routes),
        &listeners,
        server.as_ref().is_some_and(|server| server.sandbox),
    );

    let effective = EffectiveConfig {
        file: file.to_owned(),
        settings: settings(&tables, &checker.problems),
    };
    let Checker {
        mut problems,
        mut warnings,
        acme,
        served,
        ..
    } = checker;
    if !problems.is_empty() {
        return Err(report(problems, text));
    }
    warnings.sort_by_key(|warning| warning.place);
    let config = Config {
        file: file.to_owned(),
        server: server.expect("a problem otherwise"),
        listeners: listeners
            .into_iter()
            .map(|l| l.listener.expect("a problem otherwise"))
            .collect(),
        apps: apps.into_list(),
        services: services
            .into_iter()
            .map(|service| service.expect("a problem otherwise"))
            .collect(),
        databases: Arc::new(databases),
        routes: routes
            .into_iter()
            .map(|route| route.expect("a problem otherwise"))
            .collect(),
        namespaces: namespaces
            .into_iter()
            .map(|namespace| namespace.expect("a problem otherwise"))
            .collect(),
        wildcards,
        history,
        engine,
        node_name,
        access_log,
        limits,
        acme: acme.expect("a problem otherwise"),
        jwt,
        subscription_jwt,
        identity_hook: identity_hook.expect("a problem otherwise"),
        hooks,
        listener,
        pam: pam.expect("a problem otherwise"),
        events,
        api,
        admin,
        warnings,
        effective,
    };
    for (at, why) in served::problems(&served, &config, world) {
        problems.add(at, why);
    }
    if !problems.is_empty() {
        return Err(report(problems, text));
    }
    Ok(config)
}

/// Returns the report of the problems in `text`.
fn report(problems: Problems<'_>, text: &str) -> ProblemReport {
    let mut problems = problems.into_sorted();
    excerpt::explain(&mut problems, text);
    ProblemReport {
        problems,
        unreadable: false,
    }
}

/// Returns the path of the control socket in `text`, even if the rest of the file is invalid.
pub(super) fn control_of(file: &Path, text: &str) -> PathBuf {
    let tables = raw::read(text, &mut Problems::new(file, text));
    let server = tables.iter().find(|table| table.section == Section::Server);
    let control = server.and_then(|table| self::text(table, "control"));
    base_of(file).join(
        control.expect("the section [server] must exist, and its control must have a default"),
    )
}

/// Returns the folder that relative paths start at.
pub(super) fn base_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn settings(tables: &[RawTable], problems: &Problems<'_>) -> Vec<super::effective::Setting> {
    let of_table = |table: &RawTable| {
        let handler = match table.section {
            Section::Route => table.value("handler"),
            _ => None,
        };
        let concerns = move |directive: &&Directive| match &handler {
            Some(DirectiveValue::Word(word)) => directive.concerns(word),
            _ => true,
        };
        let rows = table.section.directives().filter(concerns);
        rows.map(|directive| table.setting(directive, problems))
            .collect::<Vec<_>>()
    };
    tables.iter().flat_map(of_table).collect()
}

/// Collects problems and warnings while the parts of the configuration are built. The methods return `None` for a part
/// that has a problem.
struct Checker<'c> {
    problems: Problems<'c>,
    warnings: Vec<Problem>,
    world: &'c Environment<'c>,
    file: &'c Path,
    base: PathBuf,
    /// The checked `[acme]` section; `None` if it has a problem.
    acme: Option<AcmeConfig>,
    /// Whether the admin page is enabled.
    has_admin: bool,
    /// The folders whose files are served to clients.
    served: Vec<ServedFolder>,
}

impl Checker<'_> {
    fn warn(&mut self, offset: Option<usize>, message: impl Into<String>) {
        let warning = self.problems.problem(offset, message);
        self.warnings.push(warning);
    }

    /// Returns the value of `result`; an error becomes the problem `name: …` at `offset`.
    fn take<T>(
        &mut self,
        name: &str,
        offset: Option<usize>,
        result: Result<T, String>,
    ) -> Option<T> {
        result
            .map_err(|message| self.problems.add(offset, format!("{name}: {message}")))
            .ok()
    }

    /// Returns the text of a required directive.
    fn required(&mut self, table: &RawTable, name: &str) -> Option<String> {
        match table.value(name) {
            Some(value) => Some(text_of(&value).to_owned()),
            None => {
                if table.is_sound(name) {
                    let header = table.section.header();
                    self.problems.add(
                        table.at,
                        format!("{header} lacks {name:?}, which is required"),
                    );
                }
                None
            }
        }
    }

    fn server(&mut self, table: &RawTable) -> Option<ServerConfig> {
        let before = self.problems.count();
        let control = self
            .base
            .join(text(table, "control").expect("has a default"));
        if control.as_os_str().len() > CONTROL_PATH_BYTES_MAX {
            let message = format!(
                "control: the path of a socket may have at most {CONTROL_PATH_BYTES_MAX} bytes, found {} including the folder of the configuration",
                control.as_os_str().len()
            );
            self.problems.add(table.value_at("control"), message);
        }
        self.folder_of(table, "control", &control);
        let file = text(table, "log_file").map(|file| self.base.join(file));
        if let Some(file) = &file {
            self.folder_of(table, "log_file", file);
        } else if table.has("log_rotate") {
            self.warn(
                table.key_at("log_rotate"),
                "log_rotate: log_file is not set, so nothing is rotated",
            );
        }
        let snapshots = text(table, "snapshots").map(|folder| self.base.join(folder));
        if let Some(folder) = &snapshots {
            self.folder_of(table, "snapshots", folder);
        }
        let server = ServerConfig {
            workers: match table.value("workers") {
                Some(DirectiveValue::Integer(count)) => WorkerCount::Count(
                    u16::try_from(count)
                        .ok()
                        .and_then(NonZeroU16::new)
                        .expect("the range of the directive must fit into the integer type"),
                ),
                _ => WorkerCount::Auto,
            },
            io: match word(table, "io") {
                "epoll" => IoBackend::Epoll,
                "io_uring" => IoBackend::Uring,
                "delayed" => IoBackend::Delayed,
                _ => IoBackend::Auto,
            },
            log: LogSettings {
                level: match word(table, "log") {
                    "off" => LogLevel::Off,
                    "error" => LogLevel::Error,
                    "warn" => LogLevel::Warn,
                    "debug" => LogLevel::Debug,
                    "trace" => LogLevel::Trace,
                    _ => LogLevel::Info,
                },
                format: if word(table, "log_format") == "json" {
                    LogFormat::Json
                } else {
                    LogFormat::Text
                },
                file,
                rotation: rotation(table, "log_rotate", "log_keep"),
            },
            control,
            run_as: self.run_as(table),
            sandbox: matches!(table.value("sandbox"), Some(DirectiveValue::Flag(true))),
            snapshots,
        };
        (self.problems.count() == before).then_some(server)
    }

    /// Returns the user and group that the section's processes run as.
    fn run_as(&mut self, table: &RawTable) -> Option<RunAs> {
        if table.has("group") && !table.has("user") {
            let message = "group: requires user, which is not set";
            self.problems.add(table.key_at("group"), message);
        }
        text(table, "user").map(|user| RunAs {
            user,
            group: text(table, "group"),
        })
    }

    /// Checks that the parent folder of `path`, the value of directive `name`, exists, since the
    /// file is created at the start.
    fn folder_of(&mut self, table: &RawTable, name: &str, path: &Path) {
        if let Some(folder) = path.parent()
            && !(self.world.is_folder)(folder)
            && !made_by_systemd(folder)
        {
            self.problems.add(
                table.value_at(name),
                format!("{name}: the folder {} does not exist", folder.display()),
            );
        }
    }

    /// Parses all items of a list, even after an invalid one, so that each problem is reported. Returns `None` if any
    /// item is invalid.
    pub(super) fn each<T>(
        &mut self,
        table: &RawTable,
        name: &str,
        parse: fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let items = list(table, name);
        let parsed: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(item, text)| {
                let read = parse(text).map_err(|why| format!("{why}, found {text:?}"));
                self.take(name, table.item_at(name, item), read)
            })
            .collect();
        parsed.into_iter().collect()
    }

    /// Parses the client networks in `allow` and `deny`.
    fn networks(&mut self, table: &RawTable) -> Option<NetworkRules> {
        let allow = self.each(table, "allow", parse_network);
        let deny = self.each(table, "deny", parse_network);
        Some(NetworkRules {
            allow: allow?,
            deny: deny?,
        })
    }

    /// Reads the secrets of a list. Returns each with its position in the configuration and the file it was read from.
    fn secrets(
        &mut self,
        table: &RawTable,
        name: &str,
        sources: Vec<SecretSource>,
    ) -> Vec<(Option<usize>, SecretValue, Option<PathBuf>)> {
        let mut secrets = Vec::new();
        for (index, source) in sources.into_iter().enumerate() {
            let at = table.item_at(name, index);
            let source = match source {
                SecretSource::File(file) => SecretSource::File(self.base.join(file)),
                source => source,
            };
            let Some(secret) = self.take(name, at, (self.world.secret)(&source)) else {
                continue;
            };
            let file = match source {
                SecretSource::File(file) => {
                    self.only_for_some(name, at, &file);
                    Some(file)
                }
                SecretSource::Here(_) if (self.world.is_world_readable)(self.file) => {
                    let file = shown(self.file);
                    let why = format!(
                        "{name}: every user of this machine can read {file}; run chmod o= {file}, or move the value to a separate file"
                    );
                    self.warn(at, why);
                    None
                }
                _ => None,
            };
            secrets.push((at, secret, file));
        }
        secrets
    }

    /// Warns if a file with a secret is readable by everyone.
    fn only_for_some(&mut self, name: &str, at: Option<usize>, file: &Path) {
        if (self.world.is_world_readable)(file) {
            let file = shown(file);
            let why =
                format!("{name}: every user of this machine can read {file}; run chmod o= {file}");
            self.warn(at, why);
        }
    }

    fn api(&mut self, table: &RawTable) -> ApiConfig {
        let (keys, files) = self.keys(table);
        let blocks = text(table, "blocks").map(|path| self.base.join(path));
        if let Some(path) = &blocks {
            self.folder_of(table, "blocks", path);
        }
        ApiConfig {
            blocks,
            accepts_unknown_fields: word(table, "unknown_fields") == "accept",
            publish_rate: rate(table, "publish_rate"),
            keys,
            files,
        }
    }

    fn admin(&mut self, table: &RawTable) -> AdminConfig {
        let (keys, files) = self.keys(table);
        AdminConfig { keys, files }
    }

    fn check_admin_listener(&mut self, table: &RawTable, listeners: &[listeners::CheckedListener]) {
        // A listener with an invalid role counts as internal, since that may have been the intention.
        let may_be =
            |role: Option<ListenerRole>| role.is_none_or(|role| role == ListenerRole::Internal);
        if self.has_admin && !listeners.iter().any(|listener| may_be(listener.role)) {
            self.warn(
                table.value_at("keys"),
                "keys: no [[listen]] has role \"internal\", so the admin page is not served",
            );
        }
    }

    /// Reads the list of secrets `keys`. Returns the keys, and the files from which some of them were read.
    fn keys(&mut self, table: &RawTable) -> (Vec<SecretValue>, Vec<PathBuf>) {
        let (mut keys, mut files) = (Vec::new(), Vec::new());
        let Some(DirectiveValue::Secrets(sources)) = table.value("keys") else {
            return (keys, files);
        };
        for (at, secret, file) in self.secrets(table, "keys", sources) {
            files.extend(file);
            let key = secret.expose();
            if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                self.problems.add(at, "keys: a key must consist of visible ASCII characters without spaces, because it is sent in a header");
            } else if key.len() < KEY_BYTES_SAFE {
                self.warn(
                    at,
                    format!("keys: a key of less than {KEY_BYTES_SAFE} characters can be guessed"),
                );
            }
            keys.push(secret);
        }
        (keys, files)
    }
}

/// A key shorter than this, in bytes, causes a warning.
const KEY_BYTES_SAFE: usize = 16;

fn limits(table: &RawTable) -> LimitsConfig {
    let number = |name| match table.value(name) {
        Some(DirectiveValue::Integer(number)) => Some(
            u32::try_from(number)
                .expect("the range of the directive must fit into the integer type"),
        ),
        _ => None,
    };
    let maybe = |name| match table.value(name) {
        Some(DirectiveValue::Duration(duration)) => Some(duration),
        _ => None,
    };
    let duration = |name| maybe(name).unwrap_or(Duration::ZERO);
    LimitsConfig {
        refuses_unknown_namespaces: word(table, "unknown_namespace") == "error",
        connections: number("connections").map_or(ConnectionCap::Auto, ConnectionCap::Count),
        connections_per_address: number("connections_per_address"),
        connections_per_user: number("connections_per_user"),
        channels_per_client: number("channels_per_client").expect("has a default"),
        channel_name_bytes_max: number("channel_name_bytes_max").expect("has a default"),
        memory: match table.value("memory_limit") {
            Some(DirectiveValue::Size(bytes)) => MemoryLimit::Bytes(bytes),
            Some(DirectiveValue::Off | DirectiveValue::Word("off")) => MemoryLimit::Off,
            _ => MemoryLimit::Auto,
        },
        handshakes_per_address: rate(table, "handshakes_per_address"),
        header_timeout: duration("header_timeout"),
        handshake_timeout: duration("handshake_timeout"),
        keep_alive_timeout: duration("keep_alive_timeout"),
        idle_timeout: maybe("idle_timeout"),
        write_timeout: duration("write_timeout"),
        ping_interval: maybe("ping_interval"),
        pong_timeout: duration("pong_timeout"),
        drain_time: duration("drain_time"),
        lame_duck_time: duration("lame_duck_time"),
        upgrade_drain_time: duration("upgrade_drain_time"),
        watchdog_timeout: maybe("watchdog_timeout"),
        outbox_bytes: size(table, "outbox_bytes"),
        history_bytes: size(table, "history_bytes"),
        history_answer_max: number("history_answer_max").expect("has a default"),
        body_bytes_max: size(table, "body_bytes_max"),
        header_bytes_max: size(table, "header_bytes_max"),
        headers_max: number("headers_max").expect("has a default"),
    }
}

fn rotation(table: &RawTable, rotate: &str, keep: &str) -> Option<Rotation> {
    match (table.value(rotate), table.value(keep)) {
        (Some(DirectiveValue::Size(bytes_max)), Some(DirectiveValue::Integer(keep))) => {
            Some(Rotation {
                bytes_max,
                keep: u32::try_from(keep)
                    .expect("the range of the directive must fit into the integer type"),
            })
        }
        _ => None,
    }
}

fn rate(table: &RawTable, name: &str) -> Option<Rate> {
    match table.value(name) {
        Some(DirectiveValue::Rate(rate)) => Some(rate),
        _ => None,
    }
}

fn size(table: &RawTable, name: &str) -> u64 {
    match table.value(name) {
        Some(DirectiveValue::Size(bytes)) => bytes,
        other => unreachable!("{name} must be a size and have a default, not {other:?}"),
    }
}

fn word(table: &RawTable, name: &str) -> &'static str {
    match table.value(name) {
        Some(DirectiveValue::Word(word)) => word,
        // The value `"off"` of a log level is parsed as `Off`, not as a word.
        Some(DirectiveValue::Off) => "off",
        _ => "",
    }
}

fn text(table: &RawTable, name: &str) -> Option<String> {
    table.value(name).map(|value| text_of(&value).to_owned())
}

fn text_of(value: &DirectiveValue) -> &str {
    match value {
        DirectiveValue::Text(text) => text,
        DirectiveValue::Word(word) => word,
        _ => "",
    }
}

fn list(table: &RawTable, name: &str) -> Vec<String> {
    match table.value(name) {
        Some(DirectiveValue::List(list)) => list,
        _ => Vec::new(),
    }
}
