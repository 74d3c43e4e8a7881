//! Tests of scripts that are tests themselves (cases, calls and results), and of test worlds in which a seed determines
//! all random choices.

mod support;

use std::sync::Arc;

use support::{Folder, limits};
use veche_script::{AppWorld, Effects, Ended, Now, Plain, ScriptApp, SourceCode, TestVm};
use veche_store::Store;

fn app() -> ScriptApp {
    ScriptApp {
        name: "test".into(),
        options: serde_json::Value::Null,
        has_files: false,
        databases: Arc::default(),
        limits: limits(),
        role: veche_script::AppRole::Clients,
    }
}

fn load(script: &str, seed: u64) -> Result<TestVm, String> {
    let folder = Folder::new();
    let path = folder.write("a_test.lua", script);
    let code = Arc::new(SourceCode::read(&path).map_err(|error| error.to_string())?);
    let world = AppWorld::seeded(Arc::new(Store::default()), seed);
    TestVm::load(&app(), &code, &world).map_err(|error| error.to_string())
}

/// Runs the only case of a script, with `world` answering its calls. Returns the result and what was printed.
fn run_with(
    body: &str,
    seed: u64,
    world: impl Fn(&Plain) -> Result<Plain, String>,
) -> (Option<Ended>, Vec<String>) {
    let script = format!(
        "local test, veche = require 'veche.test', require 'veche'\ntest.case('it', function()\n{body}\nend)"
    );
    let mut vm = load(&script, seed).expect("a script");
    let mut now = Now {
        mono_ms: 1000,
        wall_ms: 1_700_000_000_000,
    };
    vm.begin(0, now);
    let mut lines = Vec::new();
    for _ in 0..1000 {
        let mut effects = Effects::default();
        vm.take_effects(&mut effects);
        lines.extend(effects.list.iter().filter_map(|effect| match effect {
            veche_script::Effect::Log { text, .. } => Some(text.clone()),
            _ => None,
        }));
        for ask in vm.take_asks() {
            vm.answer(ask.token, world(&ask.request), now);
        }
        if vm.ended().is_some() {
            break;
        }
        now.mono_ms = now.mono_ms.max(vm.deadline_ms().min(now.mono_ms + 1000));
        vm.turn(now);
    }
    (vm.ended(), lines)
}

fn run(body: &str) -> Option<Ended> {
    run_with(body, 1, |_| Ok(Plain::Nil)).0
}

/// Returns the message of a failing case. The first line of the case's code is line 3.
fn failure(body: &str) -> String {
    match run(body) {
        Some(Ended::Failed { words, .. }) => words,
        other => panic!("{other:?}: {body}"),
    }
}

#[test]
fn cases_are_listed_with_their_lines() {
    let vm = load(
        "local test = require 'veche.test'
        test.case('one', function() end)

        for _, name in ipairs { 'two', 'three' } do
          test.case(name, function() end)
        end
        test.skip('four', function() end)",
        1,
    )
    .expect("a script");
    let cases: Vec<_> = vm
        .cases()
        .into_iter()
        .map(|case| (case.name, case.line, case.is_skipped))
        .collect();
    let expected = [
        ("one", 2, false),
        ("two", 5, false),
        ("three", 5, false),
        ("four", 7, true),
    ];
    assert_eq!(
        cases,
        expected.map(|(name, line, skipped)| (name.to_owned(), line, skipped))
    );
}

#[test]
fn loading_errors_are_reported_with_their_line() {
    for (script, words) in [
        ("local x = ", "a_test.lua:1:"),
        (
            "local t = require 'veche.test' t.case('x')",
            "a_test.lua:1: bad argument #2 to 'test.case': a function expected",
        ),
        (
            "local t = require 'veche.test' t.case('', print)",
            "bad argument #1 to 'test.case': a name expected",
        ),
        (
            "local t\nt = require 'veche.test' t.connect('/x')",
            "a_test.lua:2: test.connect: allowed only in a test.case",
        ),
        (
            "local t = require 'veche.test' t.before_each(1)",
            "bad argument #1 to 'test.before_each'",
        ),
    ] {
        let error = load(script, 1).err().expect("an error");
        assert!(error.contains(words), "{script}: {error}");
    }
}

