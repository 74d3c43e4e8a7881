//! An approximate order by weight with updates in constant time. Each weight class has a linked list, from its oldest
//! member to its newest.
//!
//! The members are stored elsewhere; each contains a [`ClassLink`].

/// Stands for no member.
pub(crate) const NO_MEMBER: u32 = u32::MAX;

/// All weights below this one form a single class.
const LEAST: usize = 256;

/// The class of a member, and the member's neighbours in the list of the class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassLink {
    older: u32,
    newer: u32,
    class: u8,
}

/// Gives access to the links of the members, which are stored elsewhere.
pub(crate) trait Linked {
    fn link(&mut self, member: u32) -> &mut ClassLink;
}

/// The lists of all weight classes.
#[derive(Debug, Default)]
pub(crate) struct WeightClasses {
    /// A bit mask: bit `i` is set if class `i` has members.
    classes: u64,
    ends: Vec<Ends>,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    oldest: u32,
    newest: u32,
}

impl ClassLink {
    pub(crate) const NONE: Self = Self {
        older: NO_MEMBER,
        newer: NO_MEMBER,
        class: 0,
    };
}

impl Ends {
    const NONE: Self = Self {
        oldest: NO_MEMBER,
        newest: NO_MEMBER,
    };
}

impl WeightClasses {
    pub(crate) fn is_empty(&self) -> bool {
        self.classes == 0
    }

    /// Returns the oldest member of the heaviest class.
    pub(crate) fn heaviest(&self) -> Option<u32> {
        let class = self.classes.checked_ilog2()?;
        Some(self.ends[class as usize].oldest)
    }

    /// Adds a member as the newest of its class.
    pub(crate) fn insert(&mut self, all: &mut (impl Linked + ?Sized), member: u32, weight: usize) {
        let class = class_of(weight);
        let place = usize::from(class);
        if self.ends.len() <= place {
            self.ends.resize(place + 1, Ends::NONE);
        }
        let ends = &mut self.ends[place];
        let newest = std::mem::replace(&mut ends.newest, member);
        *all.link(member) = ClassLink {
            older: newest,
            newer: NO_MEMBER,
            class,
        };
        match newest {
            NO_MEMBER => {
                ends.oldest = member;
                self.classes |= 1 << class;
            }
            _ => all.link(newest).newer = member,
        }
    }

    pub(crate) fn remove(&mut self, all: &mut (impl Linked + ?Sized), member: u32) {
        let ClassLink {
            older,
            newer,
            class,
        } = *all.link(member);
        let ends = &mut self.ends[usize::from(class)];
        match older {
            NO_MEMBER => ends.oldest = newer,
            _ => all.link(older).newer = newer,
        }
        match newer {
            NO_MEMBER => ends.newest = older,
            _ => all.link(newer).older = older,
        }
        if ends.oldest == NO_MEMBER {
            self.classes &= !(1 << class);
        }
    }

    /// Updates the weight of a member.
    pub(crate) fn set_weight(
        &mut self,
        all: &mut (impl Linked + ?Sized),
        member: u32,
        weight: usize,
    ) {
        if class_of(weight) != all.link(member).class {
            self.remove(all, member);
            self.insert(all, member, weight);
        }
    }

    /// Updates the weight of a member and makes the member the newest of its class.
    pub(crate) fn touch(&mut self, all: &mut (impl Linked + ?Sized), member: u32, weight: usize) {
        let link = *all.link(member);
        if link.newer != NO_MEMBER || class_of(weight) != link.class {
            self.remove(all, member);
            self.insert(all, member, weight);
        }
    }
}

/// Returns the class of a weight. There are two classes per power of two, so except in the first and the last class,
/// the heaviest member weighs less than 1.5 times as much as the lightest.
fn class_of(weight: usize) -> u8 {
    let halves = (weight / (LEAST / 2)).max(2);
    let power = halves.ilog2();
    let half = (halves >> (power - 1)) as u32 & 1;
    (2 * (power - 1) + half).min(u64::BITS - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Linked for Vec<ClassLink> {
        fn link(&mut self, member: u32) -> &mut ClassLink {
            &mut self[member as usize]
        }
    }

    #[test]
    fn a_class_reaches_to_half_as_much_again() {
        let mut begins = 0;
        for weight in 0..1 << 20 {
            if class_of(weight) != class_of(begins) {
                assert_eq!(class_of(weight), class_of(begins) + 1);
                begins = weight;
            }
            assert!(weight < LEAST + LEAST / 2 || 2 * weight < 3 * begins);
        }
        assert_eq!((class_of(0), class_of(LEAST)), (0, 0));
        assert_eq!(class_of(usize::MAX), 63);
    }

    #[test]
    fn the_heaviest_are_first_and_of_these_the_oldest() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut links = vec![ClassLink::NONE; 50];
        let mut ranks = WeightClasses::default();
        // The members with their weights; within a class the oldest is first.
        let mut expected: Vec<(u32, usize)> = Vec::new();
        for _ in 0..20_000 {
            let member = random.u32(..50);
            let weight = 1 << random.u32(..24);
            let place = expected.iter().position(|(one, _)| *one == member);
            match (place, random.u8(..3)) {
                (None, _) => {
                    ranks.insert(&mut links, member, weight);
                    expected.push((member, weight));
                }
                (Some(place), 0) => {
                    ranks.remove(&mut links, member);
                    expected.remove(place);
                }
                (Some(place), 1) => {
                    ranks.touch(&mut links, member, weight);
                    expected.remove(place);
                    expected.push((member, weight));
                }
                (Some(place), _) => {
                    ranks.set_weight(&mut links, member, weight);
                    if class_of(expected[place].1) != class_of(weight) {
                        expected.remove(place);
                        expected.push((member, weight));
                    }
                }
            }
            let top = expected.iter().map(|(_, weight)| class_of(*weight)).max();
            let mut of_top = expected
                .iter()
                .filter(|(_, weight)| Some(class_of(*weight)) == top);
            assert_eq!(ranks.heaviest(), of_top.next().map(|(member, _)| *member));
            assert_eq!(ranks.is_empty(), expected.is_empty());
        }
    }
}
