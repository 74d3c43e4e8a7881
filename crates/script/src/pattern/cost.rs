//! The cost of a pattern in LuaJIT's own matcher, which can't be interrupted: an upper bound
//! derived from the pattern alone. If the bound is low enough for a subject of some length,
//! LuaJIT's own functions may be called, without any overhead.

use super::parse::{Item, Pattern, Single};
use super::set::Set;

/// LuaJIT's matcher is used for subjects up to a length that depends on the pattern. A length below `SUBJECT_BYTES_MIN` is
/// not worthwhile. Beyond `SUBJECT_BYTES_MAX` Veche's own matcher is not slower.
const SUBJECT_BYTES_MIN: usize = 8;
const SUBJECT_BYTES_MAX: usize = 1024;
/// The maximum length of a subject in which LuaJIT searches for plain text. Its search is fast, but not linear in the
/// worst case.
const SEARCHED_BYTES_MAX: usize = 64 << 10;

/// Returns a length up to which LuaJIT searches any subject for the plain `text` within `steps`. `None` if there is no
/// such length.
pub(crate) fn harmless_searched_bytes(text: &[u8], steps: u64) -> Option<usize> {
    let bytes = (steps as f64 / searching_cost(1.0, text.len())) as usize;
    (bytes > 0).then_some(bytes.min(SEARCHED_BYTES_MAX))
}

/// Returns the cost of comparing a text at every position.
fn searching_cost(places: f64, text_bytes: usize) -> f64 {
    places * (1.0 + text_bytes as f64 / 16.0)
}

impl Pattern {
    /// Returns a length up to which LuaJIT matches, searches or iterates over any subject within
    /// `steps`. `None` if that length is too short to matter.
    pub(crate) fn harmless_subject_bytes(&self, steps: u64) -> Option<usize> {
        let is_harmless = |bytes: &usize| self.cost(*bytes as f64) <= steps as f64;
        std::iter::successors(Some(SUBJECT_BYTES_MIN), |bytes| Some(bytes * 2))
            .take_while(|bytes| *bytes <= SUBJECT_BYTES_MAX && is_harmless(bytes))
            .last()
    }

    /// Returns the maximum number of steps for a subject of `bytes` bytes, computed from the last item
    /// to the first.
    fn cost(&self, bytes: f64) -> f64 {
        let places = bytes + 1.0;
        // A set in brackets is parsed again for each byte.
        let single_cost = |single| match single {
            Single::Any | Single::Byte(_) => 1.0,
            Single::Set(_) => self.set_bytes_max as f64,
        };
        let mut rest = RemainingCost::NOTHING;
        for item in self.items.iter().rev() {
            rest = match *item {
                Item::Finish | Item::Fault(_) => RemainingCost::NOTHING,
                Item::Open(_) | Item::Close(_) | Item::Position(_) => rest.behind_capture(),
                Item::Literal { from, to } => rest.behind(f64::from(to - from)),
                Item::One(single) => rest.behind(single_cost(single)),
                Item::End | Item::Never => rest.behind(1.0),
                Item::Frontier(_) => rest.behind(2.0 * self.set_bytes_max as f64),
                Item::Balance(..) | Item::Back(_) => RemainingCost {
                    failing: rest.failing + places,
                    ..rest.behind(1.0)
                },
                Item::Maybe(single) => rest.behind_maybe(single_cost(single)),
                Item::Most {
                    single,
                    at_least_one,
                    then,
                } => {
                    let is_clear = then.is_some_and(|then| self.are_disjoint(single, then));
                    rest.behind_most(places, single_cost(single), at_least_one, is_clear)
                }
                Item::Least { single, then } => {
                    let is_clear = then.is_some_and(|then| self.are_disjoint(single, then));
                    rest.behind_least(places, single_cost(single), is_clear)
                }
            };
        }
        let matching = if self.anchored {
            rest.failing + rest.succeeding + bytes * rest.per_byte
        } else {
            // A search at all positions, or a series of matches, fails or succeeds at most once at
            // each position, and matches each byte at most once.
            places * (rest.failing + rest.succeeding + rest.per_byte)
        };
        // In plain mode `find` searches for the pattern as literal text, so the cost of such a search counts too.
        matching.max(searching_cost(places, self.bytes))
    }

