//! Routing of paths: exact paths, parameters (`/room/:id`) and prefixes (`/app/*`), most specific first.
//!
//! A [`Router`] is built once per listener from the configuration and shared by all workers. It receives paths in
//! [normal form](veche_proto::http::normal_path), and the paths of routes are normalised too, so a rule for a path
//! applies to all spellings of that path.

use std::collections::HashMap;

use veche_proto::http::Method;

use super::Route;

/// The result of routing a path.
#[derive(Debug, PartialEq, Eq)]
pub enum RouteMatch<'p> {
    /// The route with this index matches, with this remainder of the path.
    Route {
        /// Index into the routes given to [`Router::new`].
        index: u16,
        /// The remainder of the path after the route's path: `""`, or text that begins with `/`.
        below: &'p str,
    },
    /// The path has a route, but not for this method, so the status is 405.
    MethodNotAllowed,
    /// No route matches the path, so the status is 404.
    NotFound,
}

/// The routes of one listener.
#[derive(Clone, Debug, Default)]
pub struct Router {
    exact: HashMap<String, Vec<Entry>>,
    /// Patterns, the most specific first.
    patterns: Vec<(Vec<Segment>, Entry)>,
}

#[derive(Clone, Debug)]
struct Entry {
    index: u16,
    methods: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    // The order of the variants is the order of preference at one position of the path.
    Literal(String),
    Parameter,
    Rest,
}

impl Router {
    /// Builds the router from pairs of an index and a route; [`find`](Self::find) returns the index.
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
        // At the first position where two patterns differ, a literal precedes a parameter, which precedes `*`. If one
        // pattern is a prefix of the other, the longer one comes first.
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

    /// Finds the most specific route for a method and a normalised path without query.
    pub fn find<'p>(&self, method: &Method<'_>, path: &'p str) -> RouteMatch<'p> {
        let mut elsewhere = false;
        if let Some(entries) = self.exact.get(path) {
            // A route that lists HEAD itself takes precedence over one that serves HEAD because it serves GET.
            let named = entries.iter().find(|entry| entry.names(method.as_str()));
            match named.or_else(|| entries.iter().find(|entry| entry.allows(method))) {
                Some(entry) => {
                    return RouteMatch::Route {
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
                    return RouteMatch::Route {
                        index: entry.index,
                        below,
                    };
                }
                elsewhere = true;
            }
        }
        if elsewhere {
            RouteMatch::MethodNotAllowed
        } else {
            RouteMatch::NotFound
        }
    }
}

impl Router {
    /// Returns the methods that routes of this path serve, as the value of `Allow`.
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
            let with_head = (method == "GET").then_some("HEAD");
            for method in [method.as_str()].into_iter().chain(with_head) {
                if !methods.contains(&method) {
                    methods.push(method);
                }
            }
        }
        methods.join(", ")
    }
}

impl Entry {
    /// Returns whether the route serves this method. A route that serves GET also serves HEAD, without the body (RFC
    /// 9110 section 9.3.2).
    fn allows(&self, method: &Method<'_>) -> bool {
        self.methods.is_empty()
            || self.names(method.as_str())
            || (*method == Method::Head && self.names("GET"))
    }

