//! The API as client libraries of Centrifugo's API call it, and the form in which clients receive the
//! published data.

use serde_json::{Value, json};

use super::{CONFIG, Client, start};
use crate::support::{Http, Options, Response, Server, USUAL, call, on_all};

/// Makes a POST request with only the given headers, so that a test can omit the API key.
fn post(server: &Server, path: &str, headers: &str, body: &str) -> Response {
    let mut http = Http::connect(server.internal);
    http.request("POST", path, headers, body.as_bytes())
        .expect("an answer")
}

fn with(limits: &str, api: &str) -> Server {
    let options = Options {
        limits,
        api,
        routes: CONFIG,
        ..Options::default()
    };
    Server::with(USUAL, &options)
}

#[test]
fn binary_data_close_no_json_client() {
    on_all(|setup| {
        let server = start(setup);
        let (mut ann, _) = Client::connect(&server, "ann");
        let joined = ann.ask(json!({ "id": 2, "subscribe": { "channel": "chat:1" } }));
        let epoch = joined["subscribe"]["epoch"].clone();
        // Binary data that is JSON arrives as JSON; other bytes arrive as a base64 text.
        let mut expected = Vec::new();
        for (name, base64, data) in [
            ("b64data", "eyJhIjogMX0K", json!({ "a": 1 })),
            ("b64data", "AP8=", json!("AP8=")),
            ("binary", "WzFd", json!([1])),
            ("b64data", "InRleHQi", json!("text")),
        ] {
            let body = json!({ "channel": "chat:1", name: base64 });
            let published = call(server.internal, "publish", &body);
            let offset = published["result"]["offset"].clone();
            expected.push(json!({ "data": data, "offset": offset }));
            assert_eq!(Some(&ann.publication()), expected.last());
        }
        let history = ann.ask(json!({ "id": 3, "history": { "channel": "chat:1", "limit": 10 } }));
        assert_eq!(history["history"]["publications"], json!(expected));
        drop(ann);
        let (mut ann, _) = Client::connect(&server, "ann");
        let back = json!({ "channel": "chat:1", "recover": true, "epoch": epoch, "offset": 1 });
        let joined = ann.ask(json!({ "id": 2, "subscribe": back }));
        assert_eq!(joined["subscribe"]["recovered"], true, "{joined}");
        assert_eq!(joined["subscribe"]["publications"], json!(expected[1..]));
        let body = json!({ "channel": "chat:1", "limit": 1 });
        let history = call(server.internal, "history", &body);
        let first = &history["result"]["publications"][0];
        assert_eq!(first["data"], json!({ "a": 1 }), "{history}");
    });
}

#[test]
fn a_key_may_be_shown_in_three_ways() {
    let server = with("", "");
    for (path, headers, status) in [
        ("/api/info", "X-API-Key: key\r\n", 200),
        ("/api/info", "Authorization: apikey key\r\n", 200),
        ("/api/info", "authorization: ApiKey  key\r\n", 200),
        ("/api/info?api_key=key", "", 200),
        (
            "/api/info?api_key=k%65y",
            "Authorization: Basic YTpi\r\n",
            200,
        ),
        ("/api/info?api_key=keys", "", 401),
        ("/api/info", "Authorization: apikey other\r\n", 401),
        ("/api/info", "Authorization: Bearer key\r\n", 401),
        ("/api/info?api_key=key", "X-API-Key: other\r\n", 401),
        ("/api/info", "", 401),
    ] {
        let answer = post(&server, path, headers, "{}");
        assert_eq!(answer.status, status, "{path} {headers}: {answer:?}");
    }
}

