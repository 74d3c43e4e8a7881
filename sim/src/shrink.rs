//! From a list of actions that breaks a promise to a short one that breaks the same.

use crate::action::Action;
use crate::run::{Broken, run};
use crate::setup::Setup;

/// Worlds that are tried at most.
const TRIES_MAX: usize = 3_000;

/// The places of the actions that are left, and how their world breaks.
pub(crate) fn shrink(setup: &Setup, actions: &[Action], broken: Broken) -> (Vec<usize>, Broken) {
    let name = broken.failure.name.clone();
    let mut kept: Vec<usize> = (0..actions.len().min(broken.step + 1)).collect();
    let mut broken = broken;
    let mut tries = 0;
    let mut size = kept.len() / 2;
    // By halves first, then by ever smaller pieces; again while a whole round of single ones still brings something.
    loop {
        let before = kept.len();
        let mut at = 0;
        while at < kept.len() && tries < TRIES_MAX {
            let end = (at + size.max(1)).min(kept.len());
            let without: Vec<usize> = [&kept[..at], &kept[end..]].concat();
            tries += 1;
            match run(setup, &chosen(actions, &without)) {
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

/// The actions at these places.
pub(crate) fn chosen(actions: &[Action], places: &[usize]) -> Vec<Action> {
    let all = places.iter().filter_map(|place| actions.get(*place));
    all.copied().collect()
}