    fn names(&self, method: &str) -> bool {
        self.methods.iter().any(|allowed| allowed == method)
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

/// Returns the remainder of the path for the handler if `path` matches `pattern`, otherwise `None`.
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
    use veche_proto::websocket;

    use super::*;
    use crate::context::identity::Identity;
    use crate::context::origin;
    use crate::context::protocol::ClientProtocol;
    use crate::context::route::RouteHandler;

    const ECHO: RouteHandler = protocol(&ClientProtocol {
        name: "echo",
        methods: &["GET"],
        options: &[],
    });
    const PUSH: RouteHandler = protocol(&ClientProtocol {
        name: "push",
        methods: &["GET"],
        options: &[],
    });

    const fn protocol(protocol: &'static ClientProtocol) -> RouteHandler {
        RouteHandler::Session(protocol)
    }

    fn route(path: &str, methods: &[&str], handler: RouteHandler) -> Route {
        Route {
            path: path.to_owned(),
            methods: methods.iter().map(|&m| m.to_owned()).collect(),
            handler,
            headers: None,
            identity: Identity::None,
            channels: Vec::new(),
            networks: Default::default(),
            origins: vec![origin::OriginCheck::SameHost],
            compression: None,
            message_limits: websocket::MessageLimits {
                message_bytes_max: 1 << 16,
                fragments_max: 1024,
                inflate_ratio_max: 0,
            },
            rate_limits: None,
            drop_policy: None,
            has_positions: false,
            hook_targets: None,
        }
    }

    #[test]
    fn the_most_specific_route_wins() {
        let files = || RouteHandler::Static {
            root: "x".into(),
            variants: Vec::new(),
        };
        let routes = [
            route("/", &[], files()),
            route("/app", &[], files()),
            route("/app/*", &[], ECHO),
            route("/room/:id", &["GET"], PUSH),
            route("/room/lobby", &[], ECHO),
            route("/room/:id/log", &[], ECHO),
            route("/room/:id/log", &["PUT"], ECHO),
        ];
        let router = Router::new(routes.iter().enumerate().map(|(i, r)| (i as u16, r)));
        let table: &[(&str, &str, RouteMatch<'_>)] = &[
            (
                "GET",
                "/",
                RouteMatch::Route {
                    index: 0,
                    below: "",
                },
            ),
            (
                "GET",
                "/index.html",
                RouteMatch::Route {
                    index: 0,
                    below: "/index.html",
                },
            ),
            (
                "GET",
                "/app",
                RouteMatch::Route {
                    index: 1,
                    below: "",
                },
            ),
            (
                "GET",
                "/application",
                RouteMatch::Route {
                    index: 0,
                    below: "/application",
                },
            ),
            (
                "GET",
                "/app/x/y",
                RouteMatch::Route {
                    index: 1,
                    below: "/x/y",
                },
            ),
            (
                "GET",
                "/room/lobby",
                RouteMatch::Route {
                    index: 4,
                    below: "",
                },
            ),
            (
                "GET",
                "/room/7",
                RouteMatch::Route {
                    index: 3,
                    below: "",
                },
            ),
            (
                "POST",
                "/room/7",
                RouteMatch::Route {
                    index: 0,
                    below: "/room/7",
                },
            ),
            (
                "GET",
                "/room/7/log",
                RouteMatch::Route {
                    index: 5,
                    below: "",
                },
            ),
            (
                "GET",
                "/room/",
                RouteMatch::Route {
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
        let routes = [route("/room/:id", &["GET"], PUSH)];
        let router = Router::new(routes.iter().enumerate().map(|(i, r)| (i as u16, r)));
        assert_eq!(
            router.find(&Method::Post, "/room/7"),
            RouteMatch::MethodNotAllowed
        );
        assert_eq!(router.allowed("/room/7"), "GET, HEAD");
        let index = |found| match found {
            RouteMatch::Route { index, .. } => Some(index),
            _ => None,
        };
        assert_eq!(index(router.find(&Method::Head, "/room/7")), Some(0));
        let routes = [route("/x", &["GET"], ECHO), route("/x", &["HEAD"], ECHO)];
        let both = Router::new(routes.iter().enumerate().map(|(i, r)| (i as u16, r)));
        assert_eq!(index(both.find(&Method::Head, "/x")), Some(1));
        assert_eq!(both.allowed("/x"), "GET, HEAD");
        assert_eq!(router.find(&Method::Get, "/rooms/7"), RouteMatch::NotFound);
        assert_eq!(router.find(&Method::Get, "/room/7/8"), RouteMatch::NotFound);
    }
}
