//! Tests of responses that a function of the script writes in parts, of server-sent events and of files; and of
//! handlers whose client has disconnected.

mod support;

use support::{ANN, Bench, request};
use veche_script::{Effect, Request, Token, WaitResult};

fn bench(handler: &str) -> Bench {
    Bench::new(&format!(
        "local veche = require 'veche'
        local app = {{}}
        function app.request(req) {handler} end
        return app"
    ))
}

fn ask(bench: &mut Bench, request: Request) -> Vec<String> {
    bench.vm.request(ANN, request, bench.now);
    bench.effect_lines()
}

fn effect_lines(handler: &str) -> Vec<String> {
    ask(&mut bench(handler), request("GET", "/x", ""))
}

fn token(effects: &[(String, Effect)]) -> Token {
    let token = effects.iter().find_map(|(_, effect)| match effect {
        Effect::Part { token, .. } => *token,
        Effect::Subscribe { token, .. } => Some(*token),
        _ => None,
    });
    token.unwrap_or_else(|| panic!("no wait: {effects:?}"))
}

#[test]
fn a_function_writes_the_body() {
    let handler = "return 201, { A = 'b' }, function(write) write 'one' write '' write 'two' end";
    let begin = "begin ann 201 [A: b; Content-Type: application/octet-stream]";
    let whole = [begin, "part ann one", "part ann two", "end ann"];
    assert_eq!(effect_lines(handler), whole);
    // No body is written in response to `HEAD`.
    let head = ask(&mut bench(handler), request("HEAD", "/x", ""));
    assert_eq!(head, [begin, "end ann"]);
    assert_eq!(
        effect_lines("return 204, function() error('called') end"),
        [
            "begin ann 204 [Content-Type: application/octet-stream]",
            "end ann"
        ]
    );
}

#[test]
fn what_can_be_read_of_a_request_can_be_until_the_end() {
    let handler = "return function(write)
        write(req.path) veche.sleep(1) write(req.method) later = nil
        veche.spawn(function() write('too late') end)
    end";
    let mut bench = bench(&handler.replace("later = nil", ""));
    ask(&mut bench, request("GET", "/x", ""));
    bench.advance(1000);
    bench.pass_time();
    let effects = bench.effect_lines();
    assert_eq!(effects[..2], ["part ann GET", "end ann"]);
    assert!(
        effects[2].starts_with("Debug: ") && effects[2].contains("the client is gone"),
        "{effects:?}"
    );
}

#[test]
fn a_handler_that_writes_much_waits_for_room() {
    let mut bench = bench(
        "return function(write)
            for i = 1, 40 do assert(write(('x'):rep(1000)) == true) end
            print 'written'
        end",
    );
    bench.vm.request(ANN, request("GET", "/x", ""), bench.now);
    let effects = bench.effects();
    // The handler writes up to slightly more than 32 KiB and then waits.
    assert_eq!(effects.len(), 1 + 33);
    bench.answer(token(&effects), WaitResult::Done);
    let lines = bench.effect_lines();
    assert_eq!(lines.len(), 7 + 2);
    assert_eq!(lines[7..], ["written", "end ann"]);
}

#[test]
fn an_error_aborts_a_begun_response() {
    let effects = effect_lines("return function(write) write 'x' error 'oops' end");
    assert!(
        effects[2].starts_with("Error: app.lua:3: oops"),
        "{effects:?}"
    );
    assert_eq!(effects[3], "break off ann");
    let effects = effect_lines("return function(write) write {} end");
    assert!(
        effects[1].contains("app.lua:3: bad argument #1 to 'write': a string expected"),
        "{effects:?}"
    );
    let effects = effect_lines("return function(write) ('x'):gsub('x', write) end");
    assert!(effects[1].contains("can't wait here"), "{effects:?}");
    // A value of another type as the body is an error.
    let effects = effect_lines("return 200, {}, 7");
    assert!(
        effects[0].contains("a file or a function that writes it, not a"),
        "{effects:?}"
    );
}

