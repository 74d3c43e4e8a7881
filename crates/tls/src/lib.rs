//! TLS over buffers: ciphertext in, plaintext out, and vice versa.
//!
//! The crate has no sockets and no event loop: the caller passes received bytes in and sends the output. [`Tls`] is one
//! side of a connection. [`Trust`] is shared by clients with the same trusted authorities, and [`Trusts`] caches those
//! of a process. [`Acceptor`] is shared by the connections of a listener: it has the [`Certificate`]s and the pending
//! [`Proofs`]. The load tester, the worker and the HTTP client use this crate.

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
