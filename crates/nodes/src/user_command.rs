//! Commands of back ends for the connections of a user.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use veche_types::{Payload, Since};

use crate::wire;

/// A command for the connections of a user. Each session executes it as its client protocol requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCommand {
    /// If set, the command applies only to the connection with this client id.
    pub client: Option<Box<str>>,
    /// If set, the command applies only to the connection whose connect reply contained this session id; only
    /// connections without a WebSocket have one.
    pub session: Option<Box<str>>,
    /// The client ids of connections to which the command does not apply.
    #[serde(default)]
    pub except: Box<[Box<str>]>,
    /// The action to perform.
    #[serde(rename = "action")]
    pub action: UserAction,
}

/// An action on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserAction {
    /// Closes the user's connection.
    Disconnect {
        /// The close code of the client protocol.
        code: u16,
        /// The reason as text for humans, sent with the code.
        #[serde(with = "wire::text")]
        reason: Arc<str>,
    },
    /// Subscribes the connection to a channel.
    Subscribe(Box<SubscribeAction>),
    /// Unsubscribes the connection from a channel.
    Unsubscribe {
        /// Name of the channel to unsubscribe from.
        #[serde(with = "wire::text")]
        channel: Arc<str>,
    },
    /// Changes the expiry of the connection, or ends the connection.
    Refresh {
        /// Whether the connection ends now.
        is_expired: bool,
        /// The new expiry in seconds since 1970; `None`: the connection does not expire.
        expires_at_s: Option<u64>,
        /// The new public data of the connection; `None`: unchanged.
        #[serde(default, with = "wire::payload")]
        info: Option<Payload>,
    },
}

/// A subscription made by a back end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeAction {
    /// Name of the channel to subscribe to.
    #[serde(with = "wire::text")]
    pub channel: Arc<str>,
    /// The position up to which the client has received the channel's publications, if later ones are to be recovered.
    #[serde(default, with = "wire::since")]
    pub since: Option<Since>,
    /// Public data of the subscription.
    #[serde(default, with = "wire::payload")]
    pub chan_info: Option<Payload>,
    /// Data that only the client receives, with the subscription.
    #[serde(default, with = "wire::payload")]
    pub data: Option<Payload>,
    /// The expiry in seconds since 1970; `None`: the subscription ends with the connection.
    pub expires_at_s: Option<u64>,
    /// Whether the subscription is hidden from presence, joins and leaves.
    pub is_hidden: bool,
    /// Whether the client gets joins and leaves without requesting them; `None`: as configured for the namespace.
    #[serde(rename = "push_join_leave")]
    pub push_join_leave: Option<bool>,
}

impl UserCommand {
    /// Returns a command for all connections of the user.
    pub fn to_all(action: UserAction) -> Self {
        Self {
            client: None,
            session: None,
            except: Box::default(),
            action,
        }
    }

    /// Returns whether the command applies to the client, apart from the restriction by [`session`](Self::session).
    pub fn applies_to(&self, client: &str) -> bool {
        self.client.as_deref().is_none_or(|only| only == client)
            && !self.except.iter().any(|except| &**except == client)
    }

    /// Returns whether the command applies to all connections of the user.
    pub fn applies_to_all(&self) -> bool {
        self.client.is_none() && self.session.is_none() && self.except.is_empty()
    }
}
