//! Compares Veche's string functions with LuaJIT's own, in two VMs.

use mlua::{Function, Table};

use super::*;

/// Returns a VM with LuaJIT's string functions in `native` and Veche's in `ours`.
fn both(limits: Limits) -> Lua {
    let lua = Lua::new();
    let keep =
        "local copy = {} for name, value in pairs(string) do copy[name] = value end return copy";
    let native: Table = lua.load(keep).eval().unwrap();
    replace(&lua, limits).unwrap();
    let ours: Table = lua.load(keep).eval().unwrap();
    lua.globals().set("native", native).unwrap();
    lua.globals().set("ours", ours).unwrap();
    lua
}

/// Returns limits that allow at most `steps_max` steps in Veche's string functions.
fn steps(steps_max: u64) -> Limits {
    Limits {
        steps_max,
        ..Limits::default()
    }
}

/// Returns limits with which Veche's string functions match every pattern themselves and never call
/// LuaJIT's functions.
fn all_counted() -> Limits {
    Limits {
        native_steps_max: 0,
        ..Limits::default()
    }
}

/// `compare(s, p, init, replacement, count_max)` returns the name of the first function whose
/// results differ, with both results; nothing if all are equal; "costly" if Veche's function
/// exceeded its limit.
const COMPARE: &str = include_str!("compare.lua");

/// Random patterns, including malformed ones, with random subjects.
struct Cases {
    rng: fastrand::Rng,
}

impl Cases {
    fn pieces(&mut self, pieces: &[&[u8]], len_max: usize) -> Vec<u8> {
        (0..self.rng.usize(..=len_max))
            .flat_map(|_| pieces[self.rng.usize(..pieces.len())])
            .copied()
            .collect()
    }

    fn subject(&mut self) -> Vec<u8> {
        const WILD: [&[u8]; 16] = [
            b"a", b"b", b"ab", b"c", b"A", b"1", b"2", b" ", b"(", b")", b"%", b"-", b"]", b"^",
            b"\0", b"\xe9",
        ];
        match self.rng.u8(..3) {
            0 => self.pieces(&[b"a", b"b"], 12),
            1 => self.pieces(&[b"a", b"(", b")", b"1"], 12),
            _ => self.pieces(&WILD, 12),
        }
    }

    fn pattern(&mut self) -> Vec<u8> {
        const SINGLES: [&[u8]; 30] = [
            b"a", b"b", b"1", b".", b"%a", b"%d", b"%s", b"%w", b"%W", b"%p", b"%c", b"%x", b"%z",
            b"%Z", b"%u", b"%l", b"%g", b"%%", b"[ab]", b"[^a]", b"[a-c]", b"[%d]", b"[^%s1]",
            b"[]a]", b"[a%]]", b"[a-]", b"[%a-z]", b"%(", b"\xe9", b"[a-%%]",
        ];
        const QUANTIFIERS: [&[u8]; 8] = [b"", b"", b"", b"*", b"+", b"-", b"?", b"*"];
        const OTHERS: [&[u8]; 17] = [
            b"(", b")", b"(", b")", b"()", b"(a)", b"(.)", b"(.-)", b"%1", b"%2", b"%b()", b"%bab",
            b"%f[a]", b"%f[%W]", b"%f[%z]", b"$", b"^",
        ];
        const SPECIALS: [&[u8]; 24] = [
            b"[", b"]", b"^", b"-", b"%", b"a", b"b", b"(", b")", b"{", b"$", b".", b"*", b"+",
            b"?", b"1", b"0", b"f", b"\0", b"%", b"[", b"]", b"%b", b"%f",
        ];
        let mut pattern = Vec::new();
        if self.rng.u8(..5) == 0 {
            pattern.push(b'^');
        }
        match self.rng.u8(..4) {
            0 => pattern.extend(self.pieces(&SPECIALS, 7)),
            _ => {
                for _ in 0..self.rng.usize(..6) {
                    if self.rng.u8(..3) == 0 {
                        pattern.extend(OTHERS[self.rng.usize(..OTHERS.len())]);
                    } else {
                        pattern.extend(SINGLES[self.rng.usize(..SINGLES.len())]);
                        pattern.extend(QUANTIFIERS[self.rng.usize(..QUANTIFIERS.len())]);
                    }
                }
            }
        }
        if self.rng.u8(..5) == 0 {
            pattern.push(b'$');
        }
        pattern
    }

