//! What a back end has done to the connections of a user.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use veche_types::{Payload, Since};

use crate::wire;

/// See the module's text. Carried out by the sessions, each as its protocol has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCommand {
    /// Only the connection of this id.
    pub client: Option<Box<str>>,
    /// Only the connection whose connect reply had this session id: one without a WebSocket.
    pub session: Option<Box<str>>,
    /// Not those of these ids.
    #[serde(default)]
    pub except: Box<[Box<str>]>,
    /// What is to be done.
    #[serde(rename = "action")]
    pub action: UserAction,
}

/// What is to be done to a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserAction {
    /// It is closed.
    Disconnect {
        /// With this code.
        code: u16,
        /// For people.
        #[serde(with = "wire::text")]
        reason: Arc<str>,
    },
    /// It is subscribed to a channel.
    Subscribe(Box<SubscribeAction>),
    /// It is subscribed to this channel no more.
    Unsubscribe {
        /// Which.
        #[serde(with = "wire::text")]
        channel: Arc<str>,
    },
    /// It may stay longer, or ends.
    Refresh {
        /// It ends now.
        is_expired: bool,
        /// Until when it may stay, in seconds since 1970; `None` for as long as it likes.
        expires_at_s: Option<u64>,
        /// What others are to know of the connection from now on, if that changes.
        #[serde(default, with = "wire::payload")]
        info: Option<Payload>,
    },
}

/// How a back end subscribes a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeAction {
    /// To which channel.
    #[serde(with = "wire::text")]
    pub channel: Arc<str>,
    /// Up to where the client knows it.
    #[serde(default, with = "wire::since")]
    pub since: Option<Since>,
    /// What others are to know of the subscription.
    #[serde(default, with = "wire::payload")]
    pub chan_info: Option<Payload>,
    /// For the client itself.
    #[serde(default, with = "wire::payload")]
    pub data: Option<Payload>,
    /// Until when it lasts, in seconds since 1970; `None` for as long as the connection.
    pub expires_at_s: Option<u64>,
    /// Neither presence nor joins and leaves show it.
    pub is_hidden: bool,
    /// Whether the client gets joins and leaves without asking; `None`: as the namespace says.
    #[serde(rename = "push_join_leave")]
    pub push_join_leave: Option<bool>,
}

impl UserCommand {
    /// To all connections.
    pub fn to_all(deed: UserAction) -> Self {
        Self {
            client: None,
            session: None,
            except: Box::default(),
            action: deed,
        }
    }

    /// Whether it means the connection of this id, as far as [`session`](Self::session) does not exclude it.
    pub fn applies_to(&self, client: &str) -> bool {
        self.client.as_deref().is_none_or(|only| only == client)
            && !self.except.iter().any(|except| &**except == client)
    }

    /// Whether it means all connections of the user.
    pub fn applies_to_all(&self) -> bool {
        self.client.is_none() && self.session.is_none() && self.except.is_empty()
    }
}
