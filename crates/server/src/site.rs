//! Builds the front ends' [`FrontendConfig`] from the checked configuration.

use std::path::PathBuf;
use std::sync::Arc;

use veche_apps::AppRegistry;
use veche_config::{self as config, Config};
use veche_frontends::access::NetworkRules;
use veche_frontends::frontend_config::{
    ApiKey, ConnectionLimits, FrontendConfig, FrontendListener, ListenerRole,
};
use veche_frontends::hooks::{HookKind, HookTarget, HookTargets};
use veche_frontends::identity::{CertificateField, Identity};
use veche_frontends::origin::{OriginCheck, OriginPattern};
use veche_frontends::publish_limiter::PublishLimiter;
use veche_frontends::registry;
use veche_frontends::route::{Route, RouteHandler, Router};
use veche_identity::IdentityProviders;
use veche_proto::http;
use veche_proto::websocket::{self, deflate};
use veche_terminal::as_ms;
use veche_webhooks::hooks::HookClient;

use crate::dev;

/// Builds the front ends' configuration; `dev` adds the routes of developer pages.
pub(crate) fn build(
    config: &Config,
    library: &AppRegistry,
    identities: &IdentityProviders,
    hooks: &HookClient,
    dev: bool,
) -> FrontendConfig {
    let limits = limits(&config.limits);
    let mut routes: Vec<Arc<Route>> = config
        .routes
        .iter()
        .map(|route| Arc::new(self::route(route, config, library, identities, hooks)))
        .collect();
    // The admin page exists only if keys are configured.
    let admin = (!config.admin.keys.is_empty()).then_some(("/admin/*", RouteHandler::Admin));
    let own: Vec<u16> = [
        ("/api/*", RouteHandler::Api),
        ("/health", RouteHandler::Health),
        ("/metrics", RouteHandler::Metrics),
    ]
    .into_iter()
    .chain(admin)
    .map(|(path, handler)| {
        routes.push(Arc::new(internal(path, handler)));
        routes.len() as u16 - 1
    })
    .collect();
    let for_pages: Vec<u16> = dev_routes()
        .filter(|_| dev)
        .map(|route| {
            routes.push(Arc::new(route));
            routes.len() as u16 - 1
        })
        .collect();
    let listeners = config
        .listeners
        .iter()
        .map(|listener| {
            let of_config = config
                .routes
                .iter()
                .filter(|route| route.listeners.contains(&listener.index));
            let mut indexes: Vec<u16> = of_config.map(|route| route.index as u16).collect();
            if listener.role == config::ListenerRole::Internal {
                // The built-in routes follow the configured ones, so that a configuration can override `/health`.
                indexes.extend(&own);
            }
            indexes.extend(&for_pages);
            FrontendListener {
                is_tls: listener.tls.is_some(),
                access: listener.access.clone(),
                role: match listener.role {
                    config::ListenerRole::Public => ListenerRole::Public,
                    config::ListenerRole::Internal => ListenerRole::Internal,
                    config::ListenerRole::Push => ListenerRole::Push,
                },
                router: Router::new(
                    indexes
                        .iter()
                        .map(|&index| (index, &*routes[index as usize])),
                ),
            }
        })
        .collect();
    let keys = |keys: &[config::SecretValue]| -> Vec<ApiKey> {
        keys.iter().map(|key| ApiKey::new(key.expose())).collect()
    };
    let api_keys = keys(&config.api.keys);
    let publishing = PublishLimiter::new(config.api.publish_rate, api_keys.len());
    FrontendConfig {
        listeners,
        routes,
        limits,
        api_keys,
        admin_keys: keys(&config.admin.keys),
        accepts_unknown_fields: config.api.accepts_unknown_fields,
        publish_rate: publishing,
        namespaces: Arc::new(config::namespaces(config)),
        history_bytes_max: history_bytes_max(config),
        history_answer_max: config.limits.history_answer_max as usize,
    }
}

/// Returns the limit of the history of all channels together, in bytes.
pub(crate) fn history_bytes_max(config: &Config) -> usize {
    usize::try_from(config.limits.history_bytes).unwrap_or(usize::MAX)
}