#[test]
fn a_case_passes_or_fails() {
    assert_eq!(run(""), Some(Ended::Passed));
    assert_eq!(run("veche.sleep(3); test.equal(1, 1)"), Some(Ended::Passed));
    assert!(failure("\nerror('no')").starts_with("a_test.lua:4: no"));
    assert!(failure("error({ a = 1 })").contains("an error object of type table"));
    assert!(failure("local x = nil; x.y = 1").contains("attempt to index local 'x'"));
    let error = failure("while true do end");
    assert!(
        error.starts_with("a_test.lua:3: the code ran too long"),
        "{error}"
    );
}

#[test]
fn each_assertion_fails_with_its_line_and_both_values() {
    for (code, words) in [
        (
            "test.equal(1, 2)",
            "a_test.lua:3: test.equal: the values differ\n  - expected 2\n  + got      1",
        ),
        (
            "test.equal('1', 1, 'the count')",
            "a_test.lua:3: the count: test.equal: the values differ\n  - expected 1\n  + got      \"1\"",
        ),
        (
            "test.equal({ a = 1, b = { 'x', 'y' } }, { a = 1, b = { 'x', 'z' }, c = true })",
            "a_test.lua:3: test.equal: the values differ\n  - expected  + got\n    …\n      a = 1,\n      b = {\n        \"x\",\n  -     \"z\",\n  +     \"y\",\n      },\n  -   c = true,\n    }",
        ),
        (
            "test.equal({ id = 7, at = 'noon' }, { id = test.any 'string', at = test.like '^%d' })",
            "a_test.lua:3: test.equal: the values differ\n  - expected  + got\n    {\n  -   at = <a string like \"^%d\">,\n  -   id = <any string>,\n  +   at = \"noon\",\n  +   id = 7,\n    }",
        ),
        (
            "test.differ({ 1 }, { 1 })",
            "a_test.lua:3: test.differ: the values are equal\n  both     {\n    1,\n  }",
        ),
        (
            "test.ok(nil, 'a thing')",
            "a_test.lua:3: a thing: test.ok: the value is nil",
        ),
        (
            "test.match('tea', '^c')",
            "a_test.lua:3: test.match: the text does not match\n  - pattern  \"^c\"\n  + got      \"tea\"",
        ),
        (
            "test.fails(function() end)",
            "a_test.lua:3: test.fails: the function did not fail",
        ),
        (
            "test.fails(function() error('one', 0) end, 'two')",
            "a_test.lua:3: test.fails: the function failed with another error\n  - pattern  \"two\"\n  + got      \"one\"",
        ),
        ("test.fail('never here')", "a_test.lua:3: never here"),
        (
            "test.connect('chat')",
            "a_test.lua:3: bad argument #1 to 'test.connect': a path such as \"/chat?user=ann\" expected",
        ),
        (
            "test.connect('/chat', { haeders = {} })",
            "a_test.lua:3: bad argument #2 to 'test.connect': there is no option 'haeders'",
        ),
        (
            "test.request { path = '/x', headers = { a = {}, b = true } }",
            "a_test.lua:3: bad argument #1 to 'test.request': headers: a table with a string or a list of strings for each name expected",
        ),
        (
            "test.advance(-1)",
            "a_test.lua:3: bad argument #1 to 'test.advance': a number of seconds from 0 to 31536000 expected",
        ),
        (
            "test.publish('', 'x')",
            "a_test.lua:3: bad argument #1 to 'test.publish': the name of a channel expected",
        ),
        (
            "table.sort({ 2, 1 }, function() test.settle() end)",
            "a_test.lua:3: test.settle: allowed only in a test.case, and not in a callback",
        ),
        (
            "test.case('x', print)",
            "a_test.lua:3: test.case: allowed only while the file is loaded",
        ),
    ] {
        let error = failure(code);
        assert!(
            error.starts_with(words),
            "{code}:\n{error}\nexpected:\n{words}"
        );
    }
}

