//! The engine of a node, chosen when the node starts.
//!
//! This is an enumeration instead of a type parameter, because otherwise all code above the hub would be compiled
//! twice. Calls of the memory engine are still direct calls, after one comparison.

use std::sync::Arc;

use crate::engine::{
    Catalog, Engine, EngineGauges, EngineReply, EngineReport, LocalMembers, MaintenanceScope,
    MemberChange, NewPublication, OrderResult, QueryContext, ReadStart, RequestContext,
    StoredChannel,
};
use crate::{
    ClientInfo, HistoryError, HistoryOptions, HistoryPage, HistoryQuery, MemoryEngine, Namespaces,
    Payload, Position, PresenceError, PresenceStats, Publication, RemoteEngine, SubscribeOptions,
    SubscribeOutcome,
};

/// The engine that a node was started with.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is only one engine per worker, so its size does not matter"
)]
pub enum NodeEngine {
    /// The engine in the memory of this process, optionally with a log on disk.
    Memory(MemoryEngine),
    /// An engine outside this process, shared with other nodes.
    Remote(Box<RemoteEngine>),
}

impl NodeEngine {
    /// Returns the memory engine; `None` if the node uses an engine outside this process.
    pub(crate) fn memory(&mut self) -> Option<&mut MemoryEngine> {
        match self {
            Self::Memory(engine) => Some(engine),
            Self::Remote(_) => None,
        }
    }

    /// Returns the engine outside this process; `None` if the node uses the memory engine.
    pub fn remote(&mut self) -> Option<&mut RemoteEngine> {
        match self {
            Self::Memory(_) => None,
            Self::Remote(engine) => Some(engine),
        }
    }
}

/// Calls a method of the engine inside a `NodeEngine`.
macro_rules! on {
    ($engine:expr, $method:ident($($argument:expr),*)) => {
        match $engine {
            NodeEngine::Memory(engine) => engine.$method($($argument),*),
            NodeEngine::Remote(engine) => engine.$method($($argument),*),
        }
    };
}

impl Engine for NodeEngine {
    fn open(&mut self, channel: u32, name: &Arc<str>, now_ms: u64) -> u32 {
        on!(self, open(channel, name, now_ms))
    }

    fn close(&mut self, slot: u32, name: &Arc<str>) {
        on!(self, close(slot, name));
    }

    #[inline]
    fn publish(&mut self, offer: &mut NewPublication<'_, '_>) -> OrderResult {
        on!(self, publish(offer))
    }

    #[inline]
    fn is_deferring(&self) -> bool {
        on!(self, is_deferring())
    }

    fn is_full(&self) -> bool {
        on!(self, is_full())
    }

    #[inline]
    fn reaches_others(&self) -> bool {
        on!(self, reaches_others())
    }

    #[inline]
    fn pending_count(&self, slot: u32) -> u32 {
        on!(self, pending_count(slot))
    }

    fn fence(&mut self, slot: u32, request_context: RequestContext) {
        on!(self, fence(slot, request_context));
    }

    #[inline]
    fn follow(
        &mut self,
        name: &Arc<str>,
        slot: Option<u32>,
        first_read: ReadStart,
    ) -> EngineReply<()> {
        on!(self, follow(name, slot, first_read))
    }

    #[inline]
    fn unfollow(&mut self, name: &Arc<str>, slot: Option<u32>) {
        on!(self, unfollow(name, slot));
    }

    fn join(
        &mut self,
        kept: StoredChannel<'_>,
        subscribe_options: &SubscribeOptions,
    ) -> EngineReply<SubscribeOutcome> {
        on!(self, join(kept, subscribe_options))
    }

    fn is_empty(&self, slot: u32) -> bool {
        on!(self, is_empty(slot))
    }

    fn read(
        &mut self,
        kept: StoredChannel<'_>,
        query: &HistoryQuery,
        answer_max: usize,
        request_context: RequestContext,
    ) -> EngineReply<Result<HistoryPage, HistoryError>> {
        on!(self, read(kept, query, answer_max, request_context))
    }

    fn read_since(&mut self, slot: u32, read: crate::history_segment::HistoryRead) {
        on!(self, read_since(slot, read));
    }

    fn resume(&mut self, slot: u32, position: Position) {
        on!(self, resume(slot, position));
    }

    fn remove(
        &mut self,
        kept: StoredChannel<'_>,
        request_context: RequestContext,
    ) -> EngineReply<Result<(), HistoryError>> {
        on!(self, remove(kept, request_context))
    }

    fn before_removal_reply(&mut self, slot: u32) {
        on!(self, before_removal_reply(slot));
    }

    fn before_delivery(
        &mut self,
        slot: u32,
        publication: &Publication,
        history: &HistoryOptions,
        wants_previous: bool,
        now_ms: u64,
    ) -> Option<Payload> {
        on!(
            self,
            before_delivery(slot, publication, history, wants_previous, now_ms)
        )
    }

    #[inline]
    fn ready_reports(&self) -> usize {
        on!(self, ready_reports())
    }

    #[inline]
    fn poll(&mut self) -> Option<EngineReport> {
        on!(self, poll())
    }

    fn report_handled(&mut self, slot: u32) {
        on!(self, report_handled(slot));
    }

    #[inline]
    fn reports_passed(&mut self) {
        on!(self, reports_passed());
    }

    fn position(&self, slot: u32) -> Position {
        on!(self, position(slot))
    }

    #[inline]
    fn member_changed(&mut self, change: MemberChange<'_>) -> EngineReply<bool> {
        on!(self, member_changed(change))
    }

    #[inline]
    fn occupancy_changed(&mut self, channel: &Arc<str>, is_occupied: bool) -> EngineReply<bool> {
        on!(self, occupancy_changed(channel, is_occupied))
    }

    fn presence(
        &mut self,
        here: LocalMembers<'_>,
        caller: QueryContext,
    ) -> EngineReply<Result<Box<[Arc<ClientInfo>]>, PresenceError>> {
        on!(self, presence(here, caller))
    }

    fn presence_stats(
        &mut self,
        here: LocalMembers<'_>,
        caller: QueryContext,
    ) -> EngineReply<Result<PresenceStats, PresenceError>> {
        on!(self, presence_stats(here, caller))
    }

    fn set_limits(&mut self, namespaces: &Namespaces, bytes_max: usize, workers: u16) {
        on!(self, set_limits(namespaces, bytes_max, workers));
    }

    #[inline]
    fn maintain(
        &mut self,
        catalog: &Catalog<'_>,
        now_ms: u64,
        round: MaintenanceScope,
        gone: &mut Vec<u32>,
    ) {
        on!(self, maintain(catalog, now_ms, round, gone));
    }

    fn has_maintenance(&self) -> bool {
        on!(self, has_maintenance())
    }

    fn gauges(&self) -> EngineGauges {
        on!(self, gauges())
    }
}