#[test]
fn commands_of_the_old_form_are_answered_a_line_each() {
    let server = with("", "");
    let key = "Authorization: apikey key\r\n";
    // The request format of gocent, the Go client of Centrifugo's API.
    let body = concat!(
        r#"{"method":"publish","params":{"channel":"chat:1","data":{"a":1}}}"#,
        "\n",
        r#"{"id":7,"method":"history","params":{"channel":"chat:1","limit":5}}"#,
        "\n",
        r#"{"method":"DISCONNECT","params":{"user":"zoe","Disconnect":null,"ClientWhitelist":null}}"#,
        "\n",
        r#"{"method":"nothing","params":{}}"#,
        r#"{"method":"info"}"#,
    );
    for path in ["/api", "/api/"] {
        let answer = post(&server, path, key, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let lines: Vec<Value> = answer
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let [published, history, disconnected, unknown, info] = &lines[..] else {
            panic!("{answer:?}");
        };
        assert!(published["result"]["offset"].is_u64(), "{published}");
        assert_eq!(history["id"], 7, "{history}");
        let first = &history["result"]["publications"][0];
        assert_eq!(first["data"], json!({ "a": 1 }), "{history}");
        assert!(disconnected["result"].is_object(), "{disconnected}");
        assert_eq!(unknown["error"]["code"], 104, "{unknown}");
        assert!(info["result"]["nodes"].is_array(), "{info}");
    }
    for body in ["{\"method\":", "[]", "{}"] {
        let answer = post(&server, "/api", key, body);
        assert_eq!(answer.json()["error"]["code"], 107, "{body}: {answer:?}");
    }
    // A command of a batch may have an id, which its reply repeats.
    let commands = json!({ "commands": [
        { "id": "one", "publish": { "channel": "chat:1", "data": 1 } },
        { "presence": { "channel": "open:1" }, "id": 2 },
    ] });
    let answer = call(server.internal, "batch", &commands);
    assert_eq!(answer["replies"][0]["id"], "one", "{answer}");
    assert!(answer["replies"][0]["publish"].is_object(), "{answer}");
    assert_eq!(answer["replies"][1]["id"], 2, "{answer}");
    assert_eq!(answer["replies"][1]["error"]["code"], 108, "{answer}");
}

#[test]
fn errors_have_an_http_status_on_request() {
    let server = with("unknown_namespace = \"error\"", "");
    for (name, body, code, status) in [
        ("publish", r#"{"channel":"none:1","data":1}"#, 102, 404),
        ("nothing", "{}", 104, 404),
        ("publish", "{", 107, 400),
        ("publish", r#"{"channel":"","data":1}"#, 107, 400),
        ("presence", r#"{"channel":"open:1"}"#, 108, 400),
        (
            "history",
            r#"{"channel":"chat:1","limit":1,"since":{"offset":7,"epoch":"none"}}"#,
            112,
            416,
        ),
    ] {
        let path = format!("/api/{name}");
        let answer = post(&server, &path, "X-API-Key: key\r\n", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], code, "{answer:?}");
        let headers = "X-API-Key: key\r\nX-Centrifugo-Error-Mode: transport\r\n";
        let answer = post(&server, &path, headers, body);
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.json()["code"], code, "{answer:?}");
        assert!(answer.json()["message"].is_string(), "{answer:?}");
    }
    let headers = "X-API-Key: key\r\nX-Centrifugo-Error-Mode: transport\r\n";
    let answer = post(&server, "/api/channels", headers, "{}");
    assert_eq!(
        (answer.status, answer.json()["result"].is_object()),
        (200, true)
    );
}

#[test]
fn channels_of_unknown_namespaces_are_errors_where_that_is_wanted() {
    let server = with("unknown_namespace = \"error\"", "");
    let (mut ann, _) = Client::connect(&server, "ann");
    for channel in ["none:1", "none:$1"] {
        for (id, command) in [(2, "subscribe"), (3, "publish"), (4, "history")] {
            let reply = ann.ask(json!({ "id": id, command: { "channel": channel, "data": 1 } }));
            assert_eq!(reply["error"]["code"], 102, "{command}: {reply}");
        }
        for (method, mut body) in [
            ("publish", json!({ "data": 1 })),
            ("history", json!({})),
            ("history_remove", json!({})),
            ("presence", json!({})),
            ("presence_stats", json!({})),
            ("subscribe", json!({ "user": "ann" })),
            ("unsubscribe", json!({ "user": "ann" })),
        ] {
            body["channel"] = json!(channel);
            let answer = call(server.internal, method, &body);
            assert_eq!(answer["error"]["code"], 102, "{method}: {answer}");
        }
        let body = json!({ "channels": ["chat:1", channel], "data": 1 });
        let answer = call(server.internal, "broadcast", &body);
        assert_eq!(answer["error"]["code"], 102, "{answer}");
    }
    for channel in ["news", "chat:1", "#ann"] {
        let body = json!({ "channel": channel, "data": 1 });
        let answer = call(server.internal, "publish", &body);
        assert!(answer["result"].is_object(), "{channel}: {answer}");
    }
    // Without `unknown_namespace = "error"`, channels of unknown namespaces are ordinary channels.
    let server = with("", "");
    let body = json!({ "channel": "none:1", "data": 1 });
    let answer = call(server.internal, "publish", &body);
    assert!(answer["result"].is_object(), "{answer}");
}

#[test]
fn unknown_fields_are_errors_unless_they_are_accepted() {
    let body = json!({
        "user": "ann", "channel": "chat:1", "presence": true, "recover_since": { "ofset": 1, "epoch": "e" },
    });
    let server = with("", "");
    let answer = call(server.internal, "subscribe", &body);
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("unknown field `presence`"), "{answer}");
    let answer = call(
        server.internal,
        "history",
        &json!({ "channel": "chat:1", "sinse": {} }),
    );
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("did you mean `since`?"), "{answer}");

    let server = with("", "unknown_fields = \"accept\"");
    let answer = call(server.internal, "subscribe", &body);
    assert!(answer["result"].is_object(), "{answer}");
    let commands =
        json!({ "commands": [{ "publish": { "channel": "chat:1", "data": 1, "x": 1 } }] });
    let answer = call(server.internal, "batch", &commands);
    assert!(answer["replies"][0]["publish"].is_object(), "{answer}");
}

