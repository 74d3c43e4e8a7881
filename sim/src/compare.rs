//! Runs a world on two worker drivers: both must behave the same, and the first step in which they differ is reported.

use std::fmt;

use crate::action::{Action, actions};
use crate::failure::{Failure, promise};
use crate::report::ACTIONS;
use crate::run::run_on;
use crate::setup::Setup;
use crate::simulated_driver;
use crate::worker_driver::StartWorkers;

/// Number of lines shown before the first difference. `FROM` is the number of lines shown from the difference on.
const BEFORE: usize = 3;
const FROM: usize = 4;

/// Maximum number of characters shown per line.
const LINE_MAX: usize = 400;

/// A difference between two worker drivers.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed of the world.
    pub seed: u64,
    /// The index of the action; [`ACTIONS`] if the difference is at the end of the run.
    pub step: usize,
    /// The action in text form.
    pub action: String,
    /// The outputs of workers in that step, on the simulator's own driver and on the compared one.
    pub outputs: [Vec<String>; 2],
    /// The promise that the world broke on the compared driver, if it broke one.
    pub failure: Option<Failure>,
}

/// Runs the world of a seed on the simulator's own driver and then on another driver, and compares the traces after
/// each step. Returns the number of compared outputs.
///
/// # Errors
/// The first step that differs.
///
/// # Panics
/// The world breaks a promise on the simulator's own driver.
pub fn compare(seed: u64, begin: StartWorkers) -> Result<u64, Box<Difference>> {
    let setup = Setup::new(seed);
    let all = actions(&setup, ACTIONS);
    let mut hashes = Vec::with_capacity(ACTIONS + 2);
    let mut compared = 0;
    let own = run_on(simulated_driver::begin, &setup, &all, &mut |_, trace| {
        hashes.push(trace.hash());
        compared = trace.outputs();
        Ok(())
    });
    if let Err(broken) = own {
        panic!(
            "the world of seed {seed} broke a promise at step {}: {}",
            broken.step, broken.failure
        );
    }
    let mut step = 0;
    let other = run_on(begin, &setup, &all, &mut |before, trace| {
        // The trace before a step is the result of the previous step.
        promise!(
            hashes[before] == trace.hash(),
            "both drivers behave alike",
            "the outputs of the previous step differ"
        );
        step = before;
        Ok(())
    });
    let Err(broken) = other else {
        return Ok(compared);
    };
    let outputs = [simulated_driver::begin, begin].map(|begin| outputs(begin, &setup, &all, step));
    let is_broken = broken.failure.name != "both drivers behave alike";
    Err(Box::new(Difference {
        seed,
        step,
        action: match all.get(step) {
            Some(action) => format!("{action:?}"),
            None => "the end".to_owned(),
        },
        outputs,
        failure: is_broken.then_some(broken.failure),
    }))
}

/// Returns the outputs of workers in a step.
fn outputs(begin: StartWorkers, setup: &Setup, actions: &[Action], step: usize) -> Vec<String> {
    let mut outputs = Vec::new();
    // The result is irrelevant: a step that breaks a promise ends the run as well.
    let _ = run_on(begin, setup, actions, &mut |before, trace| {
        if before == step {
            trace.keep_words();
        }
        outputs = trace.words();
        promise!(
            before <= step,
            "the run ends after the compared step",
            "this failure only ends the run"
        );
        Ok(())
    });
    outputs
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed, step, action, ..
        } = self;
        writeln!(
            f,
            "the world of seed {seed} differs at step {step}, {action}:"
        )?;
        if let Some(failure) = &self.failure {
            writeln!(f, "  {failure}")?;
        }
        let [own, other] = &self.outputs;
        let same = own.iter().zip(other).take_while(|(one, two)| one == two);
        let first = same.count();
        for line in &own[first.saturating_sub(BEFORE)..first] {
            writeln!(f, "    {}", shortened(line))?;
        }
        for (mark, lines) in [("sim ", own), ("glue", other)] {
            for line in lines.iter().skip(first).take(FROM) {
                writeln!(f, "  {mark} {}", shortened(line))?;
            }
            if lines.len() <= first {
                writeln!(f, "  {mark} (nothing more)")?;
            }
        }
        Ok(())
    }
}

fn shortened(line: &str) -> String {
    line.chars().take(LINE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use veche_frontends::{Context, Now};
    use veche_hub::ConnectionId;
    use veche_worker::TurnState;

    use super::*;
    use crate::apps::BackEndApp;
    use crate::worker_driver::{Conditions, TransportInput, TurnInput, WorkerDriver, WorkerOutput};

    /// A driver that loses the bytes of a worker's twentieth input.
    struct Lossy {
        own: Box<dyn WorkerDriver>,
        pieces: u32,
    }

    fn lossy(all: Vec<Context>, conditions: &Conditions) -> Vec<Box<dyn WorkerDriver>> {
        let lossy = |own| Box::new(Lossy { own, pieces: 0 }) as Box<dyn WorkerDriver>;
        let own = simulated_driver::begin(all, conditions);
        own.into_iter().map(lossy).collect()
    }

    impl WorkerDriver for Lossy {
        fn shared(&self) -> &Context {
            self.own.shared()
        }

        fn shared_mut(&mut self) -> &mut Context {
            self.own.shared_mut()
        }

        fn connections(&self) -> usize {
            self.own.connections()
        }

        fn pending_work(&self) -> Vec<(&'static str, u64)> {
            self.own.pending_work()
        }

        fn with_back_end(&mut self, call: &mut dyn FnMut(&mut BackEndApp, &mut Context)) {
            self.own.with_back_end(call);
        }

        fn accept(
            &mut self,
            listener: u16,
            room: usize,
            now: Now,
            out: &mut Vec<WorkerOutput>,
        ) -> ConnectionId {
            self.own.accept(listener, room, now, out)
        }

        fn arrive(
            &mut self,
            id: ConnectionId,
            arrival: TransportInput,
            now: Now,
            out: &mut Vec<WorkerOutput>,
        ) {
            self.pieces += u32::from(matches!(arrival, TransportInput::Bytes(_)));
            if self.pieces != 20 {
                self.own.arrive(id, arrival, now, out);
            }
        }

        fn receives(&self, id: ConnectionId) -> bool {
            self.own.receives(id)
        }

        fn turn(&mut self, turn: TurnInput, out: &mut Vec<WorkerOutput>) -> TurnState {
            self.own.turn(turn, out)
        }
    }

    #[test]
    fn a_glue_is_like_itself_and_one_that_loses_something_is_not() {
        assert!(compare(1, simulated_driver::begin).is_ok_and(|compared| compared > 1000));
        let Err(difference) = compare(1, lossy) else {
            panic!("it is not noticed");
        };
        let text = difference.to_string();
        assert!(
            difference.step < ACTIONS && text.contains("Received"),
            "{text}"
        );
    }
}
