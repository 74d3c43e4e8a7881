//! Plans of the loads, as plain data.

use serde::{Deserialize, Serialize};

use crate::payload::PayloadPlan;
use crate::schedule::Arrivals;
use crate::target::BodyTemplate;

/// The load of a run with its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LoadPlan {
    /// Each client connects, sends one message and gets its answer.
    Storm(StormPlan),
    /// Messages and their answers.
    Echo(EchoPlan),
    /// Requests and their responses.
    Http(HttpPlan),
    /// Publications and their deliveries.
    Fanout(FanoutPlan),
    /// The number of clients grows until round trips take too long.
    Shootout(ShootoutPlan),
}

impl LoadPlan {
    /// Returns the initial total rate per second of an open loop; `None` for a closed one.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Echo(plan) => plan.rate,
            Self::Http(plan) => plan.rate,
            Self::Fanout(plan) => Some(plan.rate),
            Self::Storm(_) | Self::Shootout(_) => None,
        }
    }

    /// Changes the rate of an open loop; no effect on a closed one.
    pub fn set_rate(&mut self, per_second: f64) {
        match self {
            Self::Echo(plan) => plan.rate = plan.rate.map(|_| per_second),
            Self::Http(plan) => plan.rate = plan.rate.map(|_| per_second),
            Self::Fanout(plan) => plan.rate = per_second,
            Self::Storm(_) | Self::Shootout(_) => {}
        }
    }

    /// Returns whether messages are stamped so that answers can be matched; `None` for loads that
    /// do not use stamps.
    #[must_use]
    pub fn is_stamped(&self) -> Option<bool> {
        match self {
            Self::Storm(plan) => Some(plan.payload.is_stamped()),
            Self::Echo(plan) => Some(plan.payload.is_stamped()),
            Self::Http(_) | Self::Fanout(_) | Self::Shootout(_) => None,
        }
    }
}

/// Bounds of the think time in nanoseconds; it is uniformly distributed between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkTime {
    /// Minimum; 0 lets a client send immediately.
    pub min_ns: u64,
    /// Maximum, at least `min_ns`.
    pub max_ns: u64,
}

/// Parameters of an echo run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EchoPlan {
    /// The content of the messages.
    pub payload: PayloadPlan,
    /// Closed loop: messages in flight on each connection.
    pub inflight: u32,
    /// Open loop: total messages per second, independent of answers.
    pub rate: Option<f64>,
    /// The final rate in messages per second, reached linearly over the measured time; `None` if the rate is constant.
    pub rate_to: Option<f64>,
    /// Spacing of an open loop's messages.
    pub arrivals: Arrivals,
    /// Closed loop: the pause between an answer and the next message.
    pub think: Option<ThinkTime>,
    /// Total connections per second that are closed cleanly once their answers have arrived, and reopened.
    pub churn: Option<f64>,
}

/// One request of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HttpRequestPlan {
    /// The method, such as GET or POST, but not HEAD.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Body; may be empty.
    pub body: Vec<u8>,
}

/// Parameters of an HTTP run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpPlan {
    /// The method: GET, POST…
    pub method: String,
    /// Whether to use HTTP/1.0 with keep-alive, as `ab` does, instead of HTTP/1.1.
    pub is_http10: bool,
    /// The body of each request.
    pub body: BodyTemplate,
    /// Closed loop: requests in flight on each connection. Open loop: the maximum number of them.
    pub inflight: u32,
    /// Open loop: total requests per second.
    pub rate: Option<f64>,
    /// The final rate in requests per second, reached linearly over the measured time; `None` if the rate is constant.
    pub rate_to: Option<f64>,
    /// Spacing of an open loop's requests.
    pub arrivals: Arrivals,
    /// Closed loop: the pause between a response and the next request.
    pub think: Option<ThinkTime>,
    /// The expected body of each response.
    pub expect: Option<Vec<u8>>,
    /// Requests sent in turn and repeated from the beginning. They replace the method, the endpoint's path and the
    /// body. Each thread starts at a different position of the list. A list may contain invalid requests on purpose, so
    /// all statuses below 500 count as success.
    pub list: Vec<HttpRequestPlan>,
}

/// Parameters of a broadcast or push run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FanoutPlan {
    /// The body of a publication. `{data}` stands for the numbered message, and `{i}` for the
    /// receiver's number if each publication goes to one receiver.
    pub body: String,
    /// Whether each publication goes to one receiver in turn, instead of to all.
    pub to_one: bool,
    /// Total publications per second.
    pub rate: f64,
    /// The final rate in publications per second, reached linearly over the measured time; `None` if the rate is constant.
    pub rate_to: Option<f64>,
    /// Number of publications due at the same time. They come from one publisher and, if each goes
    /// to one receiver, go to the same receiver. Must be 1 with recovery.
    pub burst: u32,
    /// The spacing of the publications.
    pub arrivals: Arrivals,
    /// Length of the numbered message in bytes.
    pub size: usize,
    /// The message that a receiver sends when it is open, to subscribe.
    pub hello: Option<String>,
    /// A number unique to the run: messages of other runs are ignored.
    pub run: u32,
    /// Total receivers disconnected per second; each reconnects a little later.
    pub chaos: Option<f64>,
    /// Whether receivers recover from their positions, so that missed publications are expected. A
    /// publication then counts only once it is acknowledged, and lost connections are reopened,
    /// including those of publishers.
    pub recover: bool,
}

impl Default for FanoutPlan {
    fn default() -> Self {
        Self {
            body: String::new(),
            to_one: false,
            rate: 0.0,
            rate_to: None,
            burst: 1,
            arrivals: Arrivals::default(),
            size: 0,
            hello: None,
            run: 0,
            chaos: None,
            recover: false,
        }
    }
}

/// Parameters of a shootout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShootoutPlan {
    /// Whether clients send messages of the type `broadcast` instead of `echo`.
    pub broadcast: bool,
    /// Clients added per step.
    pub step: u32,
    /// The number of round trips in flight, over all clients.
    pub concurrent: u32,
    /// Round trips per step.
    pub samples: u32,
    /// The 95th percentile of the round-trip time, in nanoseconds, above which the run ends.
    pub limit_ns: u64,
}

/// Parameters of a storm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StormPlan {
    /// The content of the message.
    pub payload: PayloadPlan,
}
