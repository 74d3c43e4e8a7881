//! An application whose events are requests to a script.

use std::sync::Arc;

use veche_calls::{FastcgiCall, FastcgiClient, FastcgiPool, Secret};
use veche_runtime::wire::{EventName, VERSION};

/// An application's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Name of the application in the configuration.
    pub name: String,
    /// The application's options, a JSON object.
    pub options: String,
    /// The FastCGI server that runs the script.
    pub pool: Arc<FastcgiPool>,
    /// The events that the script handles; no others are sent to it.
    pub events: Vec<EventName>,
    /// The address of the server API and the API key, both passed to the script.
    pub api: Option<(String, Option<Secret>)>,
}

impl Program {
    /// Returns whether the script handles events of this name.
    #[must_use]
    pub fn handles(&self, event: EventName) -> bool {
        self.events.contains(&event)
    }

    /// Returns the FastCGI request that passes an event to the script.
    pub(crate) fn request(&self, client: FastcgiClient, body: Vec<u8>) -> FastcgiCall {
        let mut variables = vec![
            ("VECHE_PROTOCOL", Secret(VERSION.to_string())),
            ("VECHE_APP", Secret(self.name.clone())),
            ("VECHE_OPTIONS", Secret(self.options.clone())),
        ];
        if let Some((url, key)) = &self.api {
            variables.push(("VECHE_API_URL", Secret(url.clone())));
            variables.extend(key.iter().map(|key| ("VECHE_API_KEY", key.clone())));
        }
        FastcgiCall {
            pool: Arc::clone(&self.pool),
            client,
            variables,
            body,
        }
    }
}
