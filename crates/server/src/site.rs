//! Builds the front ends' [`Site`] from the checked configuration.

use std::path::PathBuf;
use std::sync::Arc;

use veche_apps::Library;
use veche_config::{self as config, Config};
use veche_frontends::access::Networks;
use veche_frontends::hooks::{Decider, Deciders, Kind};
use veche_frontends::identity::{Field, Identity};
use veche_frontends::origin::{Pattern, Rule};
use veche_frontends::publishing::Publishing;
use veche_frontends::registry;
use veche_frontends::route::{Handler, Route, Router};
use veche_frontends::site::{ApiKey, Limits, Listener, Role, Site};
use veche_identity::Identities;
use veche_proto::http;
use veche_proto::websocket::{self, deflate};
use veche_terminal::as_ms;
use veche_webhooks::hooks::Hooks;

use crate::dev;

/// Builds the front ends' configuration; `dev` adds the routes of developer pages.
pub(crate) fn build(
    config: &Config,
    library: &Library,
    identities: &Identities,
    hooks: &Hooks,
    dev: bool,
) -> Site {
    let limits = limits(&config.limits);
    let mut routes: Vec<Arc<Route>> = config
        .routes
        .iter()
        .map(|route| Arc::new(self::route(route, config, library, identities, hooks)))
        .collect();
    // The admin page requires keys.
    let admin = (!config.admin.keys.is_empty()).then_some(("/admin/*", Handler::Admin));
    let own: Vec<u16> = [
        ("/api/*", Handler::Api),
        ("/health", Handler::Health),
        ("/metrics", Handler::Metrics),
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
            if listener.role == config::Role::Internal {
                // After the configured ones, so that a configuration can override `/health`.
                indexes.extend(&own);
            }
            indexes.extend(&for_pages);
            Listener {
                is_tls: listener.tls.is_some(),
                access: listener.access.clone(),
                role: match listener.role {
                    config::Role::Public => Role::Public,
                    config::Role::Internal => Role::Internal,
                    config::Role::Push => Role::Push,
                },
                router: Router::new(
                    indexes
                        .iter()
                        .map(|&index| (index, &*routes[index as usize])),
                ),
            }
        })
        .collect();
    let keys = |keys: &[config::Secret]| -> Vec<ApiKey> {
        keys.iter().map(|key| ApiKey::new(key.expose())).collect()
    };
    let api_keys = keys(&config.api.keys);
    let publishing = Publishing::new(config.api.publish_rate, api_keys.len());
    Site {
        listeners,
        routes,
        limits,
        api_keys,
        admin_keys: keys(&config.admin.keys),
        accepts_unknown_fields: config.api.accepts_unknown_fields,
        publishing,
        namespaces: Arc::new(config::namespaces(config)),
        history_bytes_max: history_bytes_max(config),
        history_answer_max: config.limits.history_answer_max as usize,
    }
}

/// Returns the history limit of all channels in bytes.
pub(crate) fn history_bytes_max(config: &Config) -> usize {
    usize::try_from(config.limits.history_bytes).unwrap_or(usize::MAX)
}

fn limits(limits: &config::Limits) -> Limits {
    Limits {
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
        http: http::Limits {
            head_bytes_max: usize::try_from(limits.header_bytes_max).unwrap_or(usize::MAX),
            headers_max: limits.headers_max as usize,
            body_bytes_max: limits.body_bytes_max,
            ..http::Limits::default()
        },
        ..Limits::default()
    }
}

