//! Who performs which call.

use veche_calls::{Call, Outcome};

use crate::resolve;

/// What calls share: pools and clients, by what they lead to.
#[derive(Debug, Default)]
pub(crate) struct Clients {}

/// Performs one.
pub(crate) async fn perform(_clients: &Clients, call: Call) -> Outcome {
    match call {
        Call::Resolve(resolve) => resolve::perform(resolve).await,
    }
}