    fn are_disjoint(&self, a: Single, b: Single) -> bool {
        match (self.set_of(a), self.set_of(b)) {
            (Some(a), Some(b)) => a.is_disjoint(&b),
            _ => false,
        }
    }

    fn set_of(&self, single: Single) -> Option<Set> {
        match single {
            Single::Any => None,
            Single::Byte(byte) => {
                let mut set = Set::EMPTY;
                set.insert(byte);
                Some(set)
            }
            Single::Set(index) => Some(self.sets[index as usize]),
        }
    }
}

/// The maximum cost of one attempt to match the items from some position of a pattern to its end.
#[derive(Clone, Copy)]
struct RemainingCost {
    /// The cost of an attempt that fails; 0 if the items always match.
    failing: f64,
    /// The constant part of the cost of a successful attempt; `per_byte` is added for each matched
    /// byte.
    succeeding: f64,
    per_byte: f64,
    /// The number of capture items before the first item that matches text.
    captures: f64,
}

impl RemainingCost {
    const NOTHING: Self = Self {
        failing: 0.0,
        succeeding: 1.0,
        per_byte: 1.0,
        captures: 0.0,
    };

    fn is_sure(&self) -> bool {
        self.failing == 0.0
    }

    /// Returns the cost with one more item in front of the remaining items. The item can fail, and an attempt to match
    /// it takes `steps`.
    fn behind(self, steps: f64) -> Self {
        Self {
            failing: self.failing + steps,
            succeeding: self.succeeding + steps,
            per_byte: self.per_byte,
            captures: 0.0,
        }
    }

    fn behind_capture(self) -> Self {
        Self {
            failing: if self.is_sure() {
                0.0
            } else {
                self.failing + 1.0
            },
            succeeding: self.succeeding + 1.0,
            captures: self.captures + 1.0,
            ..self
        }
    }

    fn behind_maybe(self, single: f64) -> Self {
        Self {
            failing: if self.is_sure() {
                0.0
            } else {
                single + 2.0 * self.failing
            },
            ..self.behind(single + self.failing)
        }
    }

    /// Returns the cost with a repetition, written with `*` or `+`, in front of the remaining items. `is_clear` means that the
    /// remaining items can match only at the end of the longest repetition.
    fn behind_most(self, places: f64, single: f64, at_least_one: bool, is_clear: bool) -> Self {
        let run = Self {
            per_byte: self.per_byte.max(single),
            ..self.behind(single + 1.0)
        };
        if self.is_sure() {
            Self {
                failing: if at_least_one { single } else { 0.0 },
                ..run
            }
        } else if is_clear {
            Self {
                failing: places * (single + self.captures + 1.0) + self.failing,
                ..run
            }
        } else {
            let tries = places * (single + self.failing);
            Self {
                failing: tries,
                ..self.behind(tries)
            }
        }
    }

    /// Returns the cost with a repetition, written with `-`, in front of the remaining items. `is_clear` means that the
    /// remaining items can match only at the end of the longest repetition.
    fn behind_least(self, places: f64, single: f64, is_clear: bool) -> Self {
        if self.is_sure() {
            return Self {
                failing: 0.0,
                ..self.behind(single)
            };
        }
        let missed = if is_clear {
            self.captures + 1.0
        } else {
            self.failing
        };
        Self {
            failing: places * (single + missed) + if is_clear { self.failing } else { 0.0 },
            per_byte: self.per_byte.max(single + missed),
            ..self.behind(single)
        }
    }
}
