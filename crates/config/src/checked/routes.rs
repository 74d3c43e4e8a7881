//! Checks `[[route]]`: the requirements of each handler, the listeners, and conflicts between routes.

use veche_calls::masked;
use veche_frontends::identity::token::Anonymous;
use veche_frontends::outbox::DropPolicy;
use veche_frontends::rate_limiter::{OverLimit, RateLimits};
use veche_frontends::registry::{ClientProtocol, protocol};
use veche_terminal::{did_you_mean, nearest_hint};

use super::apps::CheckedApps;
use super::listeners::CheckedListener;
use super::{Checker, ServedFolder, list, rate, size, text, word};
use crate::directives::methods_listed;
use crate::hooks::RouteHooks;
use crate::names::{
    ChannelPattern, IdentitySource, METHODS, MethodSet, OriginRule, RoutePath, Segment,
};
use crate::raw::RawTable;
use crate::types::{
    CompressionMode, ListenerRole, RouteConfig, RouteHandler, StaticRoot, WebSocketConfig,
    listeners_called,
};
use crate::value::DirectiveValue;

/// The requests that a route claims. A route that has a problem is recorded too, so that its conflicts with other
/// routes are reported in the same run.
struct RouteClaim {
    index: usize,
    path: RoutePath,
    methods: MethodSet,
    listen: String,
    /// Empty if `listen` names no valid listener.
    listeners: Vec<usize>,
}

/// Paths that internal listeners serve themselves, besides `/api/` and `/admin/`.
const RESERVED: [&str; 2] = ["health", "metrics"];
/// Values of `root` for files built into the binary.
const BUILTIN: [&str; 1] = ["builtin:demo"];

