//! Lists of connections with their properties.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire;

/// Maximum number of connections in a list.
pub const CONNECTIONS_LISTED_MAX: usize = 1000;

/// The properties of a connection, as back ends see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// The client id that the client protocol assigned, or a unique id if the protocol has none.
    pub client: Box<str>,
    /// The user; empty for an anonymous connection.
    pub user: Box<str>,
    /// The handler of the connection's route, such as `push`.
    pub handler: Cow<'static, str>,
    /// The transport that carries the messages, such as `websocket`.
    pub transport: Cow<'static, str>,
    /// The encoding of the messages, if the client protocol has several.
    pub protocol: Cow<'static, str>,
    /// The path of the connection's route.
    pub route: Box<str>,
    /// The client's IP address. Behind trusted proxies, it is the address that the proxies report.
    pub address: IpAddr,
    /// The name that the client sent, if the client protocol has one.
    pub name: Box<str>,
    /// The version that the client sent, if the client protocol has one.
    pub version: Box<str>,
    /// The channels to which the client is subscribed.
    #[serde(with = "wire::texts")]
    pub channels: Box<[Arc<str>]>,
}

/// A list of connections, collected from several workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionList {
    all: Vec<ConnectionInfo>,
    is_too_long: bool,
}

impl ConnectionList {
    /// Adds a connection. Returns `false` if the list has reached [`CONNECTIONS_LISTED_MAX`], so that the connection
    /// was not added.
    pub fn push(&mut self, one: ConnectionInfo) -> bool {
        match self.all.len() < CONNECTIONS_LISTED_MAX {
            true => self.all.push(one),
            false => self.is_too_long = true,
        }
        !self.is_too_long
    }

    /// Adds the connections of another worker.
    pub fn add(&mut self, more: Self) {
        self.is_too_long |= more.is_too_long;
        for one in more.all {
            if !self.push(one) {
                self.all.clear();
                return;
            }
        }
    }

    /// Returns all connections in unspecified order; `None` if there are more than [`CONNECTIONS_LISTED_MAX`].
    pub fn all(&self) -> Option<&[ConnectionInfo]> {
        (!self.is_too_long).then_some(&self.all)
    }
}
