//! TLS over buffers: ciphertext in, plaintext out, and the other way round.
//!
//! It knows no socket and no loop: whoever has the bytes hands them in and sends what comes out. [`Tls`] is one
//! connection, either end of it; [`Trust`] is what clients of one kind share: which certificates they believe, and
//! [`Trusts`] has those of a whole process; [`Acceptor`] is what the connections of one listener share: which
//! [`Certificate`]s they are shown, and, while one is ordered, which [`Proofs`]. The load tester, the worker and the HTTP client stand on it.

#![forbid(unsafe_code)]

mod acceptor;
mod anybody;
mod certificate;
mod error;
mod failure;
mod greeting;
mod proof;
mod resumption;
mod stamp;
mod subject;
mod tls;
mod trust;
mod trusts;

pub use acceptor::{Acceptor, Clients, Roots, Tickets};
pub use certificate::Certificate;
pub use error::Error;
pub use failure::Failure;
pub use proof::{Proof, Proofs};
pub use stamp::{Stamp, stamp};
pub use subject::Subject;
pub use tls::{Agreed, Tls};
pub use trust::{Believe, Trust};
pub use trusts::Trusts;