fn limits(limits: &config::LimitsConfig) -> ConnectionLimits {
    ConnectionLimits {
        header_timeout_ms: as_ms(limits.header_timeout),
        handshake_timeout_ms: as_ms(limits.handshake_timeout),
        body_timeout_ms: as_ms(limits.handshake_timeout),
        idle_timeout_ms: as_ms(limits.keep_alive_timeout),
        session_idle_timeout_ms: limits.idle_timeout.map_or(0, as_ms),
        write_timeout_ms: as_ms(limits.write_timeout),
        ping_interval_ms: limits.ping_interval.map_or(0, as_ms),
        pong_timeout_ms: as_ms(limits.pong_timeout),
        connections_per_user: limits.connections_per_user.unwrap_or(0),
        channels_per_client: limits.channels_per_client as usize,
        channel_name_bytes_max: limits.channel_name_bytes_max as usize,
        line_bytes_max: usize::try_from(limits.body_bytes_max).unwrap_or(usize::MAX),
        http: http::HeadLimits {
            head_bytes_max: usize::try_from(limits.header_bytes_max).unwrap_or(usize::MAX),
            headers_max: limits.headers_max as usize,
            body_bytes_max: limits.body_bytes_max,
            ..http::HeadLimits::default()
        },
        ..ConnectionLimits::default()
    }
}

fn route(
    route: &config::RouteConfig,
    config: &Config,
    library: &AppRegistry,
    identities: &IdentityProviders,
    hooks: &HookClient,
) -> Route {
    let identity = match route.handler.identity() {
        Some(identity) => self::identity(identity, identities),
        None => Identity::None,
    };
    let channels = match &route.handler {
        config::RouteHandler::Session { channels, .. } => channels.as_slice(),
        _ => &[],
    };
    let channel = |pattern: &config::ChannelPattern| match pattern {
        config::ChannelPattern::Exact(name) => name.clone(),
        config::ChannelPattern::Prefix(beginning) => format!("{beginning}*"),
    };
    let websocket = route.handler.websocket();
    Route {
        path: route.path.as_str().to_owned(),
        methods: route.methods.iter().map(str::to_owned).collect(),
        handler: match &route.handler {
            config::RouteHandler::Session { protocol, .. } => RouteHandler::Session(protocol),
            config::RouteHandler::Api { .. } => RouteHandler::Api,
            config::RouteHandler::App { app, .. } => {
                let app = &config.apps[*app];
                RouteHandler::App {
                    app: library.id(&app.name),
                    request_timeout_ms: app.request_timeout.map_or(0, as_ms),
                }
            }
            config::RouteHandler::Static {
                root,
                precompressed,
            } => RouteHandler::Static {
                root: match root {
                    config::StaticRoot::Folder(folder) => folder.clone(),
                    config::StaticRoot::BuiltinDemo => PathBuf::from("builtin:demo"),
                },
                variants: precompressed.clone(),
            },
        },
        headers: route.headers.clone().map(Arc::new),
        identity,
        networks: route.networks.clone(),
        channels: channels.iter().map(channel).collect(),
        origins: websocket.map_or_else(Vec::new, |websocket| {
            websocket.origins.iter().map(origin).collect()
        }),
        compression: websocket.and_then(|websocket| match websocket.compression {
            config::CompressionMode::Off => None,
            config::CompressionMode::On => Some(deflate::DeflatePolicy::default()),
            config::CompressionMode::Takeover => Some(deflate::DeflatePolicy {
                takeover: true,
                // A client that supports negotiation gets a window as large as the server's.
                client_window_bits: deflate::KEPT_WINDOW_BITS_MAX,
                ..deflate::DeflatePolicy::default()
            }),
        }),
        message_limits: websocket.map_or(MESSAGES, |websocket| websocket::MessageLimits {
            message_bytes_max: usize::try_from(websocket.message_bytes_max).unwrap_or(usize::MAX),
            fragments_max: websocket.fragments_max,
            inflate_ratio_max: websocket.inflate_ratio_max.unwrap_or(0),
        }),
        rate_limits: websocket.and_then(|websocket| websocket.pacing),
        drop_policy: websocket.and_then(|websocket| websocket.drop_policy),
        has_positions: websocket.is_some_and(|websocket| websocket.has_positions),
        hook_targets: match (&route.handler, &config.hooks) {
            (
                config::RouteHandler::Session {
                    protocol,
                    app,
                    hooks: of_route,
                    ..
                },
                Some(options),
            ) if protocol.accepts_method("hooks") => {
                let mut hook_targets = hook_targets(options);
                for kind in HookKind::BACKEND_KINDS {
                    if config.hook_url(of_route, kind).is_some() {
                        let id = hooks.id(&route.name(), kind);
                        hook_targets.set(kind, HookTarget::BackEnd(id));
                    }
                }
                if let Some(app) = app.map(|app| &config.apps[app]) {
                    let timeout_ms = app.request_timeout.map_or(0, as_ms);
                    let id = library.id(&app.name);
                    hook_targets.set_app(id, timeout_ms, library.hook_kinds(id));
                }
                Some(Arc::new(hook_targets))
            }
            _ => None,
        },
    }
}

