//! Which handler answers a path: exact paths, parameters (`/room/:id`) and prefixes (`/app/*`), most specific first.
//!
//! It knows names and rules only; what a handler does with a request is in `handlers`. A [`Router`] is built once
//! per listener when the configuration is read and shared by all workers.

use std::collections::HashMap;
use std::path::PathBuf;

use veche_proto::http::Method;
use veche_proto::websocket;

use crate::identity::Identity;
use crate::origin;

/// What a route leads to, with that handler's own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Users and channels: what the back end pushes reaches the client.
    Push,
    /// Every message comes back to its sender.
    Echo,
    /// Files below `root`.
    Static {
        /// A folder, or `builtin:NAME` for files embedded in the binary.
        root: PathBuf,
    },
    /// The back end's HTTP API and its WebSocket.
    Api,
    /// `GET /health`.
    Health,
    /// `GET /metrics`.
    Metrics,
}

impl Handler {
    /// Whether the handler answers plain HTTP and so also takes what lies below its path.
    pub fn takes_subtree(&self) -> bool {
        matches!(self, Self::Static { .. } | Self::Api)
    }

    /// Whether a WebSocket may be opened here.
    pub fn takes_websocket(&self) -> bool {
        matches!(self, Self::Push | Self::Echo | Self::Api)
    }
}

/// One `[[route]]`, checked.
#[derive(Clone, Debug)]
pub struct Route {
    /// As written: `/ws`, `/room/:id`, `/app/*`.
    pub path: String,
    /// Upper-case methods; empty for any that the handler knows.
    pub methods: Vec<String>,
    /// Where it leads.
    pub handler: Handler,
    /// Who the client is.
    pub identity: Identity,
    /// Channel patterns that a client may ask for by `?channel=`: a name, or a beginning and `*`.
    pub channels: Vec<String>,
    /// Whose pages may open a WebSocket here.
    pub origins: Vec<origin::Rule>,
    /// What is answered to an offer of permessage-deflate; `None` refuses it.
    pub compression: Option<websocket::deflate::Policy>,
    /// Limits of a client's message.
    pub message_limits: websocket::Limits,
}

impl Route {
    /// Whether `?channel=name` is allowed here. Personal channels (`#user`) never are.
    pub fn allows_channel(&self, name: &str) -> bool {
        !name.starts_with('#')
            && self
                .channels
                .iter()
                .any(|pattern| match pattern.strip_suffix('*') {
                    Some(beginning) => name.starts_with(beginning),
                    None => name == pattern,
                })
    }
}

/// What the router found for a path.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'p> {
    /// The route with this index, and where in the path its own part ends.
    Route {
        /// Index into the routes given to [`Router::new`].
        index: u16,
        /// What lies below the route's path: `""`, or begins with `/`.
        below: &'p str,
    },
    /// The path exists, but not for this method: 405.
    MethodNotAllowed,
    /// Nothing lives here: 404.
    Nothing,
}

/// The routes of one listener.
#[derive(Clone, Debug, Default)]
pub struct Router {
    exact: HashMap<String, Vec<Entry>>,
    /// By falling specificity.
    patterns: Vec<(Vec<Segment>, Entry)>,
}

#[derive(Clone, Debug)]
struct Entry {
    index: u16,
    methods: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    // The order is the order of preference at one place of the path.
    Literal(String),
    Parameter,
    Rest,
}

impl Router {
    /// Builds the table from `(index, route)`; an index is what [`Found::Route`] gives back.
    pub fn new<'r>(routes: impl IntoIterator<Item = (u16, &'r Route)>) -> Self {
        let mut router = Self::default();
        for (index, route) in routes {
            let entry = Entry {
                index,
                methods: route.methods.clone(),
            };
            let path = route.path.as_str();
            if !path.ends_with("/*") && !path.contains("/:") {
                router
                    .exact
                    .entry(path.to_owned())
                    .or_default()
                    .push(entry.clone());
                if route.handler.takes_subtree() {
                    let mut below = segments(path);
                    below.push(Segment::Rest);
                    router.patterns.push((below, entry));
                }
            } else {
                router.patterns.push((segments(path), entry));
            }
        }
        // Literal before parameter before rest, place by place; the longer pattern first where one begins the other.
        router.patterns.sort_by(|(a, _), (b, _)| {
            let common = a
                .iter()
                .zip(b)
                .map(|(x, y)| rank(x).cmp(&rank(y)))
                .find(|order| order.is_ne());
            common.unwrap_or_else(|| b.len().cmp(&a.len()))
        });
        router
    }

    /// Finds the most specific route for a method and a path (no query).
    pub fn find<'p>(&self, method: &Method<'_>, path: &'p str) -> Found<'p> {
        let mut elsewhere = false;
        if let Some(entries) = self.exact.get(path) {
            match entries.iter().find(|entry| entry.allows(method)) {
                Some(entry) => {
                    return Found::Route {
                        index: entry.index,
                        below: "",
                    };
                }
                None => elsewhere = true,
            }
        }
        for (pattern, entry) in &self.patterns {
            if let Some(below) = below(pattern, path) {
                if entry.allows(method) {
                    return Found::Route {
                        index: entry.index,
                        below,
                    };
                }
                elsewhere = true;
            }
        }
        if elsewhere {
            Found::MethodNotAllowed
        } else {
            Found::Nothing
        }
    }
}