    fn replacement(&mut self) -> Vec<u8> {
        self.pieces(&[b"x", b"%0", b"%1", b"%2", b"%%", b"%", b"%a", b"\0"], 3)
    }
}

/// Compares random cases. The environment variables `PATTERN_CASES` and `PATTERN_SEED` set their number and their seed.
#[test]
fn does_as_luajit_does() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let cases: u64 = number("PATTERN_CASES").unwrap_or(50_000);
    let seed: u64 = number("PATTERN_SEED").unwrap_or(1);

    let lua = both(Limits {
        steps_max: 20_000,
        ..all_counted()
    });
    let compare: Function = lua.load(COMPARE).set_name("=compare").eval().unwrap();
    let mut generator = Cases {
        rng: fastrand::Rng::with_seed(seed),
    };
    let mut costly = 0;
    for case in 0..cases {
        let pattern = generator.pattern();
        let mut subject = generator.subject();
        if generator.rng.u8(..4) == 0 && !subject.is_empty() {
            // Some subjects are made longer, if LuaJIT can process the longer ones quickly.
            let harmless = Pattern::new(&pattern, Caret::IsPlain).harmless_subject_bytes(1 << 18);
            let bytes = harmless.unwrap_or(0).min(generator.rng.usize(..200));
            subject = subject.repeat((bytes / subject.len()).max(1));
        }
        let replacement = generator.replacement();
        let init = (generator.rng.u8(..4) == 0).then(|| generator.rng.i32(-14..15));
        let count_max = (generator.rng.u8(..4) == 0).then(|| generator.rng.i32(-1..4));
        let difference: Option<LuaString> = compare
            .call((
                lua.create_string(&subject).unwrap(),
                lua.create_string(&pattern).unwrap(),
                init,
                lua.create_string(&replacement).unwrap(),
                count_max,
            ))
            .unwrap();
        match difference {
            Some(text) if text == "costly" => costly += 1,
            Some(text) => panic!(
                "case {case} of seed {seed}: {:?} on {:?} from {init:?} by {:?}, {count_max:?} times: {}",
                pattern.escape_ascii().to_string(),
                subject.escape_ascii().to_string(),
                replacement.escape_ascii().to_string(),
                text.display()
            ),
            None => {}
        }
    }
    assert!(costly < cases / 1000, "{costly} of {cases} were given up");
}

/// Expressions whose results scripts could see, in particular wrong argument types and error positions.
const SCRIPTS: &str = include_str!("expressions.txt");

#[test]
fn scripts_see_no_difference() {
    // Both VMs run the same text, so that positions in errors are the same.
    let run = r##"
local function pack(...)
  local texts = {}
  for at = 1, select("#", ...) do
    local value = select(at, ...)
    texts[at] = type(value) .. ":" .. (type(value):find("tion$") and "" or tostring(value):gsub("^table: .*", ""))
  end
  return table.concat(texts, ", ")
end
return function(script)
  return pack(pcall(assert(loadstring(script, "=script"))))
end
"##;
    let native = Lua::new();
    let native: Function = native.load(run).eval().unwrap();
    for limits in [all_counted(), Limits::default()] {
        let lua = Lua::new();
        replace(&lua, limits).unwrap();
        let ours: Function = lua.load(run).eval().unwrap();
        for script in SCRIPTS.lines().filter(|line| !line.is_empty()) {
            // `plain` is not a tail call, and `tail` is one. An error in a tail call has the caller's position.
            let plain = format!("local _ = 1\nlocal t = {{ {script} }} return unpack(t, 1, 9)");
            let tail = format!("\nreturn {script}");
            for script in [plain, tail] {
                let expected: LuaString = native.call(&*script).unwrap();
                // In the second round the pattern's bound comes from the cache.
                for _ in 0..2 {
                    let seen: LuaString = ours.call(&*script).unwrap();
                    assert_eq!(
                        seen.display().to_string(),
                        expected.display().to_string(),
                        "{script}"
                    );
                }
            }
        }
    }
}