/// Returns the settings that all hooks share, such as headers; the URLs of the hooks are not set here.
fn hook_targets(hooks: &config::HooksConfig) -> HookTargets {
    let mut hook_targets = HookTargets::default();
    hook_targets.headers.clone_from(&hooks.headers);
    hook_targets.emulated.clone_from(&hooks.client_headers);
    // A header in the data of the connect command is used only if the HTTP request does not have it.
    hook_targets
        .headers
        .extend(hooks.client_headers.iter().cloned());
    hook_targets
}

/// The message limits of built-in routes, and of configured routes without WebSocket settings.
const MESSAGES: websocket::MessageLimits = websocket::MessageLimits {
    message_bytes_max: 1 << 20,
    fragments_max: 1024,
    inflate_ratio_max: 200,
};

/// Returns the routes that pages load under `veche dev`: the developer's script, and the WebSocket for notices.
fn dev_routes() -> impl Iterator<Item = Route> {
    let root = PathBuf::from(dev::PAGES_ROOT);
    let socket = registry::handler("push").map(|push| Route {
        channels: vec![dev::CHANNEL.to_owned()],
        ..internal(dev::SOCKET_PATH, push)
    });
    let pages = internal(
        dev::PAGES_PATH,
        RouteHandler::Static {
            root,
            variants: Vec::new(),
        },
    );
    socket.into_iter().chain([pages])
}

fn internal(path: &str, handler: RouteHandler) -> Route {
    Route {
        path: path.to_owned(),
        methods: match handler {
            RouteHandler::Api | RouteHandler::Admin => Vec::new(),
            _ => vec!["GET".to_owned(), "HEAD".to_owned()],
        },
        handler,
        headers: None,
        identity: Identity::None,
        networks: NetworkRules::default(),
        channels: Vec::new(),
        origins: vec![OriginCheck::SameHost],
        compression: None,
        message_limits: MESSAGES,
        rate_limits: None,
        drop_policy: None,
        has_positions: false,
        hook_targets: None,
    }
}

fn identity(identity: &config::IdentitySource, identities: &IdentityProviders) -> Identity {
    match identity {
        config::IdentitySource::None => Identity::None,
        config::IdentitySource::Query(name) => Identity::Query(name.clone()),
        config::IdentitySource::Cookie(name) => Identity::Cookie(name.clone()),
        config::IdentitySource::Header(name) => Identity::Header(name.clone()),
        config::IdentitySource::Certificate(field) => Identity::Certificate(match field {
            config::CertificateField::Any => CertificateField::Any,
            config::CertificateField::CommonName => CertificateField::CommonName,
            config::CertificateField::Email => CertificateField::Email,
            config::CertificateField::Name => CertificateField::Name,
            config::CertificateField::Uri => CertificateField::Uri,
        }),
        config::IdentitySource::Token(_)
        | config::IdentitySource::Hook(_)
        | config::IdentitySource::Pam(_) => {
            let known = identities.identity(identity);
            known.expect("the identity was checked when the configuration was loaded")
        }
    }
}

fn origin(rule: &config::OriginRule) -> OriginCheck {
    let pattern = |text: &str| match OriginPattern::parse(text) {
        Some(pattern) => OriginCheck::Listed(pattern),
        None => unreachable!(
            "an invalid origin should have been refused when the configuration was loaded: {text}"
        ),
    };
    match rule {
        config::OriginRule::Any => OriginCheck::Any,
        config::OriginRule::SameHost => OriginCheck::SameHost,
        config::OriginRule::Exact(origin) => pattern(origin),
        config::OriginRule::Subdomains {
            scheme,
            suffix,
            port,
        } => {
            let port = port.map_or_else(String::new, |port| format!(":{port}"));
            pattern(&format!("{scheme}://*{suffix}{port}"))
        }
    }
}
