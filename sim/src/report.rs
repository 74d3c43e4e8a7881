//! What is asked of the simulator, and what it says: worlds by seed, and reports of those that break a promise.

use std::fmt;

use crate::Failure;
use crate::action::{Action, actions};
use crate::coverage::Coverage;
use crate::lanes::SerializedCounts;
use crate::run::{Broken, run};
use crate::setup::Setup;
use crate::shrink::{chosen, shrink};

/// Actions of a world: enough for much to happen, few enough to be made fewer. Many short worlds are more different
/// than a long one.
pub const ACTIONS: usize = 1_000;

/// A world that kept its promises.
#[derive(Clone, Debug)]
pub struct WorldSummary {
    /// Of all that was heard in it.
    pub hash: u64,
    /// What happened.
    pub coverage: Coverage,
    /// Messages that have travelled as bytes.
    pub serialized: SerializedCounts,
}

/// A world that broke a promise. Its text has everything that somebody needs who looks for the reason.
#[derive(Clone, Debug)]
pub struct Report {
    /// Makes the same world again.
    pub seed: u64,
    /// Which of its actions broke it, from 0 on; [`ACTIONS`] if it was at the end.
    pub step: usize,
    /// Which promise.
    pub failure: Failure,
    setup: Setup,
    /// What is left of the actions, with their places.
    left: Vec<(usize, Action)>,
    /// How that breaks.
    shrunken: Failure,
}

/// Runs the world of a seed.
///
/// # Errors
/// The world has broken a promise.
pub fn explore(seed: u64) -> Result<WorldSummary, Box<Report>> {
    let setup = Setup::new(seed);
    let all = actions(&setup, ACTIONS);
    run(&setup, &all).map_err(|broken| report(setup, &all, broken))
}

/// Runs the world of a seed, in which what workers send each other travels as bytes, where it is also a message between
/// nodes.
///
/// # Errors
/// As [`explore`].
pub fn explore_serialized(seed: u64) -> Result<WorldSummary, Box<Report>> {
    let setup = Setup {
        as_bytes: true,
        ..Setup::new(seed)
    };
    let all = actions(&setup, ACTIONS);
    run(&setup, &all).map_err(|broken| report(setup, &all, broken))
}

/// Runs the world of a seed with those of its actions alone that stand at these places.
///
/// # Errors
/// As [`explore`].
pub fn replay(seed: u64, places: &[usize]) -> Result<WorldSummary, Box<Report>> {
    let setup = Setup::new(seed);
    let all = chosen(&actions(&setup, ACTIONS), places);
    run(&setup, &all).map_err(|broken| {
        let step = places.get(broken.step).copied();
        let left = places.iter().copied().zip(all.iter().copied()).collect();
        Box::new(Report {
            seed,
            step: step.unwrap_or(ACTIONS),
            failure: broken.failure.clone(),
            setup,
            left,
            shrunken: broken.failure,
        })
    })
}

fn report(setup: Setup, all: &[Action], broken: Broken) -> Box<Report> {
    let (step, failure) = (broken.step, broken.failure.clone());
    let (places, shrunken) = shrink(all, broken, |actions| run(&setup, actions).map(drop));
    Box::new(Report {
        seed: setup.seed,
        step,
        failure,
        left: places.iter().map(|&place| (place, all[place])).collect(),
        shrunken: shrunken.failure,
        setup,
    })
}

impl fmt::Display for Report {
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
