//! What clients do: one file per question.

pub mod echo;
mod expiry;
pub mod fanout;
mod flight;
pub mod http;
mod open_loop;
pub mod shootout;
pub mod storm;
pub mod think;

use serde::{Deserialize, Serialize};
use veche_proto::websocket::MessageKind;

use crate::client::{Expect, Response};
use crate::clock::SECOND;
use crate::engine::{Io, Net};
use crate::plan::Share;
use crate::tally::Fault;

/// How long duplicates of the last answers are waited for.
const TWICE_NS: u64 = SECOND / 10;

/// Which question, with its particulars.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LoadPlan {
    /// Connect, one message and its answer.
    Storm(storm::StormPlan),
    /// Messages and their answers.
    Echo(echo::EchoPlan),
    /// Requests and their responses.
    Http(http::HttpPlan),
    /// Publications and their deliveries.
    Fanout(fanout::FanoutPlan),
    /// Steps of clients until round trips take too long.
    Shootout(shootout::ShootoutPlan),
}

impl LoadPlan {
    /// Messages a second in all at the beginning of an open loop; `None` of a closed one.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Echo(plan) => plan.rate,
            Self::Http(plan) => plan.rate,
            Self::Fanout(plan) => Some(plan.rate),
            Self::Storm(_) | Self::Shootout(_) => None,
        }
    }

    /// Changes the rate of an open loop; nothing of a closed one.
    pub fn set_rate(&mut self, per_second: f64) {
        match self {
            Self::Echo(plan) => plan.rate = plan.rate.map(|_| per_second),
            Self::Http(plan) => plan.rate = plan.rate.map(|_| per_second),
            Self::Fanout(plan) => plan.rate = per_second,
            Self::Storm(_) | Self::Shootout(_) => {}
        }
    }

    /// Whether messages carry a stamp, by which answers are matched; `None` for loads that match by other means.
    #[must_use]
    pub fn is_stamped(&self) -> Option<bool> {
        match self {
            Self::Storm(plan) => Some(plan.payload.is_stamped()),
            Self::Echo(plan) => Some(plan.payload.is_stamped()),
            Self::Http(_) | Self::Fanout(_) | Self::Shootout(_) => None,
        }
    }

    /// What one thread runs.
    pub(crate) fn load(&self, share: &Share) -> Box<dyn Load> {
        match self {
            Self::Storm(plan) => Box::new(storm::Storm::new(plan, share)),
            Self::Echo(plan) => Box::new(echo::Echo::new(plan, share)),
            Self::Http(plan) => Box::new(http::Http::new(plan, share)),
            Self::Fanout(plan) => Box::new(fanout::Fanout::new(plan, share)),
            Self::Shootout(plan) => Box::new(shootout::Shootout::new(plan, share)),
        }
    }
}

/// Decides what the clients of a thread send when, and judges what comes. `who` counts the clients of the thread.
pub(crate) trait Load {
    /// Whether connections are opened before the run starts; otherwise opening them is what is measured.
    fn opens_first(&self) -> bool {
        true
    }

    /// How many of the clients may be begun by now.
    fn opens_until(&self, net: &Net) -> u32 {
        net.clients.len() as u32
    }

    /// The run has started, at `start_ns`; what is open may send.
    fn begin(&mut self, io: &mut Io<'_>, start_ns: u64);

    /// A client's handshake has succeeded, before or after `begin`.
    fn opened(&mut self, io: &mut Io<'_>, who: u32);

    /// A client's WebSocket handshake is about to be sent, with this target.
    fn amend(&self, who: u32, path: &mut String) {
        let _ = (who, path);
    }

    /// A client that has been open before has failed, or has ended though nobody wanted it; `was_open` says which.
    /// Whether that is none of the run's faults: then the load counts it, and nobody else.
    fn forgives(&mut self, fault: &Fault, was_open: bool) -> bool {
        let _ = (fault, was_open);
        false
    }

    /// A message came.
    fn message(&mut self, io: &mut Io<'_>, who: u32, kind: MessageKind, data: &mut [u8]) {
        let _ = (io, who, kind, data);
    }

    /// A response came. If it was its connection's last, the client is closed already.
    fn response(&mut self, io: &mut Io<'_>, who: u32, response: Response) {
        let _ = (io, who, response);
    }

    /// A line came, without its end.
    fn line(&mut self, io: &mut Io<'_>, who: u32, line: &[u8]) {
        let _ = (io, who, line);
    }

    /// A client has failed, or ended though nobody wanted it; counted already, or forgiven.
    fn closed(&mut self, io: &mut Io<'_>, who: u32, was_open: bool) {
        let _ = (io, who, was_open);
    }

    /// Does what is due by now; when it wants to be asked again.
    fn due(&mut self, io: &mut Io<'_>) -> u64 {
        let _ = io;
        u64::MAX
    }

    /// Called again and again once the measurement is over: what was due in it and could not leave yet still may.
    fn drain(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// Whether it has ended by itself. Asked once all connections are open or have failed.
    fn is_done(&self, net: &Net) -> bool {
        let _ = net;
        false
    }

    /// Whether no answer is awaited any more.
    fn is_settled(&self, net: &Net) -> bool;

    /// Counts what is still awaited: it will not come.
    fn finish(&mut self, net: &mut Net);

    /// For HTTP: what responses are to be like.
    fn expects(&self) -> Expect {
        Expect::default()
    }
}
