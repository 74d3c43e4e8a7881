//! `veche.api`: scripts use the server API with the same names, results and guarantees as over HTTP.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::Http;
use crate::support::{Options, Server, Setup, Socket, call, on_all};

const ROUTES: &str = "
[[route]]
path = \"/push\"
handler = \"push\"
identity = \"query:user\"
channels = [\"*\"]

[[route]]
path = \"/lua\"
handler = \"lua\"
script = \"app.lua\"

[[namespace]]
name = \"kept\"
history_size = 10
presence = true
";

const APP: &str = r#"
local veche = require "veche"
local app = {}

-- Calls a method of `veche.api` with an object, or a function of `veche` with a channel, data and options.
function app.request(req)
  local asked = req.json
  if asked.methods then
    local names = {}
    for name in pairs(veche.api) do names[#names + 1] = name end
    table.sort(names)
    return names
  end
  local ok, result
  if asked.method then
    ok, result = pcall(veche.api[asked.method], asked.object)
  else
    ok, result = pcall(veche[asked.call], asked.to, asked.data, asked.options)
  end
  return ok and { result = result } or { error = result }
end

return app
"#;

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: ROUTES,
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// A client whose connection stays open, so that one worker handles all its requests.
struct Caller(Http);

impl Caller {
    fn new(server: &Server) -> Self {
        Self(Http::connect(server.public))
    }

    fn ask(&mut self, body: &Value) -> Value {
        let body = body.to_string();
        let answer = self.0.request("POST", "/lua", "", body.as_bytes());
        answer.expect("an answer").json()
    }

    fn api(&mut self, method: &str, object: &Value) -> Value {
        self.ask(&json!({ "method": method, "object": object }))
    }

    fn publish(&mut self, to: &str, data: &Value, options: &Value) -> Value {
        let asked = json!({ "call": "publish", "to": to, "data": data, "options": options });
        self.ask(&asked)
    }
}

#[test]
fn scripts_have_the_methods_that_back_ends_have() {
    on_all(|setup| {
        let server = start(setup);
        let names = Caller::new(&server).ask(&json!({ "methods": true }));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../frontends/src/backend/api.rs");
        let source = fs::read_to_string(source).expect("the source");
        let table = source.split("const NAMES:").nth(1).expect("the table");
        let table = table.split("];").next().expect("its end");
        let rows = table.split("(\"").skip(1);
        let mut methods: Vec<&str> = rows.filter_map(|row| row.split('"').next()).collect();
        methods.retain(|name| *name != "batch");
        methods.sort_unstable();
        assert_eq!(names, json!(methods));
        let mut caller = Caller::new(&server);
        for name in methods {
            let answer = caller.api(name, &json!({ "no_such_name": 1 }));
            let error = answer["error"].as_str().unwrap_or_default();
            let is_known = name == "info" || error.contains("unknown field `no_such_name`");
            assert!(is_known, "{name}: {answer}");
        }
    });
}

#[test]
fn a_publication_with_options_is_answered() {
    on_all(|setup| {
        let server = start(setup);
        let mut lua = Caller::new(&server);
        let options = json!({ "idempotency_key": "one", "tags": { "of": "Lua" } });
        let first = lua.publish("kept:1", &json!({ "a": 1 }), &options)["result"].take();
        let epoch = first["epoch"].as_str().expect("an epoch").to_owned();
        let expected = |offset: u64, taken: bool| json!({ "handed": 0, "offset": offset, "epoch": epoch, "taken": taken });
        assert_eq!(first, expected(1, true));
        let again = lua.publish("kept:1", &json!({ "a": 2 }), &options)["result"].take();
        assert_eq!(again, expected(1, false), "the key has been used");
        let versioned = json!({ "version": 7, "version_epoch": "v" });
        let newer = lua.publish("kept:1", &json!("text"), &versioned)["result"].take();
        assert_eq!(newer, expected(2, true));
        let stale = lua.publish("kept:1", &json!("text"), &versioned)["result"].take();
        assert_eq!(stale, expected(2, false), "the version is not newer");
        let binary = json!({ "kind": "binary" });
        let binary = lua.publish("kept:1", &json!("bytes"), &binary)["result"].take();
        assert_eq!(binary, expected(3, true));
        let passing = json!({ "skip_history": true });
        let passing = lua.publish("kept:1", &json!("gone"), &passing);
        assert_eq!(passing["result"], json!({ "handed": 0, "taken": true }));
        // The same call over HTTP gives the same result.
        let body = json!({ "channel": "kept:1", "data": 1, "idempotency_key": "one" });
        let answer = call(server.internal, "publish", &body);
        assert_eq!(answer["result"], expected(1, false));

        let history = json!({ "channel": "kept:1", "limit": -1 });
        let history = lua.api("history", &history)["result"].take();
        let kept: Vec<Value> = history["publications"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| json!([one["data"], one["base64"], one["tags"]]))
            .collect();
        assert_eq!(kept.len(), 3, "{history}");
        assert_eq!(kept[0], json!([{ "a": 1 }, null, { "of": "Lua" }]));
        assert_eq!(kept[1][0], "text");
        assert_eq!(kept[2][1], "Ynl0ZXM=");
        assert_eq!(
            lua.api("history_remove", &json!({ "channel": "kept:1" })),
            json!({ "result": {} })
        );
        let history = lua.api("history", &json!({ "channel": "kept:1", "limit": -1 }));
        assert_eq!(history["result"]["publications"], json!([]), "{history}");

        for (options, expected) in [
            (json!({ "tag": {} }), "there is no option 'tag'"),
            (json!({ "version": "7" }), "invalid type: string"),
            (
                json!({ "version": 7, "skip_history": true }),
                "can't be combined with",
            ),
        ] {
            let answer = lua.publish("kept:1", &json!(1), &options);
            let data = lua.publish("kept:1", &json!("x"), &options);
            assert!(answer["error"].as_str().is_some(), "{answer}");
            let error = data["error"].as_str().unwrap_or_default();
            assert!(error.contains(expected), "{data}");
        }
    });
}

/// A call returns when it is complete on all workers: later queries on any worker see its effect, as with the HTTP API.
#[test]
fn an_answer_means_that_all_workers_have_done_it() {
    on_all(|setup| {
        let server = start(setup);
        let mut callers: Vec<_> = (0..4).map(|_| Caller::new(&server)).collect();
        for n in 0..40 {
            let (user, channel) = (format!("ann{n}"), format!("room:{n}"));
            let mut ann = Socket::open(server.public, &format!("/push?user={user}"));
            let one = json!({ "user": user, "channel": channel });
            let at = |step: usize| (n + step + n / 4 % 3) % 4;
            let mut api = |step: usize, method: &str, object: &Value| {
                let answer = callers[at(step)].api(method, object);
                assert!(answer["error"].is_null(), "{method}: {answer}");
                answer["result"].clone()
            };
            assert_eq!(api(0, "subscribe", &one), json!({}));
            let message = |data: &str| json!({ "channel": channel, "data": data });
            assert_eq!(api(1, "publish", &message("one"))["handed"], 1);
            assert_eq!(ann.text(), "one");
            assert_eq!(
                api(2, "channels", &json!({ "pattern": channel }))["channels"],
                json!({ channel.as_str(): { "num_clients": 1 } })
            );
            let listed = api(3, "connections", &json!({ "channel": channel }));
            let listed = listed["connections"].as_object().expect("a list").clone();
            assert_eq!(listed.values().next().expect("one")["user"], json!(user));
            assert_eq!(api(0, "unsubscribe", &one), json!({}));
            assert_eq!(api(1, "publish", &message("secret"))["handed"], 0);
            assert_eq!(
                api(2, "push", &json!({ "user": user, "data": "two" }))["handed"],
                1
            );
            assert_eq!(ann.text(), "two");
            let (method, code) = [("disconnect", 3503), ("block_user", 3507)][n % 2];
            let ended = api(3, method, &json!({ "user": user }));
            assert_eq!(ended, json!({ "disconnected": 1 }));
            let status = api(0, "user_status", &json!({ "user": user }));
            assert_eq!(status["connections"], 0, "{status}");
            assert_eq!(status["blocked"].as_bool().unwrap_or(false), n % 2 == 1);
            assert_eq!(ann.closed(), code);
        }
        let each = json!({ "channels": ["a", "b"], "data": 1 });
        let answer = callers[0].api("broadcast", &each);
        let one = json!({ "result": { "handed": 0 } });
        assert_eq!(answer["result"]["responses"], json!([one, one]));
        assert_eq!(
            callers[0].api("info", &json!({}))["result"]["nodes"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
        let error = callers[0].api("presence", &json!({ "channel": "room:1" }));
        let words = error["error"].as_str().unwrap_or_default();
        assert!(words.contains("the channel has no presence"), "{error}");
    });
}
