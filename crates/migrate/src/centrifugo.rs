//! Translates settings of Centrifugo.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use veche_frontends::origin::OriginPattern;

use super::draft::{ConfigDraft, list_literal, string_literal};
use super::namespaces::{self, NamespaceContext};
use super::old_names;
use super::settings::SettingsTree;

/// The port that Centrifugo listens on by default.
const PORT: u16 = 8000;

/// The port of Veche's internal listener, if Centrifugo has no separate internal port.
const INTERNAL: u16 = 9000;

/// The transports, with the default paths of their endpoints.
const TRANSPORTS: [(&str, &str); 6] = [
    ("websocket", "/connection/websocket"),
    ("http_stream", "/connection/http_stream"),
    ("sse", "/connection/sse"),
    ("uni_websocket", "/connection/uni_websocket"),
    ("uni_http_stream", "/connection/uni_http_stream"),
    ("uni_sse", "/connection/uni_sse"),
];

/// Settings of Centrifugo that are dropped without a note, because Veche does not need them.
const NEEDLESS: [&str; 16] = [
    "admin.secret",
    "admin.handler_prefix",
    "client.expired_close_delay",
    "client.expired_sub_close_delay",
    "client.presence_update_interval",
    "client.history_max_publication_limit",
    "client.recovery_max_publication_limit",
    "client.stale_close_delay",
    "client.subscribe_to_user_personal_channel.enabled",
    "http_api.insecure",
    "http_api.disabled",
    "emulation.handler_prefix",
    "node.name",
    "node_name",
    "usage_stats.disabled",
    "usage_stats_disable",
];

/// Returns the equivalent configuration of Veche as a draft.
pub(super) fn draft(mut settings: SettingsTree) -> ConfigDraft {
    old_names::renew(&mut settings);
    let mut draft = ConfigDraft::default();
    let api_key = settings.text("http_api.key");
    server(&mut settings, &mut draft);
    let is_apart = listeners(&mut settings, &mut draft);
    let token = TokenSettings::take(&mut settings, CONNECTIONS, &mut draft);
    let has_own_keys = settings.flag("client.subscription_token.enabled");
    let subscription = match has_own_keys {
        true => TokenSettings::take(&mut settings, SUBSCRIPTIONS, &mut draft),
        false => None,
    };
    let hooks = HookSettings::take(&mut settings, &mut draft);
    let has_tokens = token.is_some();
    let identity = identity(&mut settings, has_tokens, &hooks, &mut draft);
    clients(&mut settings, &identity, &mut draft);
    api(&mut settings, api_key.is_some(), is_apart, &mut draft);
    for token in [token, subscription].into_iter().flatten() {
        token.write(&mut draft);
    }
    hooks.write(&mut draft);
    limits(&mut settings, &mut draft);
    draft.section("[api]");
    if let Some(key) = api_key {
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            draft.note("the API key contains characters that an HTTP header can't contain: create another one");
        }
        draft.set("keys", "[{ file = \"api.key\" }]");
        draft.secret(settings.name("http_api.key"), "api.key", key);
    }
    draft.set("unknown_fields", string_literal("accept"));
    channels(&mut settings, has_tokens, &hooks, &mut draft);
    rest(&mut settings, &mut draft);
    draft
}

fn server(settings: &mut SettingsTree, draft: &mut ConfigDraft) {
    draft.section("[server]");
    let level = settings.text("log.level").map(|level| level.to_lowercase());
    let level = level.map(|level| match level.as_str() {
        "none" => "off".to_owned(),
        "fatal" => "error".to_owned(),
        _ => level,
    });
    let is_known = |level: &String| {
        ["off", "error", "warn", "info", "debug", "trace"].contains(&level.as_str())
    };
    draft.set_text("log", level.filter(is_known));
    draft.set_text("log_file", settings.text("log.file"));
}

