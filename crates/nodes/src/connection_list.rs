//! Which connections hear a channel, and what they are.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire;

/// The most connections that are listed at once.
pub const CONNECTIONS_LISTED_MAX: usize = 1000;

/// A connection, as back ends see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// Its id: its protocol's own, or one that tells it apart from others here.
    pub client: Box<str>,
    /// The user; empty for an anonymous connection.
    pub user: Box<str>,
    /// The handler of its route, such as `push`.
    pub handler: Cow<'static, str>,
    /// What carries its messages, such as `websocket`.
    pub transport: Cow<'static, str>,
    /// The encoding of its messages, where the protocol has several.
    pub protocol: Cow<'static, str>,
    /// The path of its route.
    pub route: Box<str>,
    /// The client's address, as trusted proxies determine it.
    pub address: IpAddr,
    /// The name that the client gives itself, where its protocol has one.
    pub name: Box<str>,
    /// The version that the client gives itself.
    pub version: Box<str>,
    /// The channels that it is subscribed to.
    #[serde(with = "wire::texts")]
    pub channels: Box<[Arc<str>]>,
}

/// Connections of several workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionList {
    all: Vec<ConnectionInfo>,
    is_too_long: bool,
}

impl ConnectionList {
    /// Adds a connection; `false` once the list exceeds [`CONNECTIONS_LISTED_MAX`].
    pub fn push(&mut self, one: ConnectionInfo) -> bool {
        match self.all.len() < CONNECTIONS_LISTED_MAX {
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

    /// All of them, in no order; `None` if there are more than [`CONNECTIONS_LISTED_MAX`].
    pub fn all(&self) -> Option<&[ConnectionInfo]> {
        (!self.is_too_long).then_some(&self.all)
    }
}
