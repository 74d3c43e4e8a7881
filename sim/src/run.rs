//! Runs a world from its seed to its end, and catches panics.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::Failure;
use crate::action::Action;
use crate::failure::PromiseResult;
use crate::report;
use crate::setup::Setup;
use crate::simulated_driver;
use crate::trace::Trace;
use crate::worker_driver::StartWorkers;
use crate::world::World;

/// The failure of a world: a promise was broken, or code panicked.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) failure: Failure,
    /// The index of the action that failed; the number of actions if the end of the world failed.
    pub(crate) step: usize,
}

/// Performs the actions and ends the world.
pub(crate) fn run(setup: &Setup, actions: &[Action]) -> Result<report::WorldSummary, Broken> {
    run_on(simulated_driver::begin, setup, actions, &mut |_, _| Ok(()))
}

/// Does the same as [`run`], with workers started by `begin`. `watch` gets the trace before each
/// step, before the end (`actions.len()`) and after it, and can stop the world with an error.
pub(crate) fn run_on(
    begin: StartWorkers,
    setup: &Setup,
    actions: &[Action],
    watch: &mut dyn FnMut(usize, &mut Trace) -> PromiseResult,
) -> Result<report::WorldSummary, Broken> {
    let step = Cell::new(0);
    let world = || {
        let mut world = World::new(setup.clone(), begin)?;
        for (number, action) in actions.iter().enumerate() {
            step.set(number);
            watch(number, &mut world.ledger.trace)?;
            world.step(*action)?;
        }
        step.set(actions.len());
        watch(actions.len(), &mut world.ledger.trace)?;
        world.end()?;
        watch(actions.len() + 1, &mut world.ledger.trace)?;
        Ok(report::WorldSummary {
            hash: world.ledger.trace.hash(),
            coverage: world.ledger.seen,
            serialized: world.process.lanes.as_bytes(),
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

thread_local! {
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
    static PANICKED: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Runs a closure; a panic becomes a failure named by its location, and prints nothing.
pub(crate) fn caught<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_CATCHING.get() {
                return before(panic);
            }
            let place = panic.location().map(ToString::to_string);
            let words = panic
                .payload_as_str()
                .unwrap_or("the panic's payload is not text");
            PANICKED.set(Some(Failure {
                name: format!("no panic at {}", place.unwrap_or_default()),
                detail: words.to_owned(),
            }));
        }));
    });
    IS_CATCHING.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CATCHING.set(false);
    result.map_err(|_| {
        PANICKED.take().unwrap_or(Failure {
            name: "no panic".to_owned(),
            detail: String::new(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_place() {
        for words in ["once", "again"] {
            let Err(failure) = caught(|| -> u8 { panic!("{words}") }) else {
                panic!("it was not noticed");
            };
            assert!(failure.name.contains("run.rs:"), "{failure}");
            assert_eq!(failure.detail, words);
        }
        assert_eq!(caught(|| 7), Ok(7));
    }
}
