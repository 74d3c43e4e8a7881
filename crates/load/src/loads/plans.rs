//! What each load does, as plain data.

use serde::{Deserialize, Serialize};

use crate::payload::PayloadPlan;
use crate::schedule::Arrivals;
use crate::target::BodyTemplate;

/// Which question, with its particulars.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LoadPlan {
    /// Connect, one message and its answer.
    Storm(StormPlan),
    /// Messages and their answers.
    Echo(EchoPlan),
    /// Requests and their responses.
    Http(HttpPlan),
    /// Publications and their deliveries.
    Fanout(FanoutPlan),
    /// Steps of clients until round trips take too long.
    Shootout(ShootoutPlan),
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
}

/// Bounds of the pause, in nanoseconds; its length is uniformly distributed between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkTime {
    /// The shortest pause; 0 lets a client send at once.
    pub min_ns: u64,
    /// The longest pause, at least `min_ns`.
    pub max_ns: u64,
}

/// What an echo run sends, and when.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EchoPlan {
    /// The messages.
    pub payload: PayloadPlan,
    /// Closed loop: messages in flight on each connection.
    pub inflight: u32,
    /// Open loop: messages a second in all, whether answers come or not.
    pub rate: Option<f64>,
    /// What `rate` goes to, in a straight line over the measured time.
    pub rate_to: Option<f64>,
    /// How the messages of an open loop are spaced.
    pub arrivals: Arrivals,
    /// Closed loop: the pause between an answer and the next message.
    pub think: Option<ThinkTime>,
    /// Connections closed in good order a second in all, once their answers have come; each is opened again.
    pub churn: Option<f64>,
}

/// One request of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HttpRequestPlan {
    /// GET, POST…, but not HEAD.
    pub method: String,
    /// With its query.
    pub path: String,
    /// Empty for none.
    pub body: Vec<u8>,
}

/// What is asked for, and when.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpPlan {
    /// GET, POST…
    pub method: String,
    /// HTTP/1.0 with keep-alive instead of HTTP/1.1, as `ab` speaks it.
    pub is_http10: bool,
    /// The body of each request.
    pub body: BodyTemplate,
    /// Requests in flight on each connection; with an open loop the most that there may be.
    pub inflight: u32,
    /// Open loop: requests a second in all.
    pub rate: Option<f64>,
    /// What `rate` goes to, in a straight line over the measured time.
    pub rate_to: Option<f64>,
    /// How the requests of an open loop are spaced.
    pub arrivals: Arrivals,
    /// Closed loop: the pause between a response and the next request.
    pub think: Option<ThinkTime>,
    /// The body that each response should have.
    pub expect: Option<Vec<u8>>,
    /// What is asked for in turn, instead of the method, the endpoint's path and the body; from the beginning again after
    /// the last one. Each thread begins elsewhere in the list. A status below 500 is an answer then: what is wrong with
    /// a request the list knows.
    pub list: Vec<HttpRequestPlan>,
}

/// Who publishes what, and when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FanoutPlan {
    /// What a publisher sends: `{data}` is the numbered message, `{i}` the receiver's number if each goes to one.
    pub body: String,
    /// Each publication goes to one receiver, in turn, instead of all.
    pub to_one: bool,
    /// Publications a second in all.
    pub rate: f64,
    /// What `rate` goes to, in a straight line over the measured time.
    pub rate_to: Option<f64>,
    /// Publications that are due at a time, from one publisher and, where each goes to one receiver, to the same one.
    /// Receivers that recover take one at a time.
    pub burst: u32,
    /// How publications are spaced.
    pub arrivals: Arrivals,
    /// Bytes of the numbered message.
    pub size: usize,
    /// What a receiver sends when it is open, to subscribe.
    pub hello: Option<String>,
    /// A number that no other run has: messages of others are none of ours.
    pub run: u32,
    /// Receivers cut off a second in all; each comes back a little later.
    pub chaos: Option<f64>,
    /// Receivers come back to where they were, and are owed what they missed; a publication counts when it is answered,
    /// and connections that end are opened again, publishers' too.
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

/// How a shootout goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShootoutPlan {
    /// `broadcast` instead of `echo`.
    pub broadcast: bool,
    /// Clients that each step adds.
    pub step: u32,
    /// Round trips in flight over all clients.
    pub concurrent: u32,
    /// Round trips of a step.
    pub samples: u32,
    /// The 95th percentile that ends it, in nanoseconds.
    pub limit_ns: u64,
}

/// What a storm sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StormPlan {
    /// The message.
    pub payload: PayloadPlan,
}
