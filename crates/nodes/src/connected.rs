//! Which connections hear a channel, and what they are.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire;

/// The most connections that are listed at once.
pub const CONNECTED_MAX: usize = 1000;

/// A connection, as a back end is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// Its id: its protocol's own, or one that tells it apart from others here.
    pub client: Box<str>,
    /// Empty: it has none.
    pub user: Box<str>,
    /// What it speaks.
    pub handler: Cow<'static, str>,
    /// How it comes.
    pub transport: Cow<'static, str>,
    /// In which encoding, where its protocol has several.
    pub protocol: Cow<'static, str>,
    /// The path of its route.
    pub route: Box<str>,
    /// Whose it is, as far as proxies are believed.
    pub address: IpAddr,
    /// What the client says it is: a name and a version, where its protocol has them.
    pub name: Box<str>,
    /// See [`name`](Self::name).
    pub version: Box<str>,
    /// What it is subscribed to.
    #[serde(with = "wire::texts")]
    pub channels: Box<[Arc<str>]>,
}

/// Connections of several workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
