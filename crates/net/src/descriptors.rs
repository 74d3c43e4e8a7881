//! The limit on open descriptors, raised as far as this user may.
//!
//! Each connection takes one, and the usual soft limit of 1,024 is there for programs that use `select`.
//! The server process inherits what the supervisor sets here and derives its connection cap from it; the load tester's
//! processes inherit it likewise.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What [`raise`] did; `None` is "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RaisedLimit {
    /// The soft limit as it was.
    pub from: Option<u64>,
    /// The soft limit as it is: the hard one.
    pub to: Option<u64>,
}

/// Raises the soft limit to the hard one.
///
/// # Errors
/// The system's.
pub fn raise() -> io::Result<RaisedLimit> {
    let limit = getrlimit(Resource::Nofile);
    let raised = RaisedLimit {
        from: limit.current,
        to: limit.maximum,
    };
    if raised.from != raised.to {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )?;
    }
    Ok(raised)
}
