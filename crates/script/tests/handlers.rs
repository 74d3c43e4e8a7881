//! Tests of handlers: their triggers, their order and their effects.

mod support;

use support::{ANN, BOB, Bench, Folder, limits, load_error, request};
use veche_script::{ConnectionId, Effect, HandlerName, HandlerProgress, MessageKind, WaitResult};

const ECHO: &str = "
local app = {}
function app.message(conn, data, kind) conn:send(data, kind) end
return app";

#[test]
fn an_echo() {
    let mut bench = Bench::new(ECHO);
    assert!(bench.vm.has(HandlerName::Message) && !bench.vm.has(HandlerName::Open));
    assert_eq!(bench.open(ANN), HandlerProgress::Done);
    assert_eq!(bench.text(ANN, "hi"), HandlerProgress::Done);
    bench
        .vm
        .message(ANN, MessageKind::Binary, b"\0\xff", bench.now);
    assert_eq!(
        bench.effect_lines(),
        ["send ann text hi", "send ann binary \0\u{fffd}"]
    );
    // Messages of a connection that was never opened are ignored, as are messages of a connection whose index has an
    // earlier generation.
    bench.text(BOB, "who?");
    let stale = ConnectionId {
        generation: 0,
        ..ANN
    };
    bench
        .vm
        .message(stale, MessageKind::Text, b"late", bench.now);
    assert_eq!(bench.effect_lines(), [""; 0]);
}

#[test]
fn events_of_a_connection_come_in_order_even_if_one_waits() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.open(conn) print('open'); veche.sleep(1); print('opened') end
        function app.message(conn, data) print('message ' .. data); veche.sleep(2); print('done') end
        function app.drain(conn) print('drain') end
        function app.close(conn, code, reason) print('close', code, reason, conn:send('x')) end
        return app",
    );
    assert_eq!(bench.open(ANN), HandlerProgress::Waits);
    assert_eq!(bench.text(ANN, "one"), HandlerProgress::Waits);
    assert_eq!(bench.open(BOB), HandlerProgress::Waits);
    assert_eq!(bench.effect_lines(), ["open", "open"]);
    bench.advance(999);
    assert_eq!(bench.effect_lines(), [""; 0]);
    bench.advance(1);
    assert_eq!(
        bench.effect_lines(),
        ["opened", "message one", "opened", "ready bob"]
    );
    assert_eq!(bench.text(ANN, "two"), HandlerProgress::Waits);
    bench.advance(2000);
    assert_eq!(bench.effect_lines(), ["done", "message two"]);
    bench.advance(2000);
    assert_eq!(bench.effect_lines(), ["done", "ready ann"]);
    bench.close(ANN);
    assert_eq!(bench.effect_lines(), ["close\t1001\tbye\tnil\tclosed"]);
    assert_eq!(bench.vm.tasks(), 0);
    // The index belongs to another connection now.
    assert_eq!(bench.text(ANN, "late"), HandlerProgress::Done);
    assert_eq!(bench.effect_lines(), [""; 0]);
}

#[test]
fn an_index_may_be_anothers_while_a_handler_waits() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.open(conn) conn.attributes.who = conn.id print('open', conn.id) end
        function app.message(conn, data)
          pcall(veche.sleep, 1)
          print('waited', conn.attributes.who)
        end
        function app.close(conn) veche.sleep(1) print('close', conn.attributes.who) end
        return app",
    );
    let next = ConnectionId {
        generation: 2,
        ..ANN
    };
    bench.open(ANN);
    bench.text(ANN, "x");
    bench.close(ANN);
    bench.open(next);
    bench.text(next, "x");
    bench.advance(1000);
    assert_eq!(
        bench.effect_lines(),
        [
            "open\t0.3.1",
            "waited\t0.3.1",
            "open\t0.3.2",
            "close\t0.3.1",
            "waited\t0.3.2",
            "ready Ok"
        ]
        .map(|line| line.replace("ready Ok", &format!("ready {next:?}")))
    );
    bench.close(next);
    bench.advance(1000);
    assert_eq!(bench.effect_lines(), ["close\t0.3.2"]);
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn nothing_runs_before_start_has_ended() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.start() print('start'); veche.sleep(1); print('started') end
        function app.open(conn) print('open') end
        function app.message(conn, data) print(data) end
        function app.request(req) return req.path end
        return app",
    );
    bench.open(ANN);
    bench.text(ANN, "one");
    bench.vm.request(BOB, request("GET", "/x", ""), bench.now);
    assert_eq!(bench.effect_lines(), ["start"]);
    bench.advance(1000);
    assert_eq!(
        bench.effect_lines(),
        [
            "started",
            "respond bob 200 [Content-Type: text/plain; charset=utf-8] /x",
            "open",
            "one",
            "ready ann"
        ]
    );
}

