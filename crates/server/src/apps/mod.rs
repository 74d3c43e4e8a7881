//! Applications: where scripts meet connections.
//!
//! The front ends know applications by the trait [`Apps`](veche_frontends::Apps) only; this is where a worker gets
//! them. There is no VM yet, so a configuration that needs one is refused.

use veche_frontends::{AppId, Apps};

use crate::config::{Config, Handler};

/// The applications of one worker, made on its own thread; `None` where no route leads to any.
pub(crate) fn start(config: &Config) -> Result<Option<Box<dyn Apps>>, String> {
    check(config)?;
    Ok(None)
}

/// The id by which routes lead to an app, by its place in the configuration. Sessions keep theirs over a reload: once
/// apps can be reloaded, an app has to keep its id where its place changes.
pub(crate) fn id(place: usize) -> AppId {
    // There are far fewer apps than numbers: tables of one kind have a limit.
    AppId(place as u16)
}

/// Whether this server can run what the configuration asks for; at start and at reload.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    let asks = |route: &&crate::config::Route| matches!(route.handler, Handler::Lua { .. });
    match config.routes.iter().find(asks) {
        Some(route) => Err(format!(
            "route {:?}: this version of veche can't run Lua yet",
            route.path.as_str()
        )),
        None => Ok(()),
    }
}
