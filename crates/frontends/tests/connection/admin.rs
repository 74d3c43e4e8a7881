//! Tests the admin page: who may call its API, and its headers for browsers.

use crate::world::wire::{get, responses, statuses};
use crate::world::{ADMIN_KEY, INTERNAL, Options, PUBLIC, World};

fn call(method: &str, headers: &str, body: &str) -> String {
    format!(
        "POST /admin/api/{method} HTTP/1.1\r\nHost: veche.test\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn only_its_own_keys_open_it_and_only_to_its_own_page() {
    let key = format!("X-API-Key: {ADMIN_KEY}\r\n");
    let table: &[(&str, &str, u16)] = &[
        (&key, "", 200),
        ("", "", 401),
        ("X-API-Key: secret\r\n", "", 401),
        ("X-API-Key: the operator'\r\n", "", 401),
        ("X-API-Key: \r\n", "", 401),
        ("X-API-Key: the operator's\r\nX-API-Key: other\r\n", "", 401),
        (&key, "Origin: http://veche.test\r\n", 200),
        (
            &key,
            "Origin: http://VECHE.test\r\nSec-Fetch-Site: same-origin\r\n",
            200,
        ),
        (&key, "Sec-Fetch-Site: none\r\n", 200),
        (&key, "Origin: http://evil.test\r\n", 403),
        (&key, "Origin: http://veche.test:8080\r\n", 403),
        (&key, "Origin: null\r\n", 403),
        (&key, "Origin: \r\n", 403),
        (&key, "Origin: http://veche.test\u{e4}\r\n", 403),
        (&key, "Sec-Fetch-Site: cross-site\r\n", 403),
        (&key, "Sec-Fetch-Site: same-site\r\n", 403),
        ("", "Origin: http://evil.test\r\n", 403),
    ];
    let mut world = World::new(Options {
        api_keys: vec!["secret"],
        ..Options::default()
    });
    for (key, headers, status) in table {
        let caller = world.connect(0, INTERNAL);
        let answer = world.ask(caller, call("info", &format!("{key}{headers}"), "{}"));
        let answer = &responses(&answer)[0];
        assert_eq!(answer.status, *status, "{key} {headers}");
        assert!(serde_json::from_str::<serde_json::Value>(&answer.body).is_ok());
        for forbidden in [
            "access-control-allow-origin",
            "access-control-allow-headers",
        ] {
            assert_eq!(answer.header(forbidden), None, "{headers}");
        }
    }
    // An admin key is not accepted by the back end's API.
    let caller = world.connect(0, INTERNAL);
    let api = call("info", &key, "{}").replace("/admin/api/", "/api/");
    assert_eq!(statuses(&world.ask(caller, api)), [401]);
    // The preflight of a browser for a request by another site's page is refused.
    let caller = world.connect(0, INTERNAL);
    let preflight = "OPTIONS /admin/api/info HTTP/1.1\r\nHost: veche.test\r\nOrigin: http://evil.test\r\n\
                     Access-Control-Request-Headers: x-api-key\r\nAccess-Control-Request-Method: POST\r\n\r\n";
    assert_eq!(statuses(&world.ask(caller, preflight)), [403]);
}

#[test]
fn without_keys_and_on_other_listeners_the_admin_page_is_absent() {
    let mut world = World::new(Options {
        api_keys: vec!["secret"],
        ..Options::default()
    });
    let caller = world.connect(0, PUBLIC);
    let page = get("/admin/hello.txt");
    let key = format!("X-API-Key: {ADMIN_KEY}\r\n");
    let answers = world.ask(caller, page + &call("info", &key, "{}"));
    assert_eq!(statuses(&answers), [404, 404]);
}

#[test]
fn methods_are_those_of_the_api_and_looks() {
    let key = format!("X-API-Key: {ADMIN_KEY}\r\n");
    let mut world = World::new(Options {
        workers: 3,
        ..Options::default()
    });
    for worker in 0..3 {
        world.open(worker, "/ws?user=ann&channel=news");
    }
    for (method, body, expected) in [
        (
            "publish",
            r#"{"channel":"news","data":1}"#,
            r#"{"result":{"handed":3}}"#,
        ),
        (
            "disconnect",
            r#"{"user":"nobody"}"#,
            r#"{"result":{"disconnected":0}}"#,
        ),
        (
            "user_status",
            r#"{"user":"ann"}"#,
            r#""online":true,"connections":3"#,
        ),
        (
            "channels",
            r##"{"pattern":"#*"}"##,
            r##"{"result":{"channels":{"#ann":{"num_clients":3}}}}"##,
        ),
        ("figures", "", r#"{"result":{"look":"Figures"}}"#),
        ("slow", "{}", r#"{"result":{"look":"Slow"}}"#),
        ("config", "{}", r#"{"result":{"look":"Config"}}"#),
        ("tables", "{}", r#"{"result":{"look":"Tables"}}"#),
        ("log", "", r#"{"result":{"look":"Log { after: 0 }"}}"#),
        (
            "log",
            r#"{"after":7}"#,
            r#"{"result":{"look":"Log { after: 7 }"}}"#,
        ),
        (
            "log",
            r#"{"befor":7}"#,
            r#""code":107,"message":"bad JSON at column 8: unknown field `befor`"#,
        ),
        ("nothing", "{}", r#""code":104"#),
        ("batch", r#"{"commands":[{"figures":{}}]}"#, r#""code":104"#),
    ] {
        let caller = world.connect(1, INTERNAL);
        let answer = responses(&world.ask(caller, call(method, &key, body)));
        assert_eq!(answer[0].status, 200, "{method}");
        assert!(
            answer[0].body.contains(expected),
            "{method}: {}",
            answer[0].body
        );
    }
    // The methods of the admin page are unknown in the back end's API.
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(
        caller,
        call("figures", "", "{}").replace("/admin/api/", "/api/"),
    );
    assert!(responses(&answer)[0].body.contains(r#""code":104"#));
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(
        caller,
        get("/admin/api/figures").replace("\r\n\r\n", &format!("\r\n{key}\r\n")),
    );
    assert_eq!(statuses(&answer), [405]);
}

#[test]
fn files_say_what_browsers_may_do_with_them() {
    let mut world = World::new(Options::default());
    for (target, status) in [
        ("/admin/hello.txt", 200),
        ("/admin/none.txt", 404),
        ("/admin/api", 404),
    ] {
        let caller = world.connect(0, INTERNAL);
        let answer = responses(&world.ask(caller, get(target)));
        assert_eq!(answer[0].status, status, "{target}");
        let policy = answer[0]
            .header("content-security-policy")
            .unwrap_or_default();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("script-src 'self'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer[0].header("x-frame-options"), Some("DENY"));
        assert_eq!(answer[0].header("referrer-policy"), Some("no-referrer"));
    }
    // Files of other routes are sent without the admin page's security headers.
    let caller = world.connect(0, PUBLIC);
    let answer = responses(&world.ask(caller, get("/files/hello.txt")));
    assert_eq!(
        (
            answer[0].status,
            answer[0].header("content-security-policy")
        ),
        (200, None)
    );
}
