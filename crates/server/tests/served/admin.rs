//! Tests the admin page, as operators and strangers use it: its files, its key, and its calls.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::http::Response;
use crate::support::server::KEY_HEADER;
use crate::support::{Http, Options, Server, Setup, Socket, USUAL, get, on_all, until};

const KEY: &str = "X-API-Key: the-operator's\r\n";
const ADMIN: &str = "[admin]\nkeys = [\"the-operator's\"]\n\
                     [[namespace]]\nname = \"room\"\nhistory_size = 10\nhistory_ttl = \"1h\"\npresence = true\n";

fn start(setup: Setup) -> Server {
    let options = Options {
        api: ADMIN,
        ..Options::default()
    };
    Server::with(setup, &options)
}

fn post(address: SocketAddr, name: &str, headers: &str, body: &str) -> Response {
    let path = format!("/admin/api/{name}");
    let response = Http::connect(address).request("POST", &path, headers, body.as_bytes());
    response.expect("an answer")
}

/// Returns the result of an authorized call.
#[track_caller]
fn ask(server: &Server, name: &str, body: &Value) -> Value {
    let response = post(server.internal, name, KEY, &body.to_string());
    assert_eq!(response.status, 200, "{response:?}");
    let mut answer = response.json();
    assert!(answer["error"].is_null(), "{name}: {answer}");
    answer["result"].take()
}

#[test]
fn the_page_is_there_and_opens_by_its_own_key_only() {
    on_all(|setup| {
        let server = start(setup);
        let page = get(server.internal, "/admin/");
        assert_eq!(page.status, 200);
        assert!(page.text().contains("<title>Veche admin</title>"));
        let policy = page.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        // All files to which the page refers exist, and nothing outside of the page's folder is served.
        for name in ["app.js", "style.css", "icon.svg"] {
            assert!(page.text().contains(name));
            let path = format!("/admin/{name}");
            assert_eq!(get(server.internal, &path).status, 200, "{name}");
        }
        // Dot segments are resolved first, so the first path leads to the API, which requires its
        // key, and the second to a file of the admin page.
        assert_eq!(get(server.internal, "/admin/../api/info").status, 401);
        assert_eq!(get(server.internal, "/admin/vendor/../app.js").status, 200);
        assert_eq!(get(server.internal, "/admin/..%2fapp.js").status, 404);
        let folder = get(server.internal, "/admin");
        assert_eq!(
            (folder.status, folder.header("location")),
            (301, Some("./admin/"))
        );

        assert_eq!(post(server.internal, "figures", "", "").status, 401);
        assert_eq!(post(server.internal, "figures", KEY_HEADER, "").status, 401);
        assert_eq!(post(server.internal, "figures", KEY, "").status, 200);
        let foreign = format!("{KEY}Origin: http://evil.test\r\n");
        assert_eq!(post(server.internal, "figures", &foreign, "").status, 403);
        let api = Http::connect(server.internal).request("POST", "/api/info", KEY, b"{}");
        assert_eq!(api.expect("an answer").status, 401, "it opens nothing else");
        for path in ["/admin/", "/admin/app.js"] {
            assert_eq!(get(server.public, path).status, 404, "{path}");
        }
        // On the public listener, this path belongs to the route for static files, which accepts no POST.
        assert_eq!(post(server.public, "figures", KEY, "{}").status, 405);
    });
}

