//! The Rust functions of `veche.test`: requests, answers, formatting and comparison.

use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::{Ask, Case, Notes, Plain, diff, show};
use crate::vm::load::{VmExtension, VmParts};
use veche_runtime::Token;

const SOURCE: &str = include_str!("../../lua/test.lua");
/// The Lua code of the stubs that replace the servers called by an application.
const STUBS: &str = include_str!("../../lua/stubs.lua");

/// Creates `veche.test` and the handlers that replace those of an application.
pub(super) fn install(
    lua: &Lua,
    parts: &VmParts<'_>,
    notes: &Rc<Notes>,
) -> mlua::Result<VmExtension> {
    let native = lua.create_table()?;
    let own = Rc::clone(notes);
    let case =
        lua.create_function(
            move |_,
                  (name, place, is_skipped, services): (
                String,
                String,
                bool,
                Option<Vec<String>>,
            )| {
                let line = place.trim_end_matches(": ").rsplit(':').next();
                own.cases.borrow_mut().push(Case {
                    name,
                    line: line.and_then(|line| line.parse().ok()).unwrap_or(0),
                    is_skipped,
                    services,
                });
                Ok(())
            },
        )?;
    native.set("case", case)?;
    let own = Rc::clone(notes);
    let chosen = lua.create_function(move |_, ()| Ok(own.chosen.get() + 1))?;
    native.set("chosen", chosen)?;
    let (own, context) = (Rc::clone(notes), Rc::clone(parts.context));
    let ask = lua.create_function(move |_, request: Value| {
        let request = Plain::from_lua(&request)?;
        let token = context.token();
        own.asks.borrow_mut().push(Ask { token, request });
        Ok(token.0 as f64)
    })?;
    native.set("ask", ask)?;
    let own = Rc::clone(notes);
    let answer = lua.create_function(move |lua, token: f64| {
        let answer = own.answers.borrow_mut().remove(&Token(token as u64));
        Ok(match answer {
            Some(Ok(value)) => (value.to_lua(lua)?, None),
            Some(Err(why)) => (Value::Nil, Some(why)),
            None => (
                Value::Nil,
                Some("there is no response for this call".to_owned()),
            ),
        })
    })?;
    native.set("answer", answer)?;
    let own = Rc::clone(notes);
    let ended = lua.create_function(move |_, ()| {
        own.has_passed.set(true);
        Ok(())
    })?;
    native.set("ended", ended)?;
    native.set(
        "show",
        lua.create_function(|_, value: Value| Ok(show::lines(&value)?.join("\n")))?,
    )?;
    native.set(
        "differ",
        lua.create_function(|_, (expected, got): (Value, Value)| {
            let (expected, got) = (show::lines(&expected)?, show::lines(&got)?);
            Ok((expected != got).then(|| diff::explain(&expected, &got)))
        })?,
    )?;
    let chunk = lua.load(SOURCE).set_name("=veche:test");
    let (inner, veche) = (parts.inner, parts.veche);
    let (module, handlers, tools): (Table, Table, Table) = chunk.call((&native, inner, veche))?;
    let chunk = lua.load(STUBS).set_name("=veche:stubs");
    let () = chunk.call((&native, inner, veche, &module, tools))?;
    Ok(VmExtension {
        name: "veche.test",
        module,
        handlers,
    })
}

#[cfg(test)]
fn shown(lua: &Lua, code: &str) -> String {
    let value: Value = lua.load(code).eval().expect("a value");
    show::lines(&value).expect("lines").join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_lua_and_in_order() {
        let lua = Lua::new();
        for (code, text) in [
            ("nil", "nil"),
            ("1", "1"),
            ("-0.5", "-0.5"),
            ("2^53", "9007199254740992"),
            ("1e300", "1e300"),
            ("0/0", "NaN"),
            ("'a\"b\\\\\\n\\0\\255ä'", "\"a\\\"b\\\\\\n\\x00\\xffä\""),
            ("{}", "{}"),
            ("{1, {2}}", "{\n  1,\n  {\n    2,\n  },\n}"),
            (
                "{b = 1, a = true, [3] = 'x', ['a b'] = 0, ['end'] = 1}",
                "{\n  [3] = \"x\",\n  a = true,\n  [\"a b\"] = 0,\n  b = 1,\n  [\"end\"] = 1,\n}",
            ),
            (
                "(function() local t = {}; t.t = t; return t end)()",
                "{\n  t = <the enclosing table 1 level up>,\n}",
            ),
        ] {
            assert_eq!(shown(&lua, code), text, "{code}");
        }
    }

    #[test]
    fn plain_values_survive_a_round_trip() {
        let lua = Lua::new();
        let value: Value = lua
            .load("{ a = {1, 'two', true}, b = '\\0\\255', c = { d = -1.5 } }")
            .eval()
            .expect("a value");
        let plain = Plain::from_lua(&value).expect("a plain value");
        let back = plain.to_lua(&lua).expect("a value");
        assert_eq!(
            show::lines(&back).expect("lines"),
            show::lines(&value).expect("lines")
        );
        assert_eq!(plain.get("b").bytes(), b"\0\xff");
        assert_eq!(plain.get("a").items().len(), 3);
        for bad in ["{ f = print }", "{ [{}] = 1 }", "setmetatable({}, {})"] {
            let value: Value = lua.load(bad).eval().expect("a value");
            assert_eq!(
                Plain::from_lua(&value).is_err(),
                !bad.starts_with("set"),
                "{bad}"
            );
        }
    }
}