#[test]
fn a_client_that_leaves_ends_the_writing_handler() {
    for wait in [
        "veche.sleep(9)",
        "while true do write(('x'):rep(40000)) end",
    ] {
        let mut bench = bench(&format!(
            "return function(write)
                local ok, why = pcall(function() {wait} end)
                print(why) {wait}
            end"
        ));
        ask(&mut bench, request("GET", "/x", ""));
        bench.vm.gone(ANN, false, bench.now);
        let effects = bench.effect_lines();
        assert!(
            effects[0].ends_with("the client is gone"),
            "{wait}: {effects:?}"
        );
        bench.pass_time();
        assert!(
            !bench
                .effect_lines()
                .iter()
                .any(|line| line.starts_with("Error"))
        );
        assert_eq!(bench.vm.tasks(), 0, "{wait}");
    }
    // If the client disconnects, a handler that has not begun its response continues, because it may be in the
    // middle of other work.
    let mut bench = bench("veche.sleep(1) print 'done' return 'x'");
    ask(&mut bench, request("GET", "/x", ""));
    bench.vm.gone(ANN, false, bench.now);
    bench.pass_time();
    assert_eq!(bench.effect_lines(), ["done"]);
}

#[test]
fn a_stream_that_takes_too_long_is_ended() {
    let mut bench = bench("veche.sleep(99) return 'x'");
    ask(&mut bench, request("GET", "/x", ""));
    bench.vm.gone(ANN, true, bench.now);
    let effects = bench.effect_lines();
    assert_eq!(effects.len(), 1);
    assert!(
        effects[0].starts_with("Error: app.lua:3: the request took longer than request_timeout"),
        "{effects:?}"
    );
    assert_eq!(bench.vm.tasks(), 0);
    // If a request exceeds its time limit, the handler's calls to other servers are cancelled.
    let mut bench = self::bench("veche.resolve('example.org') return 'x'");
    ask(&mut bench, request("GET", "/x", ""));
    bench.vm.gone(ANN, true, bench.now);
    assert_eq!(bench.effect_lines()[0], "cancel call");
}

#[test]
fn events_are_written_as_browsers_read_them() {
    let said = effect_lines(
        "return req:events(function(stream)
            print(stream.last_id)
            stream:send 'hello'
            stream:send { data = 'a\\r\\nb\\rc\\n' }
            stream:send { data = { 1, 2 } }
            stream:send { retry = 3000 }
            stream:send { id = 7 }
            stream:send { event = 'tick' }
        end)",
    );
    assert!(
        said[0].starts_with("begin ann 200 [")
            && said[0].contains("Content-Type: text/event-stream"),
        "{said:?}"
    );
    let events: Vec<&str> = said[2..].iter().map(String::as_str).collect();
    assert_eq!(
        events,
        [
            "part ann data: hello\n\n",
            "part ann data: a\ndata: b\ndata: c\ndata: \n\n",
            "part ann data: [1,2]\n\n",
            "part ann retry: 3000\n\n",
            "part ann id: 7\n\n",
            "part ann event: tick\n\n",
            "end ann",
        ]
    );
    for (event, words) in [
        ("nil", "a string, or a table"),
        ("{}", "at least one field"),
        (
            "{ event = 'a\\nb' }",
            "event: a string without line breaks expected",
        ),
        (
            "{ id = 'a\\0' }",
            "id: a string without line breaks expected",
        ),
        (
            "{ data = true }",
            "data: a string, or a table for JSON, expected",
        ),
        (
            "{ retry = -1 }",
            "retry: a whole number of milliseconds from 0 to 2^31 expected",
        ),
        (
            "{ retry = '1' }",
            "retry: a whole number of milliseconds from 0 to 2^31 expected",
        ),
        ("{ 'x' }", "the fields are event, id, data and retry"),
    ] {
        let effects = effect_lines(&format!(
            "return req:events(function(stream) stream:send({event}) end)"
        ));
        assert!(
            effects[1].contains("app.lua:3: ") && effects[1].contains(words),
            "{event}: {effects:?}"
        );
        assert_eq!(effects[2], "break off ann");
    }
    assert!(effect_lines("return req:events(7)")[0].contains("a function expected"));
    assert!(effect_lines("return req.events()")[0].contains("a request expected"));
}