fn route(
    route: &config::Route,
    config: &Config,
    library: &Library,
    identities: &Identities,
    hooks: &Hooks,
) -> Route {
    let identity = match route.handler.identity() {
        Some(identity) => self::identity(identity, identities),
        None => Identity::None,
    };
    let channels = match &route.handler {
        config::Handler::Session { channels, .. } => channels.as_slice(),
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
            config::Handler::Session { protocol, .. } => Handler::Session(protocol),
            config::Handler::Api { .. } => Handler::Api,
            config::Handler::Lua { app, .. } => {
                let app = &config.apps[*app];
                Handler::Lua {
                    app: library.id(&app.name),
                    request_timeout_ms: app.request_timeout.map_or(0, as_ms),
                }
            }
            config::Handler::Static {
                root,
                precompressed,
            } => Handler::Static {
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
            config::Compression::Off => None,
            config::Compression::On => Some(deflate::Policy::default()),
            config::Compression::Takeover => Some(deflate::Policy {
                takeover: true,
                // The window of a client that supports negotiation is as large as our own.
                client_window_bits: deflate::KEPT_WINDOW_BITS_MAX,
                ..deflate::Policy::default()
            }),
        }),
        message_limits: websocket.map_or(MESSAGES, |websocket| websocket::Limits {
            message_bytes_max: usize::try_from(websocket.message_bytes_max).unwrap_or(usize::MAX),
            fragments_max: websocket.fragments_max,
            inflate_ratio_max: websocket.inflate_ratio_max.unwrap_or(0),
        }),
        pacing: websocket.and_then(|websocket| websocket.pacing),
        keeping: websocket.and_then(|websocket| websocket.keeping),
        has_positions: websocket.is_some_and(|websocket| websocket.has_positions),
        deciders: match (&route.handler, &config.hooks) {
            (
                config::Handler::Session {
                    protocol,
                    app,
                    hooks: of_route,
                    ..
                },
                Some(options),
            ) if protocol.takes("hooks") => {
                let mut deciders = deciders(options);
                for kind in Kind::OF_BACK_ENDS {
                    if let Some(url) = config.hook_url(of_route, kind) {
                        deciders.set(kind, Decider::BackEnd(hooks.id(kind, url)));
                    }
                }
                if let Some(app) = app.map(|app| &config.apps[app]) {
                    let timeout_ms = app.request_timeout.map_or(0, as_ms);
                    let id = library.id(&app.name);
                    deciders.set_app(id, timeout_ms, library.kinds(id));
                }
                Some(Arc::new(deciders))
            }
            _ => None,
        },
    }
}

/// Returns the hook settings; no URL is set.
fn deciders(hooks: &config::Hooks) -> Deciders {
    let mut deciders = Deciders::default();
    deciders.headers.clone_from(&hooks.headers);
    deciders.emulated.clone_from(&hooks.client_headers);
    // Data in the connect command counts only if the request does not have it.
    deciders
        .headers
        .extend(hooks.client_headers.iter().cloned());
    deciders
}

/// Limits of routes that the configuration does not contain.
const MESSAGES: websocket::Limits = websocket::Limits {
    message_bytes_max: 1 << 20,
    fragments_max: 1024,
    inflate_ratio_max: 200,
};

/// Returns the routes of developer pages: their script, and its channel.
fn dev_routes() -> impl Iterator<Item = Route> {
    let root = PathBuf::from(dev::PAGES_ROOT);
    let socket = registry::handler("push").map(|push| Route {
        channels: vec![dev::CHANNEL.to_owned()],
        ..internal(dev::SOCKET_PATH, push)
    });
    let pages = internal(
        dev::PAGES_PATH,
        Handler::Static {
            root,
            variants: Vec::new(),
        },
    );
    socket.into_iter().chain([pages])
}

fn internal(path: &str, handler: Handler) -> Route {
    Route {
        path: path.to_owned(),
        methods: match handler {
            Handler::Api | Handler::Admin => Vec::new(),
            _ => vec!["GET".to_owned(), "HEAD".to_owned()],
        },
        handler,
        headers: None,
        identity: Identity::None,
        networks: Networks::default(),
        channels: Vec::new(),
        origins: vec![Rule::SameHost],
        compression: None,
        message_limits: MESSAGES,
        pacing: None,
        keeping: None,
        has_positions: false,
        deciders: None,
    }
}

fn identity(identity: &config::Identity, identities: &Identities) -> Identity {
    match identity {
        config::Identity::None => Identity::None,
        config::Identity::Query(name) => Identity::Query(name.clone()),
        config::Identity::Cookie(name) => Identity::Cookie(name.clone()),
        config::Identity::Header(name) => Identity::Header(name.clone()),
        config::Identity::Certificate(field) => Identity::Certificate(match field {
            config::Field::Any => Field::Any,
            config::Field::CommonName => Field::CommonName,
            config::Field::Email => Field::Email,
            config::Field::Name => Field::Name,
            config::Field::Uri => Field::Uri,
        }),
        config::Identity::Token(_) | config::Identity::Hook(_) | config::Identity::Pam(_) => {
            let known = identities.identity(identity);
            known.expect("made of the same configuration, before")
        }
    }
}

fn origin(rule: &config::OriginRule) -> Rule {
    let pattern = |text: &str| match Pattern::parse(text) {
        Some(pattern) => Rule::Listed(pattern),
        None => unreachable!("the configuration checks origins by a stricter rule: {text}"),
    };
    match rule {
        config::OriginRule::Any => Rule::Any,
        config::OriginRule::SameHost => Rule::SameHost,
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
