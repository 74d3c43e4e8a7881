//! A hook: the back end says who a client is. What it is told and what its answer means; asking is done elsewhere.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::Now;

use super::finding::{Desk, Finding};
use crate::context::app::Outcome;

/// A request whose client is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The request: a handshake, or one to an application.
    pub head: &'a Head<'a>,
    /// Where it comes from.
    pub client: IpAddr,
}

/// Asks the back end. Shared by all workers; never waits.
pub trait Hook: Send + Sync + fmt::Debug {
    /// Asks who a client is: known at once, or later told exactly once at the desk.
    fn ask(
        &self,
        question: &Question<'_>,
        id: ConnectionId,
        desk: &Arc<dyn Desk>,
        now: Now,
    ) -> Outcome<Finding>;
}
