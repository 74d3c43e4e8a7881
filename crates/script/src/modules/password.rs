//! `veche.password`: hashes and verifies passwords on other threads.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};
use veche_calls::password::{PASSWORD_BYTES_MAX, PasswordAction, PasswordReply};
use veche_calls::{Call, PasswordCall};

use super::argument::Arguments;
use crate::host_context::HostContext;

/// Maximum number of bytes of a hash that are examined; PHC strings are shorter.
const HASH_BYTES_MAX: usize = 4096;

pub(super) fn install(lua: &Lua, context: &Rc<HostContext>, native: &Table) -> mlua::Result<()> {
    let module = lua.create_table()?;
    let own = Rc::clone(context);
    let hash = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("password.hash", values);
        let action = PasswordAction::Hash;
        begin(&own, &arguments, action)
    })?;
    module.set("hash", hash)?;
    let own = Rc::clone(context);
    let verify = lua.create_function(move |_, values: MultiValue| {
        let arguments = Arguments::new("password.verify", values);
        let hash = match arguments.at(2) {
            Value::Nil => None,
            // A hash that is too long is truncated, and bytes that are not UTF-8 are replaced. The
            // result is an invalid PHC string, which the call reports.
            _ => {
                let hash = arguments.bytes(2)?;
                let hash = &hash[..hash.len().min(HASH_BYTES_MAX)];
                Some(String::from_utf8_lossy(hash).into_owned())
            }
        };
        begin(&own, &arguments, PasswordAction::Verify { hash })
    })?;
    module.set("verify", verify)?;
    native.set("password", module)
}

fn begin(
    context: &HostContext,
    arguments: &Arguments,
    action: PasswordAction,
) -> mlua::Result<f64> {
    let password = arguments.bytes(1)?;
    if password.len() > PASSWORD_BYTES_MAX {
        let expected = format!("at most {PASSWORD_BYTES_MAX} bytes expected");
        return Err(arguments.bad(1, &expected));
    }
    let password = password.to_vec();
    let token = context.call(Call::Password(PasswordCall { password, action }))?;
    Ok(token.0 as f64)
}

/// Returns the hash, or whether the password matched.
pub(super) fn to_lua(lua: &Lua, reply: PasswordReply) -> mlua::Result<Value> {
    Ok(match reply {
        PasswordReply::Hash(hash) => Value::String(lua.create_string(hash)?),
        PasswordReply::IsRight(is_right) => Value::Boolean(is_right),
    })
}
