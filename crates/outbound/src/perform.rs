//! Who performs which call.

use veche_calls::{Call, Outcome};

use crate::metrics::{Client, Metrics};
use crate::resolve;

/// What calls share: pools and clients, by what they lead to.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) metrics: Metrics,
}

/// Performs one.
pub(crate) async fn perform(clients: &Clients, call: Call) -> Outcome {
    let (client, outcome) = match call {
        Call::Resolve(resolve) => (Client::Resolve, resolve::perform(resolve).await),
    };
    clients.metrics.of(client).ended(&outcome);
    outcome
}