#[test]
fn a_close_before_the_end_of_start_is_delivered() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.start() veche.sleep(1) end
        function app.open(conn) print('open', conn.id) end
        function app.close(conn) print('close', conn.id) end
        return app",
    );
    bench.open(ANN);
    bench.close(ANN);
    // Another connection already uses the index of the closed one.
    let next = ConnectionId {
        generation: ANN.generation + 1,
        ..ANN
    };
    bench.open(next);
    assert!(bench.effect_lines().is_empty());
    bench.advance(1000);
    let mut effects = bench.effect_lines();
    effects.truncate(3);
    assert_eq!(effects, ["open\t0.3.1", "close\t0.3.1", "open\t0.3.2"]);
    bench.close(next);
    assert_eq!(bench.effect_lines(), ["close\t0.3.2"]);
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn what_a_connection_knows() {
    let mut bench = Bench::new(
        r#"local app = {}
        function app.open(conn)
          print(conn.id, conn.user, conn.path, conn.remote, conn.is_open, tostring(conn))
          print(conn.query.room, conn.query.empty, conn.query["a b"], conn.query.none)
          print(conn.headers["x-many"], conn.cookies.sid, conn.params.id)
          conn.attributes.nick = "Ann"
          conn.attributes.age = 7
          conn.attributes.ok = true
          conn.attributes.age = nil
        end
        function app.message(conn, data)
          print(conn.attributes.nick, conn.attributes.age, conn.attributes.ok)
          print(pcall(function() conn.attributes.bad = {} end))
          print(pcall(function() conn.nick = 1 end))
          print(pcall(function() return conn.usr end))
          print(pcall(function() conn.attributes.big = ("x"):rep(70000) end))
          print(pcall(function() for i = 1, 100 do conn.attributes["a" .. i] = i end end))
        end
        return app"#,
    );
    let mut opening = request("GET", "/room/7", "room=a%20b&empty=&a+b=c&room=second");
    opening.header("X-Many", "1");
    opening.header("x-many", "2");
    opening.header("Cookie", "sid=abc; other=1");
    opening.param("id", "7");
    opening.set_user("ann");
    bench.vm.opened(ANN, opening, bench.now);
    assert_eq!(
        bench.effect_lines(),
        [
            "0.3.1\tann\t/room/7\t127.0.0.1\ttrue\tconnection 0.3.1",
            "a b\t\tc\tnil",
            "1, 2\tabc\t7",
        ]
    );
    bench.text(ANN, "");
    let effects = bench.effect_lines();
    assert_eq!(effects[0], "Ann\tnil\ttrue");
    for (line, words) in effects[1..].iter().zip([
        "not a table",
        "use conn.attributes.nick",
        "no field 'usr'",
        "at most 65536 bytes",
        "at most 64 attributes",
    ]) {
        assert!(line.starts_with("false") && line.contains(words), "{line}");
    }
}

