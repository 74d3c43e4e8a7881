//! Runs a cluster from a seed and reports the result.

use std::cell::Cell;
use std::fmt;

use super::action::{Action, actions};
use super::coverage::Coverage;
use super::setup::Setup;
use super::world::World;
use crate::Failure;
use crate::run::{Broken, caught};
use crate::shrink::{chosen, shrink};

/// The number of actions of a cluster.
pub const ACTIONS: usize = 600;

/// A cluster that kept its promises.
#[derive(Clone, Debug)]
pub struct Summary {
    /// A hash of everything observed during the run.
    pub hash: u64,
    /// How often each kind of event occurred.
    pub coverage: Coverage,
}

/// A cluster that broke a promise.
#[derive(Clone, Debug)]
pub struct BrokenCluster {
    /// The index of the action that broke the promise; [`ACTIONS`] if the promise was broken at the
    /// end of the run.
    pub step: usize,
    /// The broken promise.
    pub failure: Failure,
    setup: Setup,
    left: Vec<(usize, Action)>,
    shrunken: Failure,
}

/// Runs the cluster of a seed.
///
/// # Errors
/// The cluster broke a promise.
pub fn explore(seed: u64) -> Result<Summary, Box<BrokenCluster>> {
    let setup = Setup::new(seed);
    let all = actions(&setup, ACTIONS);
    run(&setup, &all).map_err(|broken| {
        let (step, failure) = (broken.step, broken.failure.clone());
        let (places, shrunken) = shrink(&all, broken, |actions| run(&setup, actions).map(drop));
        Box::new(BrokenCluster {
            step,
            failure,
            left: places.iter().map(|&place| (place, all[place])).collect(),
            shrunken: shrunken.failure,
            setup,
        })
    })
}

/// Runs the cluster of a seed with only the actions at the given indices.
///
/// # Errors
/// The cluster broke a promise.
pub fn replay(seed: u64, places: &[usize]) -> Result<Summary, Failure> {
    let setup = Setup::new(seed);
    let all = chosen(&actions(&setup, ACTIONS), places);
    run(&setup, &all).map_err(|broken| broken.failure)
}

fn run(setup: &Setup, actions: &[Action]) -> Result<Summary, Broken> {
    let step = Cell::new(0);
    let world = || {
        let mut world = World::new(setup);
        for (number, action) in actions.iter().enumerate() {
            step.set(number);
            world.step(*action)?;
        }
        step.set(actions.len());
        world.end()?;
        Ok(Summary {
            hash: world.hash,
            coverage: world.seen,
        })
    };
    let ended = match caught(world) {
        Ok(ended) => ended,
        Err(failure) => Err(failure),
    };
    ended.map_err(|failure| Broken {
        failure,
        step: step.get(),
    })
}

impl fmt::Display for BrokenCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.setup.seed;
        writeln!(
            f,
            "the cluster of seed {seed} broke a promise at step {}:",
            self.step
        )?;
        writeln!(f, "  {}", self.failure)?;
        writeln!(f, "  {:?}", self.setup)?;
        writeln!(f, "{} of its actions are enough:", self.left.len())?;
        for (place, action) in &self.left {
            writeln!(f, "  {place:4} {action:?}")?;
        }
        writeln!(f, "  {}", self.shrunken)?;
        let places = self.left.iter().map(|(place, _)| place.to_string());
        let places = places.collect::<Vec<_>>().join(",");
        let command = "cargo test -p veche-sim --test cluster promises -- --nocapture";
        writeln!(f, "again, whole:  VECHE_SIM_SEED={seed} {command}")?;
        write!(
            f,
            "again, short:  VECHE_SIM_SEED={seed} VECHE_SIM_ONLY={places} {command}"
        )
    }
}
