//! Tests of services, tasks and publications within a case of `veche test`.

use super::{CONFIG, Folder, case, failure};

#[test]
fn what_fails_in_a_task_or_a_timer_fails_the_case() {
    for body in [
        "veche.spawn(function() test.equal(1, 2) end)",
        "veche.timer.after(1, function() test.equal(1, 2) end) test.advance(2)",
        "veche.spawn(function() veche.sleep(1) test.equal(1, 2) end) test.advance(2) veche.log.info('on')",
    ] {
        let error = failure(body);
        assert!(
            error.starts_with("app_test.lua:4: test.equal: the values differ\n"),
            "{body}: {error}"
        );
    }
    let caught = "local task = veche.spawn(function() test.equal(1, 2) end)
        test.equal(pcall(task.join, task), false)
        veche.log.error('of the test itself')";
    let (code, out, _) = Folder::new(&case(caught)).run(&[]);
    assert_eq!(code, 0, "{out}");
}

#[test]
fn a_case_may_leave_services_out() {
    let cases = "
        local function ran() return veche.json.encode(test.request('/ran').json) end
        local function check(expected) test.advance(1) test.equal(ran(), expected) end
        test.case('all', function() check('{\"a\":1,\"b\":2}') end)
        test.case('none', function() check('{}') end, { services = false })
        test.case('one', function() check('{\"b\":2}') end, { services = { 'b' } })
        test.case('strange', function() end, { services = { 'c' } })";
    let folder = Folder::new(cases);
    let services = "
        [[route]]
        path = \"/ran\"
        handler = \"lua\"
        script = \"ran.lua\"
        [[service]]
        name = \"a\"
        script = \"a.lua\"
        [[service]]
        name = \"b\"
        script = \"b.lua\"
        instances = 2";
    folder.write("veche.toml", &format!("{CONFIG}{services}"));
    for name in ["a", "b"] {
        let run = format!(
            "local veche = require 'veche'
            return {{ run = function() veche.dict('ran'):incr('{name}') end }}"
        );
        folder.write(&format!("{name}.lua"), &run);
    }
    let ran = "local veche = require 'veche'
        return { request = function()
          local dict, ran = veche.dict('ran'), {}
          for _, name in ipairs(dict:keys()) do ran[name] = dict:get(name) end
          return ran
        end }";
    folder.write("ran.lua", ran);
    let (code, out, _) = folder.run(&[]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("3 passed, 1 failed"), "{out}");
    assert!(
        out.contains("there is no service \"c\" in the configuration"),
        "{out}"
    );
}

#[test]
fn publications_through_the_api_are_recorded() {
    let folder = Folder::new(&case(
        "test.request('/p')
        test.equal(test.published('news'), { '{\"a\":1}', '\\0' })
        test.equal(#test.published('#ann'), 1)",
    ));
    let app = "local veche = require 'veche'
        return { request = function()
          veche.api.publish { channel = 'news', data = { a = 1 } }
          local done = veche.publish('news', '\\0', { kind = 'binary' })
          veche.api.push { user = 'ann', data = 'x' }
          return { taken = done.taken }
        end }";
    folder.write("p.lua", app);
    let route = "[[route]]\npath = \"/p\"\nhandler = \"lua\"\nscript = \"p.lua\"\n";
    folder.write("veche.toml", &format!("{CONFIG}{route}"));
    let (code, out, _) = folder.run(&[]);
    assert_eq!(code, 0, "{out}");
}