#[test]
fn sending_and_closing() {
    let mut bench = Bench::new(
        r#"local app, other = {}, nil
        function app.open(conn) if not other then other = conn end end
        function app.message(conn, data)
          print(other == conn, other:send("to other"))
          print(conn:close(4001, "enough"), conn:send("late"), conn:close())
        end
        return app"#,
    );
    bench.open(BOB);
    bench.open(ANN);
    bench.text(ANN, "x");
    assert_eq!(
        bench.effect_lines(),
        [
            "send bob text to other",
            "false\ttrue",
            "close ann 4001 enough",
            "true\tnil\tnil\tclosed"
        ]
    );
    bench.close(BOB);
    bench.open(ANN);
    bench.text(ANN, "x");
    assert_eq!(bench.effect_lines()[0], "false\tnil\tclosed");
}

#[test]
fn subscribing_waits_for_the_home() {
    let mut bench = Bench::new(
        r#"local app = {}
        function app.open(conn)
          print(conn:subscribe("room:7"))
          print(pcall(conn.subscribe, conn, "room:8"))
          conn:unsubscribe("room:7")
        end
        return app"#,
    );
    assert_eq!(bench.open(ANN), HandlerProgress::Waits);
    let effects = bench.effects();
    assert_eq!(effects[0].0, "subscribe ann room:7");
    let Effect::Subscribe { token, .. } = effects[0].1 else {
        panic!("{effects:?}")
    };
    bench.answer(token, WaitResult::Done);
    let effects = bench.effects();
    assert_eq!(
        (&*effects[0].0, &*effects[1].0),
        ("true", "subscribe ann room:8")
    );
    let Effect::Subscribe { token, .. } = effects[1].1 else {
        panic!("{effects:?}")
    };
    bench.answer(token, WaitResult::Failed("too many".into()));
    assert_eq!(
        bench.effect_lines(),
        ["false\ttoo many", "unsubscribe ann room:7", "ready ann"]
    );
    // No handler waits for the answer any more.
    bench.answer(token, WaitResult::Done);
    assert_eq!(bench.effect_lines(), [""; 0]);
}

#[test]
fn errors_are_passed_to_the_script() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        local function tell(err, context)
          print(err, context.handler, context.app, context.worker, context.user, context.method, context.path,
            context.traceback:find('stack traceback', 1, true) ~= nil)
        end
        function app.error(err, context)
          tell(err, context)
          if err:find('again') then error('again') end
        end
        function app.message(conn, data)
          if data == 'task' then veche.spawn(error, 'of a task') return end
          error(data)
        end
        return app",
    );
    bench.open(ANN);
    bench.effect_lines();
    for (data, expected) in [
        (
            "bad",
            "app.lua:13: bad\tconnection\ttest\t0\tnil\tGET\t/ws\ttrue",
        ),
        ("task", "of a task\ttask\ttest\t0\tnil\tGET\t/ws"),
    ] {
        bench.open(ANN);
        bench.effect_lines();
        bench.text(ANN, data);
        let effects = bench.effect_lines();
        let found = effects.iter().any(|line| line.starts_with(expected));
        assert!(found, "{data}: {effects:?}");
    }
    bench.open(ANN);
    bench.effect_lines();
    bench.text(ANN, "again");
    let effects = bench.effect_lines().join("\n");
    assert!(
        effects.contains("Error: app.error has failed: app.lua:9: again"),
        "{effects}"
    );
    assert_eq!(
        effects.matches("app.error has failed").count(),
        1,
        "{effects}"
    );
}