impl Router {
    /// The methods that a path does take, for `Allow`.
    pub fn allowed(&self, path: &str) -> String {
        let below = self
            .patterns
            .iter()
            .filter(|(pattern, _)| below(pattern, path).is_some())
            .map(|(_, entry)| entry);
        let mut methods: Vec<&str> = Vec::new();
        for method in self
            .exact
            .get(path)
            .into_iter()
            .flatten()
            .chain(below)
            .flat_map(|entry| &entry.methods)
        {
            if !methods.contains(&method.as_str()) {
                methods.push(method);
            }
        }
        methods.join(", ")
    }
}

impl Entry {
    fn allows(&self, method: &Method<'_>) -> bool {
        self.methods.is_empty()
            || self
                .methods
                .iter()
                .any(|allowed| allowed == method.as_str())
    }
}

fn rank(segment: &Segment) -> u8 {
    match segment {
        Segment::Literal(_) => 0,
        Segment::Parameter => 1,
        Segment::Rest => 2,
    }
}

fn segments(path: &str) -> Vec<Segment> {
    path.split('/')
        .skip(1)
        .filter(|part| !part.is_empty())
        .map(|part| match part {
            "*" => Segment::Rest,
            _ if part.starts_with(':') => Segment::Parameter,
            _ => Segment::Literal(part.to_owned()),
        })
        .collect()
}

/// Where `path` matches `pattern`, what is left for the handler.
fn below<'p>(pattern: &[Segment], path: &'p str) -> Option<&'p str> {
    let mut rest = path;
    for segment in pattern {
        if *segment == Segment::Rest {
            return Some(rest);
        }
        let part = rest.strip_prefix('/')?;
        let end = part.find('/').unwrap_or(part.len());
        match segment {
            Segment::Literal(literal) if part[..end] != **literal => return None,
            Segment::Parameter if end == 0 => return None,
            _ => rest = &part[end..],
        }
    }
    rest.is_empty().then_some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, methods: &[&str], handler: Handler) -> Route {
        Route {
            path: path.to_owned(),
            methods: methods.iter().map(|&m| m.to_owned()).collect(),
            handler,
            identity: Identity::None,
            channels: Vec::new(),
            origins: vec![origin::Rule::SameHost],
            compression: None,
            message_limits: websocket::Limits {
                message_bytes_max: 1 << 16,
                fragments_max: 1024,
            },
        }
    }

    #[test]
    fn the_most_specific_route_wins() {
        let files = || Handler::Static { root: "x".into() };
        let routes = [
            route("/", &[], files()),
            route("/app", &[], files()),
            route("/app/*", &[], Handler::Echo),
            route("/room/:id", &["GET"], Handler::Push),
            route("/room/lobby", &[], Handler::Echo),
            route("/room/:id/log", &[], Handler::Echo),
            route("/room/:id/log", &["PUT"], Handler::Echo),
        ];
        let router = Router::new(routes.iter().enumerate().map(|(i, r)| (i as u16, r)));
        let table: &[(&str, &str, Found<'_>)] = &[
            (
                "GET",
                "/",
                Found::Route {
                    index: 0,
                    below: "",
                },
            ),
            (
                "GET",
                "/index.html",
                Found::Route {
                    index: 0,
                    below: "/index.html",
                },
            ),
            (
                "GET",
                "/app",
                Found::Route {
                    index: 1,
                    below: "",
                },
            ),
            (
                "GET",
                "/application",
                Found::Route {
                    index: 0,
                    below: "/application",
                },
            ),
            (
                "GET",
                "/app/x/y",
                Found::Route {
                    index: 1,
                    below: "/x/y",
                },
            ),
            (
                "GET",
                "/room/lobby",
                Found::Route {
                    index: 4,
                    below: "",
                },
            ),
            (
                "GET",
                "/room/7",
                Found::Route {
                    index: 3,
                    below: "",
                },
            ),
            (
                "POST",
                "/room/7",
                Found::Route {
                    index: 0,
                    below: "/room/7",
                },
            ),
            (
                "GET",
                "/room/7/log",
                Found::Route {
                    index: 5,
                    below: "",
                },
            ),
            (
                "GET",
                "/room/",
                Found::Route {
                    index: 0,
                    below: "/room/",
                },
            ),
        ];
        for (method, path, expected) in table {
            assert_eq!(
                router.find(&Method::from_token(method), path),
                *expected,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn a_known_path_with_another_method_is_405_and_an_unknown_one_404() {
        let routes = [route("/room/:id", &["GET"], Handler::Push)];
        let router = Router::new(routes.iter().enumerate().map(|(i, r)| (i as u16, r)));
        assert_eq!(
            router.find(&Method::Post, "/room/7"),
            Found::MethodNotAllowed
        );
        assert_eq!(router.allowed("/room/7"), "GET");
        assert_eq!(router.find(&Method::Get, "/rooms/7"), Found::Nothing);
        assert_eq!(router.find(&Method::Get, "/room/7/8"), Found::Nothing);
    }

    #[test]
    fn channels_are_allowed_by_pattern_and_never_personal_ones() {
        let mut r = route("/ws", &[], Handler::Push);
        r.channels = vec!["news".into(), "room:*".into()];
        for (name, allowed) in [
            ("news", true),
            ("news2", false),
            ("room:", true),
            ("room:7", true),
            ("#ann", false),
        ] {
            assert_eq!(r.allows_channel(name), allowed, "{name}");
        }
        r.channels = vec!["*".into()];
        assert!(r.allows_channel("anything") && !r.allows_channel("#ann"));
    }
}
