//! Who performs which call.

use std::sync::Arc;

use veche_calls::{Call, Outcome};

use crate::metrics::{Client, Metrics};
use crate::{http, resolve};

/// What calls share: pools and clients, by what they lead to.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) metrics: Metrics,
    http: Arc<http::Client>,
}

impl Default for Clients {
    fn default() -> Self {
        let metrics = Metrics::default();
        let figures = Arc::clone(metrics.of(Client::Http));
        Self {
            metrics,
            http: Arc::new(http::Client::new(figures)),
        }
    }
}

/// Performs one.
pub(crate) async fn perform(clients: &Clients, call: Call) -> Outcome {
    let (client, outcome) = match call {
        Call::Resolve(resolve) => (Client::Resolve, resolve::perform(resolve).await),
        Call::Http(call) => (Client::Http, clients.http.perform(call).await),
    };
    clients.metrics.of(client).ended(&outcome);
    outcome
}
