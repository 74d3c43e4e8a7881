//! The simulator's interface: worlds by seed, and reports of broken promises.

use std::fmt;

use crate::Failure;
use crate::action::{Action, actions};
use crate::coverage::Coverage;
use crate::lanes::SerializedCounts;
use crate::run::{Broken, run};
use crate::setup::Setup;
use crate::shrink::{chosen, shrink};

/// Number of actions of a world: enough for interesting behaviour, few enough to be shrunk. Many short worlds vary
/// more than one long world.
pub const ACTIONS: usize = 1_000;

/// The summary of a world that kept its promises.
#[derive(Clone, Debug)]
pub struct WorldSummary {
    /// A hash of everything observed in the world.
    pub hash: u64,
    /// The events that occurred.
    pub coverage: Coverage,
    /// Counts of serialised messages.
    pub serialized: SerializedCounts,
}

/// A world that broke a promise. Its text contains everything needed to find the cause.
#[derive(Clone, Debug)]
pub struct BrokenWorld {
    /// The seed that reproduces the world.
    pub seed: u64,
    /// The index of the action that broke the promise; [`ACTIONS`] if it broke at the end of the run.
    pub step: usize,
    /// The first promise that was broken.
    pub failure: Failure,
    setup: Setup,
    /// The actions that remain after shrinking, with their indices in the original list.
    left: Vec<(usize, Action)>,
    /// The failure of the shrunken world.
    shrunken: Failure,
}

/// Runs the world of a seed.
///
/// # Errors
/// The world broke a promise.
pub fn explore(seed: u64) -> Result<WorldSummary, Box<BrokenWorld>> {
    let setup = Setup::new(seed);
    let all = actions(&setup, ACTIONS);
    run(&setup, &all).map_err(|broken| report(setup, &all, broken))
}

/// Runs the world of a seed. Messages between workers are serialised if messages of their kind are
/// also sent between nodes.
///
/// # Errors
/// The same as those of [`explore`].
pub fn explore_serialized(seed: u64) -> Result<WorldSummary, Box<BrokenWorld>> {
    let setup = Setup {
        as_bytes: true,
        ..Setup::new(seed)
    };
    let all = actions(&setup, ACTIONS);
    run(&setup, &all).map_err(|broken| report(setup, &all, broken))
}

/// Runs the world of a seed with only the actions at the given indices.
///
/// # Errors
/// The same as those of [`explore`].
pub fn replay(seed: u64, places: &[usize]) -> Result<WorldSummary, Box<BrokenWorld>> {
    let setup = Setup::new(seed);
    let all = chosen(&actions(&setup, ACTIONS), places);
    run(&setup, &all).map_err(|broken| {
        let step = places.get(broken.step).copied();
        let left = places.iter().copied().zip(all.iter().copied()).collect();
        Box::new(BrokenWorld {
            seed,
            step: step.unwrap_or(ACTIONS),
            failure: broken.failure.clone(),
            setup,
            left,
            shrunken: broken.failure,
        })
    })
}

fn report(setup: Setup, all: &[Action], broken: Broken) -> Box<BrokenWorld> {
    let (step, failure) = (broken.step, broken.failure.clone());
    let (places, shrunken) = shrink(all, broken, |actions| run(&setup, actions).map(drop));
    Box::new(BrokenWorld {
        seed: setup.seed,
        step,
        failure,
        left: places.iter().map(|&place| (place, all[place])).collect(),
        shrunken: shrunken.failure,
        setup,
    })
}

impl fmt::Display for BrokenWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "the world of seed {} broke a promise at step {}:",
            self.seed, self.step
        )?;
        writeln!(f, "  {}", self.failure)?;
        writeln!(f, "  {:?}", self.setup)?;
        writeln!(f, "{} of its actions are enough:", self.left.len())?;
        for (place, action) in &self.left {
            writeln!(f, "  {place:4} {action:?}")?;
        }
        writeln!(f, "  {}", self.shrunken)?;
        let places: Vec<_> = self
            .left
            .iter()
            .map(|(place, _)| place.to_string())
            .collect();
        writeln!(
            f,
            "again, whole:  VECHE_SIM_SEED={} cargo test -p veche-sim --test worlds promises -- --nocapture",
            self.seed
        )?;
        write!(
            f,
            "again, short:  VECHE_SIM_SEED={} VECHE_SIM_ONLY={} cargo test -p veche-sim --test worlds promises -- --nocapture",
            self.seed,
            places.join(",")
        )
    }
}
