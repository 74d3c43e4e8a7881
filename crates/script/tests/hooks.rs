//! Tests of the hooks that scripts provide for clients of Centrifugo's protocol: the arguments of the handlers, and the
//! decisions that follow from what they return or raise.

mod support;

use support::replies::hook_request;
use support::{Bench, load_error};
use veche_script::Effect;
use veche_script::hooks::{
    AppHookCaller, AppHookRequest, Grant, Hook, HookResponse, ServerSubscription,
};
use veche_types::{Payload, PayloadKind, PayloadRef};

fn payload(kind: PayloadKind, bytes: &[u8]) -> PayloadRef<'_> {
    PayloadRef { kind, bytes }
}

fn asked(hook: Hook) -> AppHookRequest<'static> {
    AppHookRequest {
        subject: match hook {
            Hook::Rpc => "m",
            Hook::Connect | Hook::Refresh | Hook::Message => "",
            Hook::Disconnect => "bye",
            _ => "chat:1",
        },
        code: 3001,
        data: Some(payload(PayloadKind::Json, br#"{"a":[1,null]}"#)),
        ..hook_request(hook)
    }
}

/// Creates a VM whose script has these handlers in `on`.
fn bench(handlers: &str) -> Bench {
    Bench::new(&format!(
        "local veche = require 'veche'
        local on = {{}}
        {handlers}
        return {{ centrifuge = on }}"
    ))
}

/// Returns the responses so far, with their numbers, and a description of all other effects.
fn responses(bench: &mut Bench) -> (Vec<(u64, HookResponse)>, Vec<String>) {
    let (mut responses, mut effects) = (Vec::new(), Vec::new());
    for (line, effect) in bench.effects() {
        match effect {
            Effect::Hook { number, response } => responses.push((number, response)),
            _ => effects.push(line),
        }
    }
    (responses, effects)
}

fn ask(bench: &mut Bench, asked: &AppHookRequest<'_>) -> (HookResponse, Vec<String>) {
    bench.vm.turn(bench.now);
    bench.vm.decide(7, asked, bench.now);
    let (mut responses, effects) = responses(bench);
    assert_eq!(responses.len(), 1, "{responses:?} {effects:?}");
    let (number, response) = responses.remove(0);
    assert_eq!(number, 7);
    (response, effects)
}

/// Runs a handler with this body; returns its response and the script's other effects.
fn decided(hook: Hook, body: &str) -> (HookResponse, Vec<String>) {
    let name = hook.name();
    let mut bench = bench(&format!("on.{name} = function(...) {body} end"));
    ask(&mut bench, &asked(hook))
}

fn granted(hook: Hook, body: &str) -> Grant {
    match decided(hook, body) {
        (HookResponse::Granted(granted), effects) if effects.is_empty() => *granted,
        other => panic!("{other:?} of {body}"),
    }
}

fn json(text: &str) -> Option<Payload> {
    Some(payload(PayloadKind::Json, text.as_bytes()).to_payload())
}

fn bytes(bytes: &[u8]) -> Option<Payload> {
    Some(payload(PayloadKind::Binary, bytes).to_payload())
}

#[test]
fn handlers_get_the_hook_request() {
    for (hook, arguments) in [
        (Hook::Connect, "nil,data"),
        (Hook::Refresh, "nil,nil"),
        (Hook::Subscribe, "chat:1,data"),
        (Hook::SubRefresh, "chat:1,nil"),
        (Hook::Publish, "chat:1,data"),
        (Hook::Rpc, "m,data"),
        (Hook::Message, "nil,data"),
        (Hook::Disconnect, "3001,bye"),
    ] {
        let body = "local client, one, two = ...
            if type(one) == 'table' then one, two = nil, one end
            local data = two == 'bye' and two or two and (two.a[1] == 1 and two.a[2] == veche.null and 'data')
            veche.log.info(tostring(one) .. ',' .. tostring(data), client.id, client.user)
            return {}";
        let (response, effects) = decided(hook, body);
        assert_eq!(
            response,
            HookResponse::Granted(Box::default()),
            "{effects:?}"
        );
        assert_eq!(effects, [format!("{arguments}\tc1\tann")], "{hook:?}");
    }
    let headers: [(Box<str>, Box<[u8]>); 3] = [
        ("cookie".into(), b"sid=s; a=\"b\"".as_slice().into()),
        ("x-list".into(), b"1".as_slice().into()),
        ("x-list".into(), b"2".as_slice().into()),
    ];
    let channels: [Box<str>; 1] = ["news".into()];
    let mut connect = asked(Hook::Connect);
    connect.caller = AppHookCaller {
        user: "",
        name: "js",
        version: "5",
        headers: &headers,
        meta: Some(br#"{"k":1}"#),
        ..connect.caller
    };
    connect.token = "t";
    connect.channels = &channels;
    connect.data = Some(payload(PayloadKind::Binary, b"\xff\x00"));
    let mut bench = bench(
        "function on.connect(c, data)
            local all = { c.id, c.user or 'nobody', c.transport, c.protocol, c.encoding, c.name, c.version, c.token,
                c.remote, c.cookies.sid, c.cookies.a, c.headers['x-list'], c.meta.k, c.channels[1], #data }
            veche.log.info(table.concat(all, ' '))
            return { data = data }
        end",
    );
    let (response, effects) = ask(&mut bench, &connect);
    assert_eq!(
        effects,
        ["c1 nobody websocket json binary js 5 t 127.0.0.1 s b 1, 2 1 news 2"]
    );
    // A request with binary data gets a response with binary data.
    let HookResponse::Granted(granted) = response else {
        panic!("{response:?}");
    };
    assert_eq!(granted.data, bytes(b"\xff\x00"));
}

#[test]
fn results_have_the_fields_of_the_back_end_s() {
    let all = granted(
        Hook::Connect,
        "return { user = 'ann', expire_at = 1900000000, info = { name = 'Ann' }, data = veche.null,
            channels = { 'news', 'chat:1' }, meta = { k = 1 },
            subs = { ['chat:2'] = { data = 'two', b64info = 'AP8=', expire_at = 7 }, ['chat:1'] = {} } }",
    );
    let given = |channel: &str| ServerSubscription {
        channel: channel.into(),
        ..ServerSubscription::default()
    };
    let expected = Grant {
        user: "ann".into(),
        expires_at_s: Some(1_900_000_000),
        info: json(r#"{"name":"Ann"}"#),
        data: json("null"),
        channels: vec![
            given("chat:1"),
            ServerSubscription {
                data: json("\"two\""),
                info: bytes(b"\x00\xff"),
                expires_at_s: Some(7),
                ..given("chat:2")
            },
            given("news"),
            given("chat:1"),
        ],
        meta: json(r#"{"k":1}"#),
        ..Grant::default()
    };
    assert_eq!(all, expected);
    let body = "return { user = 42, expire_at = 0, channels = {}, subs = {} }";
    let expected = Grant {
        user: "42".into(),
        ..Grant::default()
    };
    assert_eq!(granted(Hook::Connect, body), expected);
    let expected = Grant {
        is_expired: true,
        ..Grant::default()
    };
    for hook in [Hook::Refresh, Hook::SubRefresh] {
        assert_eq!(granted(hook, "return { expired = true }"), expected);
    }
    let expected = Grant {
        data: json("[1,\"x\",{}]"),
        skips_history: true,
        ..Grant::default()
    };
    let body = "return { data = { 1, 'x', {} }, skip_history = true }";
    assert_eq!(granted(Hook::Publish, body), expected);
    let expected = Grant {
        data: bytes(b"hi"),
        ..Grant::default()
    };
    assert_eq!(
        granted(Hook::Rpc, "return { b64data = veche.base64.encode 'hi' }"),
        expected
    );
    for body in ["", "return nil", "return {}"] {
        assert_eq!(granted(Hook::Message, body), Grant::default());
    }
}

#[test]
fn errors_and_disconnects_are_returned_or_raised() {
    let error = HookResponse::Error {
        code: 1000,
        message: "too many".into(),
        is_temporary: true,
    };
    let disconnect = HookResponse::Disconnect {
        code: 4501,
        reason: "banned".into(),
    };
    let said = "{ error = { code = 1000, message = 'too many', temporary = true } }";
    let out = "{ disconnect = { code = 4501, reason = 'banned' } }";
    for hook in Hook::ALL {
        for (said, expected) in [(said, &error), (out, &disconnect)] {
            for body in [
                format!("return {said}"),
                format!("error({said})"),
                format!("veche.sleep(0); (function() error({said}) end)()"),
            ] {
                let mut bench = bench(&format!("function on.{}() {body} end", hook.name()));
                bench.vm.decide(1, &asked(hook), bench.now);
                bench.pass_time();
                let (responses, effects) = responses(&mut bench);
                assert_eq!(responses, [(1, expected.clone())], "{hook:?} {body}");
                assert_eq!(effects, [""; 0], "{body}");
            }
        }
    }
    let bare = decided(Hook::Rpc, "return { error = { code = 1 } }").0;
    let expected = HookResponse::Error {
        code: 1,
        message: String::new(),
        is_temporary: false,
    };
    assert_eq!(bare, expected);
}

#[test]
fn errors_of_a_handler_are_logged_and_fail_the_command() {
    for (hook, body, why) in [
        (
            Hook::Rpc,
            "local t = nil return t.x",
            "app.lua:3: attempt to index local 't' (a nil value)",
        ),
        (Hook::Rpc, "error 'own words'", "app.lua:3: own words"),
        (
            Hook::Rpc,
            "error { code = 1 }",
            "an error object of type table",
        ),
        (
            Hook::Rpc,
            "error { error = 'no' }",
            "centrifuge.rpc: error: a table expected, found a string",
        ),
        (
            Hook::Rpc,
            "",
            "centrifuge.rpc returned nothing: a table expected",
        ),
        (
            Hook::Connect,
            "return true",
            "centrifuge.connect returned a boolean: a table expected",
        ),
        (
            Hook::Message,
            "return 7",
            "centrifuge.message returned a number: a table expected",
        ),
        (
            Hook::Rpc,
            "return { name = 'Ann' }",
            "centrifuge.rpc: unknown field \"name\" in a result: expected data, b64data",
        ),
        (
            Hook::Message,
            "return { data = 1 }",
            "centrifuge.message: unknown field \"data\" in a result: expected no fields",
        ),
        (
            Hook::Refresh,
            "return { user = 'ann' }",
            "unknown field \"user\"",
        ),
        (
            Hook::Connect,
            "return { 'ann' }",
            "unknown field \"[number]\"",
        ),
        (
            Hook::Connect,
            "return { user = {} }",
            "user: a string or a whole number expected, found a table",
        ),
        (
            Hook::Connect,
            "return { user = 1.5 }",
            "user: a string or a whole number expected, found 1.5",
        ),
        (
            Hook::Connect,
            "return { user = '\\255' }",
            "centrifuge.connect: user is not UTF-8",
        ),
        (
            Hook::Connect,
            "return { expire_at = 'soon' }",
            "expire_at: seconds since 1970 expected, found a string",
        ),
        (
            Hook::Connect,
            "return { channels = { 1 } }",
            "channels: names of channels expected, found 1",
        ),
        (
            Hook::Connect,
            "return { subs = { news = true } }",
            "subs: a table for each channel expected",
        ),
        (
            Hook::Connect,
            "return { subs = { news = { user = 1 } } }",
            "unknown field \"user\" in one of subs",
        ),
        (
            Hook::Connect,
            "local all = {} for i = 1, 1025 do all[i] = 'c' .. i end return { channels = all }",
            "centrifuge.connect: the result has more than 1024 channels",
        ),
        (
            Hook::Publish,
            "return { skip_history = 1 }",
            "skip_history: true or false expected, found 1",
        ),
        (
            Hook::Rpc,
            "return { data = print }",
            "centrifuge.rpc: data: a function can't be represented in JSON",
        ),
        (
            Hook::Rpc,
            "return { data = '\\255' }",
            "centrifuge.rpc: data: a string is not UTF-8",
        ),
        (
            Hook::Rpc,
            "return { b64data = '?' }",
            "centrifuge.rpc: b64data is not base64",
        ),
        (
            Hook::Rpc,
            "return { error = { code = 0 } }",
            "error.code: a whole number from 1 to 4294967295 expected, found 0",
        ),
        (
            Hook::Rpc,
            "return { error = { code = 1, mesage = '' } }",
            "unknown field \"mesage\" in error",
        ),
        (
            Hook::Rpc,
            "return { error = { code = 1 }, data = 1 }",
            "unknown field \"data\" in a result with \"error\"",
        ),
        (
            Hook::Rpc,
            "return { disconnect = { code = 1000 } }",
            "disconnect.code: a whole number from 3000 to 4999 expected, found 1000",
        ),
        (
            Hook::Rpc,
            "while true do end",
            "the code ran too long without waiting and was stopped",
        ),
    ] {
        let (response, effects) = decided(hook, body);
        assert_eq!(response, HookResponse::Failed, "{body}");
        assert_eq!(effects.len(), 1, "{effects:?}");
        assert!(effects[0].starts_with("Error: "), "{effects:?}");
        assert!(effects[0].contains(why), "{} for {body}", effects[0]);
    }
    // An error raised in a handler contains its location.
    let (_, effects) = decided(Hook::Rpc, "local t = nil return t.x");
    assert!(effects[0].contains("stack traceback:\n"), "{effects:?}");
}

#[test]
fn handlers_wait_and_each_hook_request_has_one_response() {
    let mut bench = bench(
        "function on.rpc(client, method)
            veche.sleep(tonumber(method))
            return { data = method }
        end",
    );
    for (number, method) in [(1, "3"), (2, "1"), (3, "2")] {
        let request = AppHookRequest {
            subject: method,
            ..asked(Hook::Rpc)
        };
        bench.vm.decide(number, &request, bench.now);
    }
    assert_eq!(responses(&mut bench).0, []);
    let data = |text: &str| {
        HookResponse::Granted(Box::new(Grant {
            data: json(text),
            ..Grant::default()
        }))
    };
    bench.advance(1000);
    assert_eq!(responses(&mut bench).0, [(2, data("\"1\""))]);
    // A handler that takes too long is abandoned; other handlers continue.
    bench.vm.fail_undecided(1, bench.now);
    bench.vm.fail_undecided(1, bench.now);
    let (all, effects) = responses(&mut bench);
    assert_eq!(all, [(1, HookResponse::Failed)]);
    assert!(
        effects[0].contains("longer than request_timeout"),
        "{effects:?}"
    );
    // The end of the VM fails pending requests.
    bench.vm.finish();
    assert_eq!(responses(&mut bench).0, [(3, HookResponse::Failed)]);
    bench.advance(5000);
    assert_eq!(responses(&mut bench), (vec![], vec![]));
}

#[test]
fn hook_requests_wait_for_start_and_abandoned_ones_never_run() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = { centrifuge = {} }
        function app.start() veche.sleep(1) veche.log.info 'started' end
        function app.centrifuge.rpc(client, method) veche.log.info(method) return {} end
        return app",
    );
    for (number, method) in [(1, "first"), (2, "second"), (3, "third")] {
        let request = AppHookRequest {
            subject: method,
            ..asked(Hook::Rpc)
        };
        bench.vm.decide(number, &request, bench.now);
    }
    bench.vm.fail_undecided(2, bench.now);
    assert_eq!(responses(&mut bench).0, [(2, HookResponse::Failed)]);
    bench.advance(1000);
    let (all, effects) = responses(&mut bench);
    let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    assert_eq!(
        (numbers, effects),
        (
            vec![1, 3],
            vec!["started".into(), "first".into(), "third".into()]
        )
    );
}

#[test]
fn methods_may_stand_in_a_table() {
    let mut bench =
        bench("on.rpc = { m = function(client, data) return { data = data.a } end, n = 7 }");
    let (response, _) = ask(&mut bench, &asked(Hook::Rpc));
    let HookResponse::Granted(granted) = response else {
        panic!("{response:?}");
    };
    assert_eq!(granted.data, json("[1,null]"));
    for method in ["n", "x", "__index"] {
        let request = AppHookRequest {
            subject: method,
            ..asked(Hook::Rpc)
        };
        let (response, effects) = ask(&mut bench, &request);
        let expected = HookResponse::Error {
            code: 104,
            message: "method not found".into(),
            is_temporary: false,
        };
        assert_eq!((response, effects.len()), (expected, 0), "{method}");
    }
    assert_eq!(bench.vm.hooks().collect::<Vec<_>>(), [Hook::Rpc]);
    // A hook without a handler fails.
    assert_eq!(
        ask(&mut bench, &asked(Hook::Publish)).0,
        HookResponse::Failed
    );
}

#[test]
fn invalid_handlers_are_reported() {
    for (script, why) in [
        (
            "return { centrifuge = 'x' }",
            "app.centrifuge is a string; a table of functions expected",
        ),
        (
            "return { centrifuge = { publish = {} } }",
            "app.centrifuge.publish is a table; a function expected",
        ),
        (
            "return { centrifuge = { rpc = 'x' } }",
            "app.centrifuge.rpc is a string; a function expected",
        ),
    ] {
        assert_eq!(load_error(script), why);
    }
    let mut bench = Bench::new("return { centrifuge = { conect = function() end } }");
    let effects = bench.effect_lines();
    assert_eq!(
        effects,
        [
            "Warn: app.centrifuge.conect is never called: the handlers are connect, refresh, subscribe, sub_refresh, publish, rpc, message, disconnect"
        ]
    );
}

#[test]
fn large_integers_of_a_client_keep_their_digits() {
    let mut bench = bench(
        "function on.rpc(client, method, data)
          local list = {}
          for index, value in ipairs(data) do list[index] = type(value) .. ' ' .. tostring(value) end
          print(table.concat(list, ','))
          return { data = data }
        end",
    );
    let text = br#"[7,-9007199254740993,18446744073709551615,18446744073709551616,123456789012345678901234567890,1.5,"[{"]"#;
    let asked = AppHookRequest {
        data: Some(payload(PayloadKind::Json, text)),
        ..asked(Hook::Rpc)
    };
    let (response, told) = ask(&mut bench, &asked);
    let HookResponse::Granted(granted) = response else {
        panic!("{response:?} {told:?}")
    };
    assert_eq!(
        told,
        [
            "number 7,string -9007199254740993,string 18446744073709551615,string 18446744073709551616,\
          string 123456789012345678901234567890,number 1.5,string [{"
        ]
    );
    let data = br#"[7,"-9007199254740993","18446744073709551615","18446744073709551616","123456789012345678901234567890",1.5,"[{"]"#;
    assert_eq!(
        granted.data,
        Some(payload(PayloadKind::Json, data).to_payload())
    );
}

#[test]
fn invalid_data_of_a_client_is_its_own_error() {
    let many = |count: usize| format!("[{}[]]", "[],".repeat(count - 2));
    let (most, more) = (many(4096), many(4097));
    let text = format!("\"{}\\\"{}\"", "[".repeat(5000), "{".repeat(5000));
    for (data, expected) in [
        ("[1", Some("invalid data")),
        ("{\"a\":}", Some("invalid data")),
        (most.as_str(), None),
        (more.as_str(), Some("too many arrays and objects")),
        (text.as_str(), None),
    ] {
        let mut bench = bench("function on.rpc() return {} end");
        let asked = AppHookRequest {
            data: Some(payload(PayloadKind::Json, data.as_bytes())),
            ..asked(Hook::Rpc)
        };
        let (response, told) = ask(&mut bench, &asked);
        assert_eq!(told, [""; 0]);
        match (response, expected) {
            (HookResponse::Granted(_), None) => {}
            (HookResponse::Error { code, message, .. }, Some(expected)) => {
                assert_eq!((code, message.as_str()), (107, expected));
            }
            other => panic!("{other:?} of {data:.50}"),
        }
    }
}
