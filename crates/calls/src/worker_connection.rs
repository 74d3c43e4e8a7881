//! The address of a connection among the workers of a process, and its text form.

use std::fmt;
use std::str::FromStr;

use veche_types::{ConnectionId, WorkerId};

/// The address of a connection on any worker of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerConnection {
    /// The number of the worker.
    pub worker: WorkerId,
    /// The connection on that worker.
    pub connection: ConnectionId,
}

impl fmt::Display for WorkerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, connection } = self;
        let ConnectionId { index, generation } = connection;
        write!(f, "{worker}.{index}.{generation}")
    }
}

/// The text is not a connection id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerConnectionError;

impl FromStr for WorkerConnection {
    type Err = WorkerConnectionError;

    /// Parses `worker.index.generation`, accepting only the canonical form.
    fn from_str(id: &str) -> Result<Self, WorkerConnectionError> {
        let mut numbers = id.split('.');
        let mut next = || numbers.next().ok_or(WorkerConnectionError);
        let place = Self {
            worker: WorkerId(next()?.parse().map_err(|_| WorkerConnectionError)?),
            connection: ConnectionId {
                index: next()?.parse().map_err(|_| WorkerConnectionError)?,
                generation: next()?.parse().map_err(|_| WorkerConnectionError)?,
            },
        };
        match place.to_string() == id {
            true => Ok(place),
            false => Err(WorkerConnectionError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_in_the_one_way_in_which_they_are_written() {
        let place = WorkerConnection {
            worker: WorkerId(65_535),
            connection: ConnectionId {
                index: 0,
                generation: u32::MAX,
            },
        };
        assert_eq!(place.to_string(), "65535.0.4294967295");
        assert_eq!(place.to_string().parse(), Ok(place));
        for bad in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "01.2.3",
            "+1.2.3",
            "65536.2.3",
            "1.2.3 ",
            "a.b.c",
        ] {
            assert_eq!(
                bad.parse::<WorkerConnection>(),
                Err(WorkerConnectionError),
                "{bad:?}"
            );
        }
    }
}