#[test]
fn publishing() {
    let effects = Bench::run(
        r##"veche.publish("news", "hello")
        veche.push("ann", '{"a":1}')
        veche.publish("raw", "\255", "binary")
        veche.publish("news", { 1, { b = veche.null } })
        veche.publish("news", { a = 1 }, "text")
        print(pcall(veche.publish, "raw", "\255"))
        print(pcall(veche.publish, "", "x"))
        print(pcall(veche.publish, "a\nb", "x"))
        print(pcall(veche.publish, "x", {}, "binary"))
        print(pcall(veche.publish, "x", "y", true))
        print(pcall(veche.publish, "x", "y", "text", 1))
        print(pcall(veche.publish, "x", "y", { tag = {} }))
        print(pcall(veche.publish, "x", {}, { kind = "binary" }))
        print(pcall(veche.publish, "#ann", "y", { delta = true }))
        print(pcall(veche.api.publish, { channel = "#ann", data = "y" }))
        print(pcall(veche.api.broadcast, { channels = { "a", "#ann" }, data = "y" }))
        print(pcall(veche.api.publish, "news", "y"))
        print(pcall(function() veche.api.publsh({}) end))
        print(pcall(veche.push, nil, "x"))
        print(pcall(veche.publish, "#ann", "x"))
        print(pcall(veche.push, "", "x"))"##,
    );
    assert_eq!(effects[0], "publish news text hello");
    assert_eq!(effects[1], "publish #ann text {\"a\":1}");
    assert_eq!(effects[2], "publish raw binary \u{fffd}");
    assert_eq!(effects[3], r#"publish news text [1,{"b":null}]"#);
    assert_eq!(effects[4], r#"publish news text {"a":1}"#);
    for (line, words) in effects[5..].iter().zip([
        "not UTF-8",
        "channel name",
        "channel name",
        "#2 to 'publish': a table can only be published as text (JSON)",
        "#3 to 'publish': \"text\", \"binary\" or a table of options expected",
        "#4 to 'publish': no further argument expected",
        "#3 to 'publish': there is no option 'tag'",
        "#2 to 'publish': a table can only be published as text (JSON)",
        "personal channels",
        "personal channels",
        "personal channels",
        "#2 to 'api.publish': expected a table as the only argument",
        "there is no method 'publsh' in veche.api",
        "#1 to 'push': a string expected",
        "personal channels",
        "#1 to 'push'",
    ]) {
        assert!(line.starts_with("false") && line.contains(words), "{line}");
    }
    assert_eq!(effects.len(), 21);
}

#[test]
fn requests_and_their_answers() {
    let check = |handler: &str, expected: &str| {
        let mut bench = Bench::new(&format!(
            "local veche = require 'veche'
            return {{ request = function(req) {handler} end }}"
        ));
        let mut req = request("POST", "/x/7", "q=1");
        req.body = br#"{"a":[1,2]}"#.to_vec();
        req.param("id", "7");
        bench.vm.request(ANN, req, bench.now);
        bench.pass_time();
        let effects = bench.effect_lines();
        let last = effects.last().expect("an answer");
        assert!(last.contains(expected), "{handler}: {effects:?}");
    };
    check(
        "return 'hello'",
        "respond ann 200 [Content-Type: text/plain; charset=utf-8] hello",
    );
    check(
        "return 201, 'made'",
        "respond ann 201 [Content-Type: text/plain; charset=utf-8] made",
    );
    check("return 204", "respond ann 204 [] ");
    check(
        "return {ok = true}",
        r#"respond ann 200 [Content-Type: application/json] {"ok":true}"#,
    );
    check(
        "return 200, {['content-type'] = 'text/html'}, '<p>'",
        "respond ann 200 [content-type: text/html] <p>",
    );
    check(
        "return 200, {['Set-Cookie'] = {'a=1', 'b=2'}}, ''",
        "[Set-Cookie: a=1; Set-Cookie: b=2; Content-Type",
    );
    check(
        "return req.method .. req.path .. req.query.q .. req.params.id .. req.json.a[2] .. #req.body",
        "POST/x/717211",
    );
    check("veche.sleep(5) return 'late'", "late");
    check("", "respond ann 500");
    check(
        "error('oh')",
        "respond ann 500 [Content-Type: text/plain; charset=utf-8] internal error",
    );
    check("return 99", "respond ann 500");
    check("return 200, 5, 'x'", "respond ann 500");
    check("return true", "respond ann 500");
    check(
        "local r = req; veche.spawn(function() veche.sleep(1); print(pcall(function() return r.body end)) end) return 'x'",
        "the request has ended",
    );
}

#[test]
fn handshakes() {
    let check = |handler: &str, expected: &str| {
        let mut bench = Bench::new(&format!(
            "local veche = require 'veche'
            return {{ handshake = function(req) {handler} end }}"
        ));
        bench
            .vm
            .handshake(ANN, request("GET", "/x", "token=7"), bench.now);
        bench.pass_time();
        let effects = bench.effect_lines();
        let last = effects.last().expect("a decision");
        assert!(last.contains(expected), "{handler}: {effects:?}");
    };
    check("", "accept ann None None");
    check("return true", "accept ann None None");
    check(
        "return {user = 'u' .. req.query.token, protocol = 'chat'}",
        "accept ann Some(\"u7\") Some(\"chat\")",
    );
    check("return false", "refuse ann 403");
    check("veche.sleep(1) return 401, 'who?'", "refuse ann 401 who?");
    check("return 200, 'x'", "refuse ann 500");
    check("error('x')", "refuse ann 500");
}

#[test]
fn scripts_that_do_not_load() {
    for (script, words) in [
        ("return 5", "returns integer"),
        ("local x = ", "app.lua:1"),
        ("error('at load')", "at load"),
        (
            "require 'veche'.sleep(1) return {}",
            "can't wait while the script is loaded",
        ),
        ("require 'nothing' return {}", "module 'nothing' not found"),
        ("require '../x' return {}", "not a module name"),
        ("while true do end", "ran too long"),
        ("return load(string.char(27) .. 'LJ')()", ""),
    ] {
        let error = load_error(script);
        assert!(error.contains(words), "{script}: {error}");
    }
}

#[test]
fn modules_are_loaded_once_and_cycles_are_reported() {
    let folder = Folder::new();
    folder.write("lib/a.lua", "print('a') return { n = 1 }");
    folder.write("b/init.lua", "return 'b'");
    folder.write("c.lua", "return require 'd'");
    folder.write("d.lua", "return require 'c'");
    let mut bench = Bench::in_folder(
        folder,
        "local a, b = require 'lib.a', require 'b'
        print(a == require 'lib.a', b, select(2, pcall(require, 'c')))
        return {}",
        limits(),
    );
    let effects = bench.effect_lines();
    assert_eq!(effects[0], "a");
    assert!(
        effects[1].starts_with("true\tb\t") && effects[1].contains("c → d → c"),
        "{effects:?}"
    );
}

#[test]
fn a_misspelt_handler_name_is_reported() {
    let mut bench = Bench::new("return { mesage = function() end }");
    assert!(bench.effect_lines()[0].contains("app.mesage is never called"));
}

#[test]
fn the_config_and_json() {
    let effects = Bench::run(
        r#"local json = veche.json
        print(veche.config.greeting, veche.config.list[2], veche.config.nothing == json.null)
        print(json.encode({1, 2, {a = "x\n"}}), json.encode({}), json.encode(json.array{}), json.encode("é"))
        local back = json.decode('{"a":[],"b":null,"c":1.5,"d":"\\u00e9"}')
        print(json.encode(back.a), back.b == json.null, back.c, back.d)
        local t = {} t.t = t
        for _, bad in ipairs { t, {1, 2, x = 3}, {[1] = 1, [3] = 3, [2] = nil}, 0/0, "\255", print, {[true] = 1} } do
          print(pcall(json.encode, bad))
        end
        for _, bad in ipairs { "", "{", "[1,]", ("["):rep(1000), "nul" } do print(pcall(json.decode, bad)) end"#,
    );
    assert_eq!(effects[0], "hello\t2\ttrue");
    assert_eq!(effects[1], "[1,2,{\"a\":\"x\\n\"}]\t{}\t[]\t\"é\"");
    assert_eq!(effects[2], "[]\ttrue\t1.5\té");
    assert!(
        effects[3..].iter().all(|line| line.starts_with("false")),
        "{effects:#?}"
    );
    assert_eq!(effects.len(), 3 + 7 + 5);
}
