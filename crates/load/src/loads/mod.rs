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

use crate::plan::ThreadPlan;

impl LoadPlan {
    /// Creates a thread's load.
    pub(crate) fn load(&self, share: &ThreadPlan) -> Box<dyn Load> {
        match self {
            Self::Storm(plan) => Box::new(storm::StormLoad::new(plan, share)),
            Self::Echo(plan) => Box::new(echo::EchoLoad::new(plan, share)),
            Self::Http(plan) => Box::new(http::HttpLoad::new(plan, share)),
            Self::Fanout(plan) => Box::new(fanout::FanoutLoad::new(plan, share)),
            Self::Shootout(plan) => Box::new(shootout::ShootoutLoad::new(plan, share)),
        }
    }
}