/// Veche's `gsub` calls callbacks from the shim in Lua, whereas LuaJIT's `gsub` calls them from C. So the position in
/// errors of level 2, and in errors of C functions used as callbacks, is a line of the shim.
#[test]
fn errors_of_callbacks_name_the_shim() {
    let lua = Lua::new();
    replace(&lua, all_counted()).unwrap();
    for (script, text) in [
        (
            r#"("a"):gsub(".", function() error("oops", 2) end)"#,
            "oops",
        ),
        (
            r#"assert(coroutine.resume(coroutine.create(function() return ("a"):gsub(".", coroutine.yield) end)))"#,
            "attempt to yield across C-call boundary",
        ),
    ] {
        let error = error_of(&lua, script);
        assert!(
            error.contains("string:") && error.ends_with(text),
            "{error}"
        );
    }
}

/// Returns the error as the script sees it.
fn error_of(lua: &Lua, script: &str) -> String {
    let run = format!(
        "local ok, failure = pcall(function()\nlocal _ = {script} end) assert(not ok) return failure"
    );
    let failure: Value = lua.load(run).set_name("=script").eval().unwrap();
    match failure {
        Value::String(text) => text.display().to_string(),
        other => panic!("{script} raised {other:?}"),
    }
}

#[test]
fn costly_patterns_are_errors_of_the_script() {
    let lua = Lua::new();
    replace(&lua, steps(100_000)).unwrap();
    let text = "script:2: pattern too costly: more than 100000 steps (the subject has 3000 bytes)";
    for script in [
        r#"("a"):rep(3000):find(("a*"):rep(20) .. "b")"#,
        r#"("a"):rep(3000):match(".-.-.-.-b")"#,
        r#"("a"):rep(3000):gsub(".-.-.-.-b", "")"#,
        r#"("a"):rep(3000):gsub(".-.-.-.-b", {})"#,
        r#"("a"):rep(3000):gsub(".-.-.-.-b", print)"#,
        r#"("a"):rep(3000):gmatch(".-.-.-.-b")()"#,
        r#"("("):rep(3000):match("%b()")"#,
        r#"("a"):rep(3000):match("(.*)%1%1%1b")"#,
    ] {
        assert_eq!(error_of(&lua, script), text, "{script}");
    }
    // In `gmatch` a leading `^` is no anchor, so the pattern is tried at every position and is too costly.
    let error = error_of(&lua, r#"("^"):rep(256):gmatch("^.*.*%d")()"#);
    assert!(error.contains("pattern too costly"), "{error}");
}

#[test]
fn large_results_are_errors_of_the_script() {
    let lua = Lua::new();
    lua.set_memory_limit(64 << 20).unwrap();
    replace(&lua, steps(10_000_000)).unwrap();
    let text = "script:2: resulting string too large: more than 16777216 bytes";
    for script in [
        r#"("x"):rep(1e8)"#,
        r#"("x"):rep(1/0)"#,
        r#"("x"):rep(1e5, ("y"):rep(1e5))"#,
        r#"("x"):rep(1e6):gsub("x", ("y"):rep(1e3))"#,
        r#"("x"):rep(1e6):gsub("x", function() return ("y"):rep(1e6) end)"#,
        r#"("x"):rep(1e6):gsub("x+", ("%0"):rep(1e3))"#,
    ] {
        assert_eq!(error_of(&lua, script), text, "{script}");
        lua.gc_collect().unwrap();
    }
    // Each result alone fits into the VM's memory, but all of them together do not.
    let all = r#"(function() local t = {} for i = 1, 9 do t[i] = ("x"):rep(1.6e7 - i) end return t end)()"#;
    assert_eq!(error_of(&lua, all), "not enough memory");
    let all = r#"(function() local s, t = ("x"):rep(1.6e7), {} for i = 1, 9 do t[i] = s:gsub("x", "y", i) end return t end)()"#;
    assert_eq!(error_of(&lua, all), "not enough memory");
}

#[test]
fn scripts_cannot_reach_behind() {
    let lua = Lua::new();
    replace(&lua, steps(100_000)).unwrap();
    let script = r#"
        local find, gsub = string.find, string.gsub
        setfenv(find, {})
        setfenv(gsub, {})
        string.sub, string.byte, string.gsub, table.concat, type, error = nil
        local s = ("xy "):rep(1000)
        local a, b = find(s, "%w+ %w+ %w+ ")
        local _, n = gsub(s, "%w+", function(w) return w end)
        return a, b, n
    "#;
    let seen: (i64, i64, i64) = lua.load(script).eval().unwrap();
    assert_eq!(seen, (1, 9, 1000));
}
