//! How clients of Centrifugo's protocol want to be told of a channel, where that is not as usual.

use std::collections::HashMap;
use std::sync::Arc;

use veche_centrifuge::Filter;
use veche_hub::{Delivery, Event};

use crate::centrifuge::writing;

/// What a client has agreed on with one subscription.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wish {
    /// It is told who comes and goes.
    pub(crate) joins: bool,
    pub(crate) deltas: Deltas,
    /// It wants publications with certain tags only.
    pub(crate) filter: Option<Arc<Filter>>,
}

/// Whether a client is told differences alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Deltas {
    /// No.
    #[default]
    Off,
    /// From its next publication on, which has to be whole.
    Begun,
    /// What it was told last is the latest that the channel keeps.
    Going,
}

/// In which form a publication is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    /// Whole, to a client that takes deltas.
    Whole,
    /// As what has changed.
    Patch,
}

impl Wish {
    /// How a publication, or who came or went, is told now; `None`: not at all.
    pub(super) fn form(&mut self, delivery: &Delivery<'_>) -> Option<Form> {
        if delivery.event != Event::Published {
            return self.joins.then_some(Form::Plain);
        }
        if let Some(filter) = &self.filter
            && !writing::passes(filter, delivery.info)
        {
            return None;
        }
        if self.deltas == Deltas::Off {
            return Some(Form::Plain);
        }
        // The one behind what is not kept has another before it than this client has.
        let next = match delivery.position {
            Some(_) => Deltas::Going,
            None => Deltas::Begun,
        };
        let had = std::mem::replace(&mut self.deltas, next);
        let has_previous = had == Deltas::Going && next == Deltas::Going;
        Some(match has_previous && delivery.previous.is_some() {
            true => Form::Patch,
            false => Form::Whole,
        })
    }
}

/// The wishes of a worker's clients, by the index of their sessions. Most have none.
#[derive(Default)]
pub(super) struct Wishes(HashMap<u32, Vec<(Box<str>, Wish)>>);

impl Wishes {
    /// From now on this is how the client is told of a channel.
    pub(super) fn set(&mut self, index: u32, channel: &str, wish: Wish) {
        self.forget(index, channel);
        if wish != Wish::default() {
            let wishes = self.0.entry(index).or_default();
            wishes.push((channel.into(), wish));
        }
    }

    /// As usual from now on.
    pub(super) fn forget(&mut self, index: u32, channel: &str) {
        let Some(wishes) = self.0.get_mut(&index) else {
            return;
        };
        wishes.retain(|(one, _)| **one != *channel);
        if wishes.is_empty() {
            self.0.remove(&index);
        }
    }

    /// The client is gone.
    pub(super) fn forget_all(&mut self, index: u32) {
        if !self.0.is_empty() {
            self.0.remove(&index);
        }
    }

    pub(super) fn find(&mut self, index: u32, channel: &str) -> Option<&mut Wish> {
        if self.0.is_empty() {
            return None;
        }
        let mut wishes = self.0.get_mut(&index)?.iter_mut();
        let found = wishes.find(|(one, _)| **one == *channel);
        found.map(|(_, wish)| wish)
    }
}
