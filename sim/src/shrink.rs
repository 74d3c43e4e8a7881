//! Shrinks a failing list of actions to a short one that breaks the same promise.

use crate::run::Broken;

/// Maximum number of worlds to try.
const TRIES_MAX: usize = 3_000;

/// Returns the indices of the remaining actions, and the failure that these actions cause. `run` performs a list
/// of actions.
pub(crate) fn shrink<A: Copy>(
    actions: &[A],
    broken: Broken,
    run: impl Fn(&[A]) -> Result<(), Broken>,
) -> (Vec<usize>, Broken) {
    let name = broken.failure.name.clone();
    let mut kept: Vec<usize> = (0..actions.len().min(broken.step + 1)).collect();
    let mut broken = broken;
    let mut tries = 0;
    let mut size = kept.len() / 2;
    // Removes halves first, then ever smaller pieces; repeats single removals while they succeed.
    loop {
        let before = kept.len();
        let mut at = 0;
        while at < kept.len() && tries < TRIES_MAX {
            let end = (at + size.max(1)).min(kept.len());
            let without: Vec<usize> = [&kept[..at], &kept[end..]].concat();
            tries += 1;
            match run(&chosen(actions, &without)) {
                Err(other) if other.failure.name == name => {
                    broken = other;
                    kept = without;
                    kept.truncate(broken.step + 1);
                }
                _ => at = end,
            }
        }
        if tries >= TRIES_MAX || (size <= 1 && kept.len() == before) {
            return (kept, broken);
        }
        size /= 2;
    }
}

/// Returns the actions at these indices.
pub(crate) fn chosen<A: Copy>(actions: &[A], places: &[usize]) -> Vec<A> {
    let all = places.iter().filter_map(|place| actions.get(*place));
    all.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use crate::action::{Action, actions};
    use crate::setup::Setup;

    fn broken(name: &str, step: usize) -> Broken {
        let failure = Failure {
            name: name.to_owned(),
            detail: String::new(),
        };
        Broken { failure, step }
    }

    #[test]
    fn only_actions_that_break_the_same_promise_remain() {
        let mut all = actions(&Setup::new(1), 500);
        let first = Action::Advance { ms: 60_001 };
        let second = Action::Advance { ms: 60_002 };
        (all[71], all[140], all[333]) = (first, second, second);
        // The action `first` alone breaks one promise; followed by `second` it breaks another.
        let run = |actions: &[Action]| {
            let Some(at) = actions.iter().position(|one| *one == first) else {
                return Ok(());
            };
            let behind = actions[at..].iter().position(|one| *one == second);
            match behind {
                Some(behind) => Err(broken("both", at + behind)),
                None => Err(broken("the first", at)),
            }
        };
        let Err(found) = run(&all) else {
            panic!("it is broken");
        };
        let (places, found) = shrink(&all, found, run);
        assert_eq!(places, [71, 140]);
        assert_eq!((found.failure.name.as_str(), found.step), ("both", 1));
    }
}