#[test]
fn assertions_that_hold_say_nothing() {
    let body = "
        test.equal({ 1, { a = 'x' } }, { 1, { a = 'x' } })
        test.equal({}, veche.json.decode('[]'))
        test.equal(0 / 0, 0 / 0)
        test.equal({ id = 7, name = 'x', extra = { 1 } }, { id = function(id) return id > 6 end, name = test.any(), extra = test.any 'table' })
        test.differ(1, '1')
        test.differ({ a = 1 }, {})
        test.ok(0)
        test.equal(test.match('a=12', '(%a)=(%d+)'), 'a')
        test.match(test.fails(function() local x; x() end, 'attempt to call'), 'local')
        test.fails(function() test.equal(1, 2) end, 'values differ')";
    assert_eq!(run(body), Some(Ended::Passed));
}

#[test]
fn requests_carry_plain_values_and_return_answers() {
    let world = |request: &Plain| match request.get("ask").text().as_str() {
        "connect" if request.get("target").text() == "/no" => Err("there is no listener".into()),
        "connect" => Ok(Plain::map([("client", Plain::Number(5.0))])),
        "send" => {
            assert_eq!(request.get("client").number(), Some(5.0));
            assert_eq!(request.get("data").bytes(), b"{\"a\":1,\"b\":2}");
            Ok(Plain::Nil)
        }
        "receive" => Ok(Plain::map([
            ("data", Plain::from("{\"n\":1}")),
            ("kind", Plain::from("text")),
        ])),
        other => panic!("{other}"),
    };
    let body = "
        local ann = test.connect('/chat')
        ann:send { b = 2, a = 1 }
        test.equal(ann:expect { n = 1 }, { n = 1 })
        test.equal(ann:expect('{\"n\":1}'), '{\"n\":1}')
        ann:expect(function(data, kind) return #data == 7 and kind == 'text' end)
        test.connect('/no')";
    let (ended, _) = run_with(body, 1, world);
    let Some(Ended::Failed { words, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(words, "a_test.lua:9: test.connect: there is no listener");
}

#[test]
fn a_seed_decides_all_chance() {
    let body = "
        local told = {}
        local function tell(...) for _, value in ipairs { ... } do told[#told + 1] = tostring(value) end end
        tell(veche.random.integer(1, 1000000), veche.random.number(), veche.hash and veche.uuid.v4(), veche.uuid.v7())
        tell(veche.base64.encode(veche.random.bytes(7)), math.random(1000000))
        tell(os.time(), os.clock(), os.date('!%Y-%m-%d'))
        local t = { 10, 20, 30 }
        for i = 1, 20 do t['key' .. i] = i end
        for key, value in pairs(t) do tell(key, value) end
        for i = 1, 10 do veche.spawn(function() veche.sleep(1); tell('woke', i) end) end
        veche.sleep(2)
        print(table.concat(told, ' '))";
    let lines = |seed| run_with(body, seed, |_| Ok(Plain::Nil)).1;
    assert_eq!(lines(3), lines(3));
    assert_ne!(lines(3), lines(4));
    let text = lines(3).concat();
    assert!(
        text.contains(" 1700000000 1 2023-11-14 1 10 2 20 3 30 "),
        "{text}"
    );
    for i in 1..=10 {
        assert!(text.contains(&format!(" woke {i}")), "{text}");
    }
}

#[test]
fn pairs_bears_what_happens_to_its_table() {
    let body = "
        local t = { 1, 2, 3, a = 1, b = 2, c = 3, d = 4 }
        local seen = 0
        for key in pairs(t) do
          seen = seen + 1
          t[key] = nil
          if key ~= 'a' then t.a = nil end
        end
        test.ok(seen == 6 or seen == 7)
        test.equal(next(t), nil)
        test.fails(function() pairs(nil) end, \"bad argument #1 to 'pairs'\")
        local objects = { [{}] = 1, [print] = 2, [true] = 3 }
        local count = 0
        for _ in pairs(objects) do count = count + 1 end
        test.equal(count, 3)
        test.equal(veche.json.encode { z = 1, a = { y = 2, b = 3 } }, '{\"a\":{\"b\":3,\"y\":2},\"z\":1}')";
    let ended = run(body);
    assert_eq!(ended, Some(Ended::Passed));
}