#[test]
fn events_beat_while_there_are_none_and_end_with_their_client() {
    let mut bench = bench(
        "return req:events(function(stream)
            stream:subscribe 'news'
            print(pcall(stream.wait, stream))
            stream:wait()
        end)",
    );
    let mut request = request("GET", "/x", "");
    request.header("Last-Event-ID", "7");
    bench.vm.request(ANN, request, bench.now);
    let effects = bench.effects();
    assert_eq!(effects[1].0, "subscribe ann news");
    bench.answer(token(&effects), WaitResult::Done);
    for _ in 0..3 {
        bench.advance(14_000);
        assert_eq!(bench.effect_lines(), [""; 0]);
        bench.advance(1_000);
        assert_eq!(bench.effect_lines(), ["part ann :\n\n"]);
    }
    bench.vm.gone(ANN, false, bench.now);
    let lines = bench.effect_lines();
    assert!(lines[0].ends_with("the client is gone"), "{lines:?}");
    bench.advance(90_000_000);
    bench.pass_time();
    bench.effect_lines();
    // The handler has caught the error and waits for events again, but no more heartbeats are sent to the
    // disconnected client.
    assert_eq!(bench.vm.tasks(), 1);
}

#[test]
fn files_are_named_below_the_folder() {
    assert_eq!(
        effect_lines("return 200, { A = 'b' }, veche.file 'a/b.txt'"),
        ["file ann 200 [(\"A\", \"b\")] a/b.txt"]
    );
    let effects = effect_lines(
        "return veche.file('a', { download = 'Größe \"x\".pdf', content_type = 'text/x' })",
    );
    assert_eq!(
        effects,
        [
            "file ann 200 [(\"Content-Disposition\", \"attachment; filename=\\\"Gr__e _x_.pdf\\\"; \
          filename*=UTF-8''Gr%C3%B6%C3%9Fe%20%22x%22%2Epdf\"), (\"Content-Type\", \"text/x\")] a"
        ]
    );
    for path in [
        "''",
        "'/etc/passwd'",
        "'../x'",
        "'a/../x'",
        "'a//b'",
        "'./a'",
        "'.env'",
        "'a/.git/b'",
        "'a\\\\b'",
        "'a\\0'",
        "'a/'",
        "'\\255'",
        "('x'):rep(2000)",
    ] {
        let effects = effect_lines(&format!("local file = veche.file({path}) return file"));
        assert!(
            effects[0].contains("app.lua:3: bad argument #1 to 'file'"),
            "{path}: {effects:?}"
        );
    }
    for options in [
        "1",
        "{ download = '' }",
        "{ download = 'a\\nb' }",
        "{ content_type = 1 }",
        "{ x = 1 }",
        "{ 'x' }",
    ] {
        let effects = effect_lines(&format!("return veche.file('a', {options})"));
        assert!(
            effects[0].contains("bad argument #2 to 'file'"),
            "{options}: {effects:?}"
        );
    }
    let without = effect_lines("-- without files\nlocal file = veche.file 'a' return file");
    assert!(
        without[0].contains("app.lua:4: veche.file: this app has no folder of files")
            && without[0].contains("files = \"FOLDER\""),
        "{without:?}"
    );
    // A file is an ordinary table for scripts, but a change of its path is an error.
    let changed = effect_lines("local file = veche.file 'a' file.path = '../b' return file");
    assert!(
        changed[0].contains("the script has changed the path in the result of veche.file"),
        "{changed:?}"
    );
}

/// Each VM has its own random numbers, which other workers, restarts and applications do not repeat.
#[test]
fn math_random_is_seeded_for_each_vm() {
    let numbers =
        || Bench::run("print(math.random(2 ^ 31), math.random(2 ^ 31), math.random(2 ^ 31))");
    assert_ne!(numbers(), numbers());
}
