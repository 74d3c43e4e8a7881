//! The loads: one file per command.

pub mod echo;
mod expiry;
pub mod fanout;
mod flight;
pub mod http;
mod load;
mod open_loop;
mod plans;
pub mod shootout;
pub mod storm;
pub mod think;

pub(crate) use load::Load;
pub use plans::LoadPlan;

use crate::plan::Share;

impl LoadPlan {
    /// Creates a thread's load.
    pub(crate) fn load(&self, share: &Share) -> Box<dyn Load> {
        match self {
            Self::Storm(plan) => Box::new(storm::Storm::new(plan, share)),
            Self::Echo(plan) => Box::new(echo::Echo::new(plan, share)),
            Self::Http(plan) => Box::new(http::Http::new(plan, share)),
            Self::Fanout(plan) => Box::new(fanout::Fanout::new(plan, share)),
            Self::Shootout(plan) => Box::new(shootout::Shootout::new(plan, share)),
        }
    }
}