/// Adds the listeners. Returns whether Centrifugo has a separate internal port. If so, the API is
/// served only there.
fn listeners(settings: &mut SettingsTree, draft: &mut ConfigDraft) -> bool {
    let port = |number: Option<u64>| number.and_then(|number| u16::try_from(number).ok());
    let public_port = port(settings.number("http_server.port")).unwrap_or(PORT);
    let internal_port = port(settings.number("http_server.internal_port"));
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let public = address(settings, "http_server.address", any, draft);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let internal = address(settings, "http_server.internal_address", local, draft);
    draft.section("[[listen]]");
    draft.set(
        "address",
        string_literal(&SocketAddr::new(public, public_port).to_string()),
    );
    tls(settings, draft);
    let is_apart = internal_port.is_some_and(|port| port != public_port);
    let number = match internal_port {
        Some(port) if is_apart => port,
        _ if public_port == INTERNAL => INTERNAL + 1,
        _ => INTERNAL,
    };
    draft.section("[[listen]]");
    draft.set(
        "address",
        string_literal(&SocketAddr::new(internal, number).to_string()),
    );
    draft.set("role", string_literal("internal"));
    let shown = ["health", "prometheus"].map(|name| settings.flag(&format!("{name}.enabled")));
    settings.skip(&["health.handler_prefix", "prometheus.handler_prefix"]);
    if !is_apart && shown.contains(&true) {
        draft.note(format!(
            "/health and /metrics are on the internal listener, port {number}"
        ));
    }
    if settings.flag("admin.enabled") || settings.take("admin.password").is_some() {
        settings.skip(&["admin.password"]);
        draft.note("the admin page, /admin/ on the internal listener, has its own keys: set keys in [admin]");
    }
    is_apart
}

fn address(
    settings: &mut SettingsTree,
    path: &str,
    usual: IpAddr,
    draft: &mut ConfigDraft,
) -> IpAddr {
    match settings.text(path).as_deref() {
        None => usual,
        Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text.parse().unwrap_or_else(|_| {
            let name = settings.name(path);
            draft.note(format!(
                "{name}: {text:?} is not an IP address; {usual} is used"
            ));
            usual
        }),
    }
}

fn tls(settings: &mut SettingsTree, draft: &mut ConfigDraft) {
    let certificate = settings.text("http_server.tls.cert_pem");
    let key = settings.text("http_server.tls.key_pem");
    if settings.flag("http_server.tls_autocert.enabled") {
        let names = settings.list("http_server.tls_autocert.host_whitelist");
        match names.is_empty() {
            true => draft.note(
                "tls_autocert: list the host names, as in tls = { acme = [\"example.org\"] }",
            ),
            false => draft.set("tls", format!("{{ acme = {} }}", list_literal(&names))),
        }
        return;
    }
    if !settings.flag("http_server.tls.enabled") {
        return;
    }
    let is_file = |text: &&String| !text.contains("-----BEGIN");
    let files = (
        certificate.as_ref().filter(is_file),
        key.as_ref().filter(is_file),
    );
    match files {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (string_literal(certificate), string_literal(key));
            let both = format!("{{ certificate = {certificate}, key = {key} }}");
            draft.set("tls", both);
        }
        _ => draft.note(
            "tls: write the certificate and the key to files, then set tls = { certificate = \"FILE\", key = \"FILE\" }",
        ),
    }
}