#[test]
fn a_back_end_subscribes_with_all_that_centrifugo_knows() {
    on_all(|setup| {
        let server = start(setup);
        let (mut ann, _) = Client::connect(&server, "ann");
        let (mut watcher, _) = Client::connect(&server, "watcher");
        watcher.ask(json!({ "id": 2, "subscribe": { "channel": "chat:1" } }));
        let people = |channel: &str| {
            let answer = call(server.internal, "presence", &json!({ "channel": channel }));
            let clients = answer["result"]["presence"].as_object().cloned();
            let clients = clients.unwrap_or_default().into_iter();
            let mut all: Vec<_> = clients
                .map(|(_, one)| (one["user"].clone(), one["chan_info"].clone()))
                .collect();
            all.sort_by_key(|(user, _)| user.to_string());
            all
        };
        let subscribe = |more: Value| {
            let mut body = json!({ "user": "ann", "channel": "chat:1" });
            for (name, value) in more.as_object().expect("an object") {
                body[name] = value.clone();
            }
            call(server.internal, "subscribe", &body)
        };
        // No connection has this session id.
        let answer = subscribe(json!({ "session": "none" }));
        assert_eq!(answer, json!({ "result": {} }));
        let answer = subscribe(json!({ "b64info": "eyJhIjoxfQ==", "b64data": "AP8=" }));
        assert_eq!(answer, json!({ "result": {} }));
        let push = ann.next();
        assert_eq!(push["push"]["subscribe"]["data"], "AP8=", "{push}");
        let me = (json!("ann"), json!({ "a": 1 }));
        let other = (json!("watcher"), Value::Null);
        assert_eq!(people("chat:1"), [me, other]);
        let hidden = json!({
            "channel": "chat:9",
            "override": { "presence": { "value": false }, "join_leave": { "value": false } },
        });
        assert_eq!(subscribe(hidden), json!({ "result": {} }));
        let push = ann.next();
        assert_eq!(push["push"]["channel"], "chat:9", "{push}");
        assert_eq!(people("chat:9"), []);
        let answer = subscribe(json!({ "override": { "force_recovery": { "value": false } } }));
        assert_eq!(answer["error"]["code"], 107, "{answer}");

        // A refresh may change the public data.
        let body = json!({ "user": "ann", "info": { "name": "Ann" } });
        assert_eq!(
            call(server.internal, "refresh", &body),
            json!({ "result": {} })
        );
        assert_eq!(ann.next(), json!({ "push": { "refresh": {} } }));
        ann.ask(json!({ "id": 5, "subscribe": { "channel": "chat:2" } }));
        let answer = call(server.internal, "presence", &json!({ "channel": "chat:2" }));
        let clients = answer["result"]["presence"].as_object().expect("clients");
        let infos: Vec<_> = clients.values().map(|one| &one["conn_info"]).collect();
        assert_eq!(infos, [&json!({ "name": "Ann" })], "{answer}");

        // The `channels` call selects channels by a pattern.
        let channels = |pattern: &str| {
            let answer = call(server.internal, "channels", &json!({ "pattern": pattern }));
            let channels = answer["result"]["channels"].as_object().cloned();
            channels.map(|all| all.keys().cloned().collect::<Vec<_>>())
        };
        for (pattern, expected) in [
            ("{chat,open}:1", &["chat:1"][..]),
            ("chat:[1-8]", &["chat:1", "chat:2"]),
            ("chat:[!19]", &["chat:2"]),
            ("{#*,chat:2}", &["#ann", "#watcher", "chat:2"]),
        ] {
            let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(channels(pattern), Some(expected), "{pattern}");
        }
        assert_eq!(channels("chat:[1"), None);
    });
}
