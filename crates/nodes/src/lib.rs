//! What nodes say to each other.

#![forbid(unsafe_code)]

mod block;
mod census;
mod connected;
mod glob;
mod id;
mod instruction;
mod listing;
mod relay;
mod status;

pub use block::{Block, NotBlocked};
pub use census::Census;
pub use connected::{CONNECTED_MAX, Connected, Connections};
pub use glob::{Glob, GlobError};
pub use id::{Caller, Ticket};
pub use instruction::{Deed, Instruction, Subscribe};
pub use listing::{LISTED_MAX, Listing};
pub use relay::{Address, Relay};
pub use status::UserStatus;