/// The lines of a section that configure token keys and required claims.
struct TokenSettings {
    header: &'static str,
    lines: Vec<(&'static str, String)>,
}

/// The names of the files for the keys of one kind of token.
struct Files {
    secret: &'static str,
    previous: &'static str,
    pem: &'static str,
}

/// For connection tokens: the path of their settings in Centrifugo's file, the section in Veche's
/// configuration, and the names of the key files.
const CONNECTIONS: (&str, &str, Files) = (
    "client.token",
    "[jwt]",
    Files {
        secret: "jwt.secret",
        previous: "jwt.previous",
        pem: "jwt.pem",
    },
);

/// For subscription tokens, which may have separate keys: the path of their settings in Centrifugo's
/// file, the section in Veche's configuration, and the names of the key files.
const SUBSCRIPTIONS: (&str, &str, Files) = (
    "client.subscription_token",
    "[subscription_jwt]",
    Files {
        secret: "subscription.secret",
        previous: "subscription.previous",
        pem: "subscription.pem",
    },
);

impl TokenSettings {
    fn take(
        settings: &mut SettingsTree,
        (place, header, files): (&str, &'static str, Files),
        draft: &mut ConfigDraft,
    ) -> Option<Self> {
        let path = |name: &str| format!("{place}.{name}");
        let mut found: Vec<(&'static str, String)> = Vec::new();
        let secret = settings.text(&path("hmac_secret_key"));
        let mut previous = Vec::new();
        if let Some(content) = secret {
            let name = path("hmac_secret_key");
            draft.secret(settings.name(&name), files.secret, content);
            found.push(("secret_file", files.secret.to_owned()));
            if let Some(content) = settings.text(&path("hmac_previous_secret_key")) {
                let name = path("hmac_previous_secret_key");
                draft.secret(settings.name(&name), files.previous, content);
                previous.push(("previous_secret_file", string_literal(files.previous)));
                let until = path("hmac_previous_secret_key_valid_until");
                let until = settings.number(&until);
                previous.extend(until.map(|until| ("previous_secret_until", until.to_string())));
            }
        }
        for name in ["rsa_public_key", "ecdsa_public_key"] {
            let name = path(name);
            match settings.text(&name) {
                Some(pem) if pem.contains("-----BEGIN") => {
                    if found.is_empty() {
                        draft.secret(settings.name(&name), files.pem, pem);
                    }
                    found.push(("key_file", files.pem.to_owned()));
                }
                Some(file) => found.push(("key_file", file)),
                None => {}
            }
        }
        let jwks = settings.text(&path("jwks_public_endpoint"));
        found.extend(jwks.map(|url| ("jwks", url)));
        if let [(taken, _), _, ..] = found[..] {
            draft.note(format!(
                "{header}: only one kind of token key can be used: {taken} was taken"
            ));
        }
        let (setting, value) = found.into_iter().next()?;
        let mut lines = vec![(setting, string_literal(&value))];
        lines.extend(previous);
        // Tokens without an expiry stay valid, as in Centrifugo.
        lines.push(("require_exp", "false".to_owned()));
        for name in ["audience", "issuer"] {
            let values = settings.list(&path(name));
            if !values.is_empty() {
                lines.push((name, list_literal(&values)));
            }
        }
        let user = settings.text(&path("user_id_claim"));
        lines.extend(user.map(|user| ("user", string_literal(&user))));
        Some(Self { header, lines })
    }

    fn write(&self, draft: &mut ConfigDraft) {
        draft.section(self.header);
        for (name, value) in &self.lines {
            draft.set(name, value);
        }
    }
}

/// The URLs and options of the hooks in the configuration.
#[derive(Default)]
struct HookSettings {
    urls: Vec<(&'static str, String)>,
    timeout: Option<String>,
    headers: Vec<String>,
}

impl HookSettings {
    const PLACES: [(&'static str, &'static str); 6] = [
        ("connect", "client.proxy.connect"),
        ("refresh", "client.proxy.refresh"),
        ("subscribe", "channel.proxy.subscribe"),
        ("sub_refresh", "channel.proxy.sub_refresh"),
        ("publish", "channel.proxy.publish"),
        ("rpc", "rpc.proxy"),
    ];

    fn take(settings: &mut SettingsTree, draft: &mut ConfigDraft) -> Self {
        let mut hooks = Self::default();
        for (kind, place) in Self::PLACES {
            settings.skip(&[&format!("{place}.enabled")]);
            let timeout = settings.duration(&format!("{place}.timeout"));
            hooks.timeout = hooks.timeout.or(timeout);
            for header in settings.list(&format!("{place}.http_headers")) {
                let header = header.to_lowercase();
                if !hooks.headers.contains(&header) {
                    hooks.headers.push(header);
                }
            }
            let path = format!("{place}.endpoint");
            let Some(url) = settings.text(&path) else {
                continue;
            };
            match url.starts_with("http://") || url.starts_with("https://") {
                true => hooks.urls.push((kind, url)),
                false => {
                    let name = settings.name(&path);
                    draft.note(format!(
                        "{name}: hooks require an http:// or https:// URL, not {url:?}"
                    ));
                }
            }
        }
        settings.skip(&["rpc.without_namespace.proxy_enabled"]);
        hooks
    }

    fn has(&self, kind: &str) -> bool {
        self.urls.iter().any(|(known, _)| *known == kind)
    }

    fn write(&self, draft: &mut ConfigDraft) {
        if self.urls.is_empty() {
            return;
        }
        draft.section("[hooks]");
        for (kind, url) in &self.urls {
            draft.set(kind, string_literal(url));
        }
        draft.set_text("timeout", self.timeout.clone());
        if !self.headers.is_empty() {
            draft.set("headers", list_literal(&self.headers));
        }
    }
}

/// Returns the setting that determines how clients are identified by their handshake.
fn identity(
    settings: &mut SettingsTree,
    has_tokens: bool,
    hooks: &HookSettings,
    draft: &mut ConfigDraft,
) -> String {
    let header = settings.text("client.user_id_http_header");
    match (has_tokens, header) {
        (true, _) => "jwt".to_owned(),
        (false, Some(header)) => format!("header:{}", header.to_lowercase()),
        (false, None) => {
            if !hooks.has("connect") {
                draft.note("no token key and no connect proxy: clients are anonymous");
            }
            "none".to_owned()
        }
    }
}

/// Returns which clients may be anonymous on a route that uses tokens; `None` if none may be.
fn anonymous(settings: &mut SettingsTree) -> Option<&'static str> {
    let without_tokens = settings.flag("client.allow_anonymous_connect_without_token");
    let never = settings.flag("client.disallow_anonymous_connection_tokens");
    match (without_tokens, never) {
        (true, _) => Some("all"),
        (false, false) => Some("token"),
        (false, true) => None,
    }
}

/// Adds the routes of clients.
fn clients(settings: &mut SettingsTree, identity: &str, draft: &mut ConfigDraft) {
    let mut paths = Vec::new();
    let mut needs_emulation = false;
    for (name, usual) in TRANSPORTS {
        let is_enabled = settings.flag(&format!("{name}.enabled")) || name == "websocket";
        let path = settings.text(&format!("{name}.handler_prefix"));
        if !is_enabled {
            continue;
        }
        needs_emulation |= matches!(name, "http_stream" | "sse");
        let path = path.unwrap_or_else(|| usual.to_owned());
        match path.strip_suffix(&format!("/{name}")) {
            Some(folder) => {
                let path = format!("{folder}/*");
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
            None if name == "websocket" => paths.push(path),
            None => {
                let why = format!("the path of {name} must end with /{name}, but is {path:?}");
                draft.note(why);
            }
        }
    }
    if needs_emulation {
        paths.push("/emulation".to_owned());
    }
    let origins = settings.list("client.allowed_origins");
    let is_origin = |origin: &String| origin == "*" || OriginPattern::parse(origin).is_some();
    let (origins, others): (Vec<_>, Vec<_>) = origins.into_iter().partition(is_origin);
    for other in others {
        draft.note(format!("allowed_origins: {other:?} is not a valid origin"));
    }
    let anonymous = anonymous(settings);
    let compression = settings.flag("websocket.compression");
    let size = settings.number("websocket.message_size_limit");
    for path in paths {
        draft.section("[[route]]");
        draft.set("path", string_literal(&path));
        draft.set("handler", string_literal("centrifuge"));
        draft.set("identity", string_literal(identity));
        if identity == "jwt" {
            draft.set_text("anonymous", anonymous.map(str::to_owned));
        }
        if !origins.is_empty() {
            draft.set("origins", list_literal(&origins));
        }
        if compression {
            draft.set("compression", true);
        }
        if let Some(size) = size {
            draft.set("message_bytes_max", string_literal(&format!("{size}B")));
        }
    }
}

/// Adds the route of the API, unless a separate listener serves the API.
fn api(settings: &mut SettingsTree, has_key: bool, is_apart: bool, draft: &mut ConfigDraft) {
    let prefix = settings.text("http_api.handler_prefix");
    let prefix = prefix.unwrap_or_else(|| "/api".to_owned());
    if has_key && !is_apart {
        draft.section("[[route]]");
        let path = format!("{}/*", prefix.trim_end_matches('/'));
        draft.set("path", string_literal(&path));
        draft.set("handler", string_literal("api"));
    } else if has_key && prefix != "/api" {
        draft.note(format!("Veche's API is at /api, not at {prefix:?}"));
    }
}

fn limits(settings: &mut SettingsTree, draft: &mut ConfigDraft) {
    draft.section("[limits]");
    draft.set("unknown_namespace", string_literal("error"));
    for (path, name, max) in [
        ("client.connection_limit", "connections", u64::MAX),
        (
            "client.user_connection_limit",
            "connections_per_user",
            u64::MAX,
        ),
        ("client.channel_limit", "channels_per_client", 1024),
        ("channel.max_length", "channel_name_bytes_max", 255),
    ] {
        if let Some(number) = settings.number(path) {
            if number > max {
                draft.note(format!(
                    "{}: {name} is limited to {max}",
                    settings.name(path)
                ));
            }
            draft.set(name, number.min(max));
        }
    }
    if let Some(bytes) = settings.number("client.queue_max_size") {
        draft.set("outbox_bytes", string_literal(&format!("{bytes}B")));
    }
    for (path, name) in [
        ("client.ping_interval", "ping_interval"),
        ("client.pong_timeout", "pong_timeout"),
        ("shutdown.timeout", "drain_time"),
    ] {
        draft.set_text(name, settings.duration(path));
    }
}

fn channels(
    settings: &mut SettingsTree,
    has_tokens: bool,
    hooks: &HookSettings,
    draft: &mut ConfigDraft,
) {
    let namespace_context = NamespaceContext {
        has_tokens,
        asks_to_subscribe: hooks.has("subscribe"),
        asks_to_publish: hooks.has("publish"),
        position_ttl: settings.duration("channel.history_meta_ttl"),
    };
    if let Some(options) = settings.take("channel.without_namespace") {
        namespaces::namespace("", SettingsTree::new(options), &namespace_context, draft);
    }
    for mut one in settings.objects("channel.namespaces") {
        match one.text("name") {
            Some(name) => namespaces::namespace(&name, one, &namespace_context, draft),
            None => draft.note("no counterpart: a namespace without a name"),
        }
    }
}

/// Adds a note for each remaining setting that has no counterpart.
fn rest(settings: &mut SettingsTree, draft: &mut ConfigDraft) {
    settings.skip(&NEEDLESS);
    if settings
        .take("client.subscribe_to_user_personal_channel.personal_channel_namespace")
        .is_some()
    {
        draft.note("personal channels are called #USER and have no namespace");
    }
    let engine = settings
        .text("engine.type")
        .or_else(|| settings.text("engine"));
    if let Some(engine) = engine.filter(|engine| engine != "memory") {
        draft.note(format!(
            "engine {engine}: the new configuration is for one node; to store channel history on disk, set path in [history]"
        ));
    }
    for left in settings.left() {
        draft.note(format!("no counterpart: {left}"));
    }
}
