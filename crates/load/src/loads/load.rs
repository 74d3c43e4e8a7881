//! What every load decides about its clients.

use veche_proto::websocket::MessageKind;

use crate::client::{LoadResponse, ResponseExpectation};
use crate::clock::SECOND;
use crate::engine::{EngineState, LoadIo};
use crate::tally::ErrorCase;

/// How long duplicates of the last answers are waited for.
pub(super) const TWICE_NS: u64 = SECOND / 10;

/// Decides what the clients of a thread send when, and judges what comes. `who` counts the clients of the thread.
pub(crate) trait Load {
    /// Whether connections are opened before the run starts; otherwise opening them is what is measured.
    fn opens_first(&self) -> bool {
        true
    }

    /// How many of the clients may be begun by now.
    fn opens_until(&self, net: &EngineState) -> u32 {
        net.clients.len() as u32
    }

    /// The run has started, at `start_ns`; what is open may send.
    fn begin(&mut self, io: &mut LoadIo<'_>, start_ns: u64);

    /// A client's handshake has succeeded, before or after `begin`.
    fn opened(&mut self, io: &mut LoadIo<'_>, who: u32);

    /// A client's WebSocket handshake is about to be sent, with this target.
    fn amend(&self, who: u32, path: &mut String) {
        let _ = (who, path);
    }

    /// A client that was open has failed, or has ended unexpectedly; `was_open` says which.
    /// Whether that is not an error of the run: then only the load counts it.
    fn forgives(&mut self, fault: &ErrorCase, was_open: bool) -> bool {
        let _ = (fault, was_open);
        false
    }

    /// A message came.
    fn message(&mut self, io: &mut LoadIo<'_>, who: u32, kind: MessageKind, data: &mut [u8]) {
        let _ = (io, who, kind, data);
    }

    /// A response came. If it was its connection's last, the client is closed already.
    fn response(&mut self, io: &mut LoadIo<'_>, who: u32, response: LoadResponse) {
        let _ = (io, who, response);
    }

    /// A line came, without its end.
    fn line(&mut self, io: &mut LoadIo<'_>, who: u32, line: &[u8]) {
        let _ = (io, who, line);
    }

    /// A client has failed, or ended unexpectedly; it is counted already, or excused.
    fn closed(&mut self, io: &mut LoadIo<'_>, who: u32, was_open: bool) {
        let _ = (io, who, was_open);
    }

    /// Does what is due by now; when it wants to be asked again.
    fn due(&mut self, io: &mut LoadIo<'_>) -> u64 {
        let _ = io;
        u64::MAX
    }

    /// Called again and again once the measurement is over: what was due in it and could not leave yet still may.
    fn drain(&mut self, io: &mut LoadIo<'_>) {
        let _ = io;
    }

    /// Whether it has ended by itself. Asked once all connections are open or have failed.
    fn is_done(&self, net: &EngineState) -> bool {
        let _ = net;
        false
    }

    /// Whether no answer is awaited any more.
    fn is_settled(&self, net: &EngineState) -> bool;

    /// Counts what is still awaited: it will not come.
    fn finish(&mut self, net: &mut EngineState);

    /// For HTTP: what responses are to be like.
    fn expects(&self) -> ResponseExpectation {
        ResponseExpectation::default()
    }
}
