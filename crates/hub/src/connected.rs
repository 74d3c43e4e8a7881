//! Which connections hear a channel, and what they are.

use std::net::IpAddr;
use std::sync::Arc;

use crate::subscription::NONE;
use crate::{ConnectionId, Engine, Hub};

/// The most connections that are listed at once.
pub const CONNECTED_MAX: usize = 1000;

/// A connection, as a back end is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Its id: its protocol's own, or one that tells it apart from others here.
    pub client: Box<str>,
    /// Empty: it has none.
    pub user: Box<str>,
    /// What it speaks.
    pub handler: &'static str,
    /// How it comes.
    pub transport: &'static str,
    /// In which encoding, where its protocol has several.
    pub protocol: &'static str,
    /// The path of its route.
    pub route: Box<str>,
    /// Whose it is, as far as proxies are believed.
    pub address: IpAddr,
    /// What the client says it is: a name and a version, where its protocol has them.
    pub name: Box<str>,
    /// See [`name`](Self::name).
    pub version: Box<str>,
    /// What it is subscribed to.
    pub channels: Box<[Arc<str>]>,
}

/// Connections of several workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    all: Vec<Connected>,
    is_too_long: bool,
}

impl Connections {
    /// One more; `false` if there are too many, whatever else comes.
    pub fn push(&mut self, one: Connected) -> bool {
        match self.all.len() < CONNECTED_MAX {
            true => self.all.push(one),
            false => self.is_too_long = true,
        }
        !self.is_too_long
    }

    /// Those of another worker as well.
    pub fn add(&mut self, more: Self) {
        self.is_too_long |= more.is_too_long;
        for one in more.all {
            if !self.push(one) {
                self.all.clear();
                return;
            }
        }
    }

    /// All of them, in no order; `None` if there are more than [`CONNECTED_MAX`].
    pub fn all(&self) -> Option<&[Connected]> {
        (!self.is_too_long).then_some(&self.all)
    }
}

impl<E: Engine> Hub<E> {
    /// This worker's subscribers of a channel, in no order.
    pub fn sessions_of(&self, channel: &str) -> impl Iterator<Item = ConnectionId> + use<'_, E> {
        let channel = self.find(channel).map(|index| &self.channels[index]);
        let slots = channel.map_or(&[][..], |channel| channel.subscribers.as_slice());
        let slots = slots.iter().filter(|slot| **slot != NONE);
        slots.map(|slot| self.subscriptions.session(*slot))
    }

    /// What a session of this worker is subscribed to, or is about to be, latest first.
    pub fn channels_of(&self, session: ConnectionId) -> impl Iterator<Item = &Arc<str>> {
        let channels = self.subscriptions.channels_of(session);
        channels.map(|index| &self.channels[index].name)
    }
}
