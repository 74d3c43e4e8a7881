//! Runs the tests that are written in Lua: each file of `tests/lua` returns a table of functions, which run one after
//! the other in `start` of an application. A failure shows its file and line.

mod support;

use std::fs;
use std::path::Path;

use support::{Bench, Folder, limits};

/// 2023-11-14 22:13:20.125 UTC, the wall clock of all tests.
const WALL_MS: u64 = 1_700_000_000_125;

fn run(name: &str, source: &str) -> Vec<String> {
    let folder = Folder::new();
    folder.write("check.lua", include_str!("support/check.lua"));
    folder.write(&format!("{name}.lua"), source);
    let app = format!(
        "local veche = require 'veche'
        local app, names = {{}}, {{}}
        local tests = require '{name}'
        for name in pairs(tests) do names[#names + 1] = name end
        table.sort(names)
        function app.start()
          for _, name in ipairs(names) do
            veche.sleep(0.001)
            local ok, message = xpcall(tests[name], debug.traceback)
            print((ok and 'passed ' or 'FAILED ') .. name .. (ok and '' or ': ' .. tostring(message)))
          end
          print('done ' .. #names)
        end
        return app"
    );
    let mut bench = Bench::in_folder(folder, &app, limits());
    bench.now.wall_ms = WALL_MS;
    bench.pass_time();
    bench.effect_lines()
}

#[test]
fn tests_in_lua() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lua");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder of tests")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let mut problems = Vec::new();
    for path in files {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let source = fs::read_to_string(&path).expect("a readable file");
        let effects = run(&name, &source);
        let is_whole = effects.last().is_some_and(|line| {
            line.strip_prefix("done ").is_some_and(|count| {
                count != "0" && effects.len() == count.parse().unwrap_or(0) + 1
            })
        });
        let failed = effects
            .iter()
            .filter(|line| !line.starts_with("passed ") && !line.starts_with("done "));
        problems.extend(failed.map(|line| format!("tests/lua/{name}.lua: {line}")));
        if !is_whole {
            problems.push(format!(
                "tests/lua/{name}.lua: not all of it ran: {effects:?}"
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_failing_assertion_names_its_line() {
    let effects = run(
        "bad",
        "local check, t = require 'check', {}
        function t.one()
          check.equal(1, 2)
        end
        return t",
    );
    assert!(
        effects[0].starts_with("FAILED one: bad.lua:3: expected 2, not 1"),
        "{effects:?}"
    );
    assert_eq!(effects[1], "done 1");
}

/// Finds functions that a script can call but that the type definitions for editors do not contain.
#[test]
fn every_function_has_its_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("types");
    let types: String = fs::read_dir(folder)
        .expect("the folder of types")
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a file"))
        .collect();
    let effects = Bench::run(
        "local function tell(prefix, table)
          for name, value in pairs(table) do
            if type(value) == 'function' then print(prefix .. name) end
            if type(value) == 'table' and name ~= 'config' then tell(name .. '.', value) end
          end
        end
        tell('veche.', veche)",
    );
    assert!(effects.len() > 30, "{effects:?}");
    for name in effects {
        let declared = format!("\nfunction {name}(");
        assert!(types.contains(&declared), "types/ has no {name}");
    }
}

/// The code blocks of the guide form one script, which runs without errors.
#[test]
fn the_guide_of_tables_runs() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/tables.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let blocks = guide.split("```lua\n").skip(1);
    let blocks: Vec<&str> = blocks
        .map(|block| block.split("```").next().unwrap_or_default())
        .collect();
    assert!(
        blocks.len() >= 7,
        "the guide and this test have lost each other"
    );
    let source = format!(
        "local t = {{}}\nfunction t.guide()\n{}\nend\nreturn t",
        blocks.join("\n")
    );
    let effects = run("guide", &source);
    let last_two = &effects[effects.len() - 2..];
    assert_eq!(last_two, ["passed guide", "done 1"], "{effects:?}");
    let row = r#"{"id":1,"location":3,"mark":5,"user":7,"visited_at":1503695452}"#;
    for line in ["5", row, "insert\t11\t3"] {
        assert!(
            effects
                .iter()
                .any(|effect| effect == line || effect.replace(' ', "\t") == line),
            "{line}: {effects:?}"
        );
    }
}