impl Checker<'_> {
    pub(super) fn routes<'t>(
        &mut self,
        tables: impl Iterator<Item = &'t RawTable>,
        listeners: &[CheckedListener],
        apps: &mut CheckedApps,
        has_keys: bool,
    ) -> Vec<Option<RouteConfig>> {
        let mut claims = Vec::new();
        tables
            .map(|table| self.route(table, listeners, apps, has_keys, &mut claims))
            .collect()
    }

    fn route(
        &mut self,
        table: &RawTable,
        listeners: &[CheckedListener],
        apps: &mut CheckedApps,
        has_keys: bool,
        claims: &mut Vec<RouteClaim>,
    ) -> Option<RouteConfig> {
        let path = self.required(table, "path").and_then(|path| {
            let at = table.value_at("path");
            self.take(
                "path",
                at,
                RoutePath::parse(&path).map_err(|why| format!("{why}, found {path:?}")),
            )
        });
        let handler_word = self.required(table, "handler");
        let listen = text(table, "listen").unwrap_or_default();
        let on = if table.is_sound("listen") {
            self.listeners_of(table, &listen, listeners)
        } else {
            None
        };
        if let (Some(path), Some(on)) = (&path, &on) {
            self.reserved(table, path, on, listeners);
        }
        let methods = self.methods(table, handler_word.as_deref());
        if let (Some(path), Some(methods)) = (&path, methods)
            && table.is_sound("listen")
            && table.is_sound("methods")
        {
            let claim = RouteClaim {
                index: table.index,
                path: path.clone(),
                methods,
                listen: listen.clone(),
                listeners: on.clone().unwrap_or_default(),
            };
            self.collisions(table, &claim, claims);
            claims.push(claim);
        }
        let networks = self.networks(table);
        let headers = self.answer_headers(table);
        let handler_word = handler_word?;
        self.foreign(table, &handler_word);
        let handler = self.handler(table, &handler_word, apps);
        if let (Some(identity), Some(on)) = (handler.as_ref().and_then(RouteHandler::identity), &on)
        {
            self.certified(table, identity, on, listeners);
        }
        if handler_word == "api" && !has_keys {
            self.problems.add(
                table.value_at("handler"),
                "handler: \"api\" outside of the internal listeners needs [api] keys, or every client that reaches it could push to every user",
            );
        }
        Some(RouteConfig {
            index: table.index,
            path: path?,
            methods: methods?,
            listen,
            listeners: on?,
            networks: networks?,
            headers: headers?,
            handler: handler?,
        })
    }

    /// Reports directives that the route's handler does not use.
    fn foreign(&mut self, table: &RawTable, handler: &str) {
        for directive in table.section.directives() {
            let name = directive.name;
            if table.has(name) && !directive.concerns(handler) {
                let friends: Vec<String> = directive
                    .handlers()
                    .map(|word| format!("{word:?}"))
                    .collect();
                let message = format!(
                    "{name}: has no effect with handler {handler:?}, only with {}",
                    friends.join(", ")
                );
                self.problems.add(table.key_at(name), message);
            }
        }
    }

    fn listeners_of(
        &mut self,
        table: &RawTable,
        listen: &str,
        listeners: &[CheckedListener],
    ) -> Option<Vec<usize>> {
        if listeners.is_empty() {
            // There is no `[[listen]]`, or its section header is invalid. Either problem is reported elsewhere.
            return None;
        }
        let at = table.value_at("listen");
        let on = listeners_called(
            listen,
            listeners.iter().map(|l| (l.name.as_deref(), l.role)),
        );
        if on
            .iter()
            .any(|index| listeners[*index].role == Some(ListenerRole::Push))
            || listen == "push"
        {
            self.problems.add(
                at,
                "listen: a push listener accepts lines of JSON, not HTTP requests, so it has no routes",
            );
            return None;
        }
        if on.is_empty() {
            let roles_known = listeners.iter().all(|listener| listener.role.is_some());
            let message = match listen {
                "public" | "internal" if !roles_known => return None,
                "public" | "internal" if !table.has("listen") => {
                    "no [[listen]] is public, so this route would never be used; name another [[listen]] with listen = NAME".to_owned()
                }
                "public" | "internal" => format!("listen: no [[listen]] has role {listen:?}"),
                _ => {
                    let names = listeners.iter().filter_map(|listener| listener.name.as_deref());
                    let nearest = nearest_hint(listen, names.chain(["public", "internal"]));
                    format!("listen: no [[listen]] has the name or role {listen:?}{nearest}")
                }
            };
            self.problems.add(at, message);
            return None;
        }
        Some(on)
    }

    fn reserved(
        &mut self,
        table: &RawTable,
        path: &RoutePath,
        on: &[usize],
        listeners: &[CheckedListener],
    ) {
        let Some(Segment::Literal(first)) = path.segments().first() else {
            return;
        };
        let is_reserved = match first.as_str() {
            "api" => true,
            "admin" => self.has_admin,
            first => RESERVED.contains(&first) && path.segments().len() == 1,
        };
        if is_reserved
            && on
                .iter()
                .any(|index| listeners[*index].role == Some(ListenerRole::Internal))
        {
            let message = format!(
                "path: internal listeners serve {:?} themselves",
                path.as_str()
            );
            self.problems.add(table.value_at("path"), message);
        }
    }

    /// Returns the methods of a route. With an unknown handler (`None`), any method is accepted, and the default is
    /// GET, which all handlers serve.
    fn methods(&mut self, table: &RawTable, handler: Option<&str>) -> Option<MethodSet> {
        let serves = MethodSet::of(match handler {
            Some("static") => &["GET", "HEAD"],
            Some("api") => &["GET", "POST"],
            Some("lua" | "app") => &METHODS,
            Some(name) => protocol(name).map_or(&["GET"], |protocol| protocol.methods),
            None => &["GET"],
        });
        if !table.has("methods") || !table.is_sound("methods") {
            return Some(serves);
        }
        let named = list(table, "methods");
        let mut fine = true;
        for (item, method) in named.iter().enumerate() {
            let at = table.item_at("methods", item);
            if !METHODS.contains(&method.as_str()) {
                let nearest = did_you_mean_method(method);
                self.problems.add(
                    at,
                    format!(
                        "methods: expected some of {}, found {method:?}{nearest}",
                        methods_listed()
                    ),
                );
                fine = false;
            } else if let Some(handler) = handler
                && !serves.contains(method)
            {
                let has: Vec<&str> = serves.iter().collect();
                self.problems.add(
                    at,
                    format!(
                        "methods: handler {handler:?} serves {}, not {method}",
                        has.join(" and ")
                    ),
                );
                fine = false;
            }
        }
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        fine.then(|| MethodSet::of(&named))
    }

    fn handler(
        &mut self,
        table: &RawTable,
        handler: &str,
        apps: &mut CheckedApps,
    ) -> Option<RouteHandler> {
        if handler == "static" {
            let root = self.root(table);
            let precompressed = self.precompressed(table);
            return Some(RouteHandler::Static {
                root: root?,
                precompressed: precompressed?,
            });
        }
        let websocket = self.websocket(table);
        if matches!(handler, "lua" | "app") {
            let app = self.app_of_route(table, apps);
            let identity = self.identity(table);
            return Some(RouteHandler::App {
                app: app?,
                identity: identity?,
                websocket: websocket?,
            });
        }
        if let Some(protocol) = protocol(handler) {
            return self.session(table, protocol, websocket, apps);
        }
        Some(RouteHandler::Api {
            websocket: websocket?,
        })
    }

    /// Reads a route of a client protocol, with the protocol's options.
    fn session(
        &mut self,
        table: &RawTable,
        protocol: &'static ClientProtocol,
        websocket: Option<WebSocketConfig>,
        apps: &mut CheckedApps,
    ) -> Option<RouteHandler> {
        let app = match protocol.accepts_method("app") {
            true => self.app_of_clients(table, apps),
            false => Some(None),
        };
        let identity = match protocol.accepts_method("identity") {
            true => self.identity(table).map(Some),
            false => Some(None),
        };
        let channels = match protocol.accepts_method("channels") {
            true => self.each(table, "channels", ChannelPattern::parse),
            false => Some(Vec::new()),
        };
        let hooks = match protocol.accepts_method("hooks") {
            true => self.route_hooks(table),
            false => Some(RouteHooks::default()),
        };
        if protocol.accepts_method("channels")
            && identity == Some(Some(IdentitySource::None))
            && channels.as_ref().is_some_and(Vec::is_empty)
            && table.is_sound("channels")
        {
            self.warn(table.at, "[[route]] with neither identity nor channels, so nothing can ever be pushed to its clients");
        }
        Some(RouteHandler::Session {
            protocol,
            app: app?,
            identity: identity?,
            channels: channels?,
            hooks: hooks?,
            websocket: websocket?,
        })
    }

    fn websocket(&mut self, table: &RawTable) -> Option<WebSocketConfig> {
        let origins = self.each(table, "origins", OriginRule::parse)?;
        Some(WebSocketConfig {
            origins,
            compression: match table.value("compression") {
                Some(DirectiveValue::Flag(true)) => CompressionMode::On,
                Some(DirectiveValue::Word(_)) => CompressionMode::Takeover,
                _ => CompressionMode::Off,
            },
            message_bytes_max: size(table, "message_bytes_max"),
            inflate_ratio_max: match table.value("inflate_ratio_max") {
                Some(DirectiveValue::Integer(number)) => Some(
                    u32::try_from(number)
                        .expect("the range of the directive must fit into the integer type"),
                ),
                _ => None,
            },
            fragments_max: match table.value("fragments_max") {
                Some(DirectiveValue::Integer(number)) => u32::try_from(number)
                    .expect("the range of the directive must fit into the integer type"),
                other => {
                    unreachable!("the directive must be a number and have a default, not {other:?}")
                }
            },
            pacing: self.rate_limits(table),
            drop_policy: match word(table, "outbox_full") {
                "drop_oldest" => Some(DropPolicy::KeepNewest),
                "latest" => Some(DropPolicy::KeepLatestPerChannel),
                _ => None,
            },
            has_positions: self.has_positions(table),
        })
    }

    fn has_positions(&mut self, table: &RawTable) -> bool {
        let has_positions = matches!(table.value("positions"), Some(DirectiveValue::Flag(true)));
        if has_positions && word(table, "outbox_full") != "disconnect" {
            let why = "outbox_full: clients with positions rely on receiving every publication; use \"disconnect\"";
            self.problems
                .add(table.value_at("outbox_full"), why.to_owned());
        }
        has_positions
    }

    fn rate_limits(&mut self, table: &RawTable) -> Option<RateLimits> {
        let pacing = RateLimits {
            messages: rate(table, "message_rate"),
            bytes: rate(table, "byte_rate"),
            over_limit: match word(table, "over_rate") {
                "drop" => OverLimit::Drop,
                "close" => OverLimit::Close,
                _ => OverLimit::Delay,
            },
        };
        if pacing.messages.is_none() && pacing.bytes.is_none() {
            if table.has("over_rate") {
                self.warn(
                    table.key_at("over_rate"),
                    "over_rate: has no effect without message_rate or byte_rate",
                );
            }
            return None;
        }
        Some(pacing)
    }

    fn identity(&mut self, table: &RawTable) -> Option<IdentitySource> {
        let text = text(table, "identity")?;
        let at = table.value_at("identity");
        let mut identity = self.take(
            "identity",
            at,
            IdentitySource::parse(&text).map_err(|why| format!("{why}, found {:?}", masked(&text))),
        )?;
        let anonymous = match word(table, "anonymous") {
            "token" => Anonymous::Token,
            "all" => Anonymous::All,
            _ => Anonymous::None,
        };
        match &mut identity {
            IdentitySource::Token(own) => *own = anonymous,
            _ if anonymous != Anonymous::None => {
                let why = "anonymous: has no effect without identity = \"jwt\"";
                self.problems.add(table.key_at("anonymous"), why);
            }
            _ => {}
        }
        if matches!(
            identity,
            IdentitySource::Query(_) | IdentitySource::Header(_)
        ) {
            self.warn(
                at,
                format!("identity: {text:?} accepts any user name that the client sends; use it only for demos and in trusted networks"),
            );
        }
        Some(identity)
    }

    /// Checks that a route with certificate identity is on a listener that accepts certificates.
    fn certified(
        &mut self,
        table: &RawTable,
        identity: &IdentitySource,
        on: &[usize],
        listeners: &[CheckedListener],
    ) {
        if let IdentitySource::Certificate(_) = identity
            && !on.iter().any(|&index| listeners[index].has_client_ca)
        {
            self.problems.add(
                table.value_at("identity"),
                format!("identity: \"{identity}\" needs client certificates, but none of this route's listeners has \"client_ca\""),
            );
        }
    }

    fn root(&mut self, table: &RawTable) -> Option<StaticRoot> {
        let at = table.value_at("root");
        let Some(root) = text(table, "root") else {
            if table.is_sound("root") {
                self.problems.add(table.at, "[[route]] with handler \"static\" needs \"root\": a folder or \"builtin:demo\"");
            }
            return None;
        };
        if root.starts_with("builtin:") {
            if root == BUILTIN[0] {
                return Some(StaticRoot::BuiltinDemo);
            }
            let nearest = nearest_hint(&root, BUILTIN);
            self.problems.add(
                at,
                format!("root: Veche has no built-in files named {root:?}{nearest}"),
            );
            return None;
        }
        let folder = self.base.join(&root);
        if !(self.world.is_folder)(&folder) {
            self.problems.add(
                at,
                format!("root: the folder {} does not exist", folder.display()),
            );
            return None;
        }
        self.served.push(ServedFolder {
            at,
            name: "root",
            folder: folder.clone(),
        });
        Some(StaticRoot::Folder(folder))
    }

    fn collisions(&mut self, table: &RawTable, claim: &RouteClaim, before: &[RouteClaim]) {
        for other in before {
            // Two routes with equal `listen` share listeners, even if `listen` names no valid listener.
            let shares_listener = claim.listen == other.listen
                || claim
                    .listeners
                    .iter()
                    .any(|index| other.listeners.contains(index));
            let both = claim.methods.and(other.methods);
            if shares_listener && !both.is_empty() && claim.path.same_as(&other.path) {
                let methods: Vec<&str> = both.iter().collect();
                let message = format!(
                    "path: {:?} for {} is already used by route number {} of this file ({:?})",
                    claim.path.as_str(),
                    methods.join(", "),
                    other.index + 1,
                    other.path.as_str()
                );
                self.problems.add(table.value_at("path"), message);
            }
        }
    }
}

fn did_you_mean_method(found: &str) -> String {
    let capitals = found.to_ascii_uppercase();
    METHODS
        .into_iter()
        .find(|method| *method == capitals)
        .map_or_else(String::new, did_you_mean)
}
