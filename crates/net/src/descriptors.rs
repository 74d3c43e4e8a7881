//! Raises the limit on open descriptors as far as permitted.
//!
//! Each connection takes a descriptor, and the usual soft limit of 1,024 exists for programs that
//! use `select`. The supervisor raises the limit. The server process inherits it and derives its
//! maximum number of connections from it. The load tester raises the limit for its own processes.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The result of [`raise`]; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RaisedLimit {
    /// The previous soft limit.
    pub from: Option<u64>,
    /// The new soft limit, equal to the hard limit.
    pub to: Option<u64>,
}

/// Raises the soft limit to the hard limit.
///
/// # Errors
/// A system call failed.
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