#[test]
fn every_call_answers() {
    on_all(|setup| {
        let server = start(setup);
        let mut ann = Socket::open(server.public, "/ws?user=ann&channel=room:1");
        let published = ask(
            &server,
            "publish",
            &json!({"channel": "room:1", "data": "hi"}),
        );
        assert_eq!(
            (&published["handed"], &published["offset"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(ann.text(), "hi");
        let pushed = ask(&server, "push", &json!({"user": "ann", "data": "you"}));
        assert_eq!(pushed, json!({"handed": 1}));
        assert_eq!(ann.text(), "you");

        let channels = ask(&server, "channels", &json!({"pattern": "*1"}));
        assert_eq!(
            channels,
            json!({"channels": {"room:1": {"num_clients": 1}}})
        );
        let users = ask(&server, "channels", &json!({"pattern": "#a*"}));
        assert_eq!(users, json!({"channels": {"#ann": {"num_clients": 1}}}));
        let history = ask(
            &server,
            "history",
            &json!({"channel": "room:1", "limit": 5, "reverse": true}),
        );
        assert_eq!(history["publications"][0]["data"], "hi");
        let members = ask(&server, "presence", &json!({"channel": "room:1"}));
        let members = members["presence"].as_object().expect("members");
        let users: Vec<_> = members.values().map(|one| &one["user"]).collect();
        assert_eq!(users, ["ann"]);
        ask(&server, "presence_stats", &json!({"channel": "room:1"}));
        let ann_is = ask(&server, "user_status", &json!({"user": "ann"}));
        assert_eq!(
            (&ann_is["online"], &ann_is["connections"]),
            (&json!(true), &json!(1))
        );

        let figures = ask(&server, "figures", &json!({}));
        let workers = figures["workers"].as_array().expect("a list");
        assert_eq!(workers.len(), setup.workers);
        let sum = |read: &dyn Fn(&Value) -> &Value| -> u64 {
            workers
                .iter()
                .filter_map(|worker| read(worker).as_u64())
                .sum()
        };
        assert_eq!(sum(&|worker| &worker["sessions"]), 1);
        assert_eq!(sum(&|worker| &worker["push_fan_out"]), 2);
        assert_eq!(sum(&|worker| &worker["messages"]["out"]), 2);
        let bounds = figures["turn_bounds_us"].as_array().expect("a list").len();
        for worker in workers {
            assert_eq!(
                worker["turns"].as_array().expect("a list").len(),
                bounds + 1
            );
        }
        assert!(
            figures["memory_bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 0)
        );
        assert_eq!(figures["version"], env!("CARGO_PKG_VERSION"));

        let slow = ask(&server, "slow", &json!({}));
        for kind in ["turn", "handler", "request"] {
            assert!(slow["slow"][kind].is_array(), "{slow}");
        }
        let tables = ask(&server, "tables", &json!({}));
        assert_eq!(tables, json!({"tables": []}));
        let gone = ask(&server, "disconnect", &json!({"user": "ann"}));
        assert_eq!((gone, ann.closed()), (json!({"disconnected": 1}), 3503));
    });
}

#[test]
fn the_log_and_the_configuration_are_shown_without_secrets() {
    let server = start(USUAL);
    let config = ask(&server, "config", &json!({})).to_string();
    assert!(
        config.contains("\"[admin]\"") && config.contains("****"),
        "{config}"
    );
    assert!(!config.contains("the-operator's"), "{config}");

    let log = ask(&server, "log", &json!({}));
    let count = log["count"].as_u64().expect("a number");
    let lines = log["lines"].as_array().expect("a list");
    assert_eq!(lines.len() as u64, count);
    assert!(lines.iter().any(|line| {
        line.as_str()
            .is_some_and(|line| line.contains("workers are up"))
    }));
    // A call with a wrong key is logged, without the key.
    assert_eq!(
        post(server.internal, "log", "X-API-Key: a-guess\r\n", "").status,
        401
    );
    let mut fresh = Value::Null;
    until("the line", || {
        fresh = ask(&server, "log", &json!({"after": count}));
        fresh["lines"][0].is_string()
    });
    let line = fresh["lines"][0].as_str().unwrap_or_default();
    assert!(
        line.contains("WARN") && line.contains("wrong key") && !line.contains("a-guess"),
        "{line}"
    );
    assert_eq!(fresh["count"], count + 1);
}

#[test]
fn a_reload_brings_the_page_and_its_keys_and_takes_them_away() {
    let server = Server::start(USUAL);
    assert_eq!(
        get(server.internal, "/admin/").status,
        404,
        "off without a key"
    );
    assert_eq!(post(server.internal, "figures", KEY, "").status, 404);
    let reload = |api: &'static str| {
        server.configure(&Options {
            api,
            ..Options::default()
        });
        let answer = server.ask("reload").expect("an answer");
        assert_eq!(answer["ok"], true, "{answer}");
    };
    // Workers apply the reload one after another, and each connection may reach another worker.
    let everywhere =
        |status: u16| (0..12).all(|_| post(server.internal, "figures", KEY, "").status == status);
    reload(ADMIN);
    until("the page", || everywhere(200));
    assert_eq!(get(server.internal, "/admin/").status, 200);
    let shown = ask(&server, "config", &json!({}));
    assert!(shown.to_string().contains("room"), "{shown}");
    reload("[admin]\nkeys = [\"the-next-operator's\"]\n");
    // The old key is now wrong, and repeated wrong keys are answered with 429.
    until("the end of the old key", || {
        let refused = |_| [401, 429].contains(&post(server.internal, "figures", KEY, "").status);
        (0..12).all(refused)
    });
    reload("");
    until("the end of the page", || everywhere(404));
}
