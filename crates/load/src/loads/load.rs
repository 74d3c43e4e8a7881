//! The trait of all loads.

use veche_proto::websocket::MessageKind;

use crate::client::{LoadResponse, ResponseExpectation};
use crate::clock::SECOND;
use crate::engine::{EngineState, LoadIo};
use crate::tally::ErrorCase;

/// Time to wait for duplicates of the last answers.
pub(super) const TWICE_NS: u64 = SECOND / 10;

/// Decides which messages the clients of a thread send and when, and evaluates received messages. `client_index` is the
/// index of a client in the thread.
pub(crate) trait Load {
    /// Returns whether connections are opened before the run starts; otherwise opening them is measured.
    fn opens_first(&self) -> bool {
        true
    }

    /// Returns how many clients the thread is allowed to open for now. They are opened in the order of their indices.
    fn opens_until(&self, net: &EngineState) -> u32 {
        net.clients.len() as u32
    }

    /// Handles the start of the run at `start_ns`. From then on open clients may send.
    fn begin(&mut self, io: &mut LoadIo<'_>, start_ns: u64);

    /// Handles a successful handshake of a client, before or after `begin`.
    fn opened(&mut self, io: &mut LoadIo<'_>, client_index: u32);

    /// Modifies the target of a client's WebSocket handshake before it is sent.
    fn amend(&self, client_index: u32, path: &mut String) {
        let _ = (client_index, path);
    }

    /// Handles a failure of a client, or the unexpected end of its connection if `was_open`.
    /// Returns `true` if only the load counts the failure, so that it is not an error of the run.
    fn forgives(&mut self, fault: &ErrorCase, was_open: bool) -> bool {
        let _ = (fault, was_open);
        false
    }

    /// Handles a message of a WebSocket.
    fn message(
        &mut self,
        io: &mut LoadIo<'_>,
        client_index: u32,
        kind: MessageKind,
        data: &mut [u8],
    ) {
        let _ = (io, client_index, kind, data);
    }

    /// Handles a response. If it was the last one on its connection, the client is already closed.
    fn response(&mut self, io: &mut LoadIo<'_>, client_index: u32, response: LoadResponse) {
        let _ = (io, client_index, response);
    }

    /// Handles a received line; `line` does not include the line terminator.
    fn line(&mut self, io: &mut LoadIo<'_>, client_index: u32, line: &[u8]) {
        let _ = (io, client_index, line);
    }

    /// Handles the failure or unexpected end of a client. The failure is already counted or excused.
    fn closed(&mut self, io: &mut LoadIo<'_>, client_index: u32, was_open: bool) {
        let _ = (io, client_index, was_open);
    }

    /// Performs due work; returns when to call it again.
    fn due(&mut self, io: &mut LoadIo<'_>) -> u64 {
        let _ = io;
        u64::MAX
    }

    /// Sends messages that were due in the measured time but could not be sent before. Called
    /// repeatedly after the measured time.
    fn drain(&mut self, io: &mut LoadIo<'_>) {
        let _ = io;
    }

    /// Returns whether the load has ended by itself. Called after all connections have opened or
    /// failed.
    fn is_done(&self, net: &EngineState) -> bool {
        let _ = net;
        false
    }

    /// Returns whether the load no longer waits for any answer.
    fn is_settled(&self, net: &EngineState) -> bool;

    /// Counts all answers that have not arrived as missing.
    fn finish(&mut self, net: &mut EngineState);

    /// Returns what responses are expected to contain; only used for HTTP.
    fn expects(&self) -> ResponseExpectation {
        ResponseExpectation::default()
    }
}
