//! Reads `[[app]]` with `runtime = "fastcgi"`: the FastCGI server, and the limits of requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use veche_calls::FastcgiPool;
use veche_terminal::nearest_hint;

use super::identity::{duration, number};
use super::{Checker, list, text};
use crate::names::parse_url;
use crate::raw::RawTable;
use crate::secret::{SecretSource, SecretValue};
use crate::types::{AppConfig, Fastcgi};

/// Directives without a default that apply only to Lua scripts.
const OF_LUA: [&str; 1] = ["files"];

/// Directives without a default that apply only to scripts behind FastCGI.
pub(super) const OF_FASTCGI: [&str; 3] = ["address", "api_url", "api_key_file"];

/// The events that a script may handle.
const EVENTS: [&str; 12] = [
    "open",
    "message",
    "close",
    "request",
    "connect",
    "refresh",
    "subscribe",
    "sub_refresh",
    "publish",
    "rpc",
    "client_message",
    "disconnect",
];

/// The time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a response in bytes. A response consists of frames, the last of which is the answer to the event.
/// The maximum is about twice the length of the longest frame, so that other frames fit before a long answer.
const RESPONSE_BYTES_MAX: usize = 34 << 20;

impl Checker<'_> {
    /// Reads an application whose script a FastCGI server runs; `None` if a value is invalid.
    pub(super) fn fastcgi(
        &mut self,
        table: &RawTable,
        name: Option<&str>,
        app: AppConfig,
    ) -> Option<AppConfig> {
        self.of_another_runtime(table, &OF_LUA, "fastcgi");
        let script = self.required(table, "script").filter(|script| {
            let is_whole = script.starts_with('/');
            if !is_whole {
                let why = "script: expected an absolute path, as the FastCGI server sees it";
                self.problems.add(table.value_at("script"), why);
            }
            is_whole
        });
        let address = match text(table, "address") {
            Some(address) => {
                let at = table.value_at("address");
                self.take("address", at, check_address(&address))
                    .map(|()| address)
            }
            None => {
                if table.is_sound("address") {
                    let why =
                        "[[app]] with runtime \"fastcgi\" lacks \"address\", which is required";
                    self.problems.add(table.at, why);
                }
                None
            }
        };
        let events = self.events_of_script(table);
        let api = self.api_of_script(table);
        let pool = FastcgiPool {
            address: address?,
            script: script?,
            size: number(table, "workers") as usize,
            connect_timeout: CONNECT_TIMEOUT,
            wait_timeout: duration(table, "queue_timeout"),
            timeout: duration(table, "event_timeout"),
            idle_timeout: duration(table, "idle_ttl"),
            response_bytes_max: RESPONSE_BYTES_MAX,
        };
        Some(AppConfig {
            name: name?.to_owned(),
            script: PathBuf::from(&pool.script),
            fastcgi: Some(Fastcgi {
                pool: Arc::new(pool),
                events: events?,
                api: api?,
            }),
            ..app
        })
    }

    fn events_of_script(&mut self, table: &RawTable) -> Option<Vec<String>> {
        let mut is_sound = true;
        let events = list(table, "events");
        for (index, event) in events.iter().enumerate() {
            if !EVENTS.contains(&event.as_str()) {
                let nearest = nearest_hint(event, EVENTS);
                let why = format!("events: unknown event {event:?}{nearest}");
                self.problems.add(table.item_at("events", index), why);
                is_sound = false;
            }
        }
        is_sound.then_some(events)
    }

    /// Returns the address at which the script calls the server API, and the API key that it uses. Returns `Some(None)`
    /// if they are not set, and `None` if one of them is invalid.
    fn api_of_script(&mut self, table: &RawTable) -> Option<Option<(String, Option<SecretValue>)>> {
        let Some(url) = text(table, "api_url") else {
            if table.has("api_key_file") {
                let why = "api_key_file: has no effect without \"api_url\"";
                self.problems.add(table.key_at("api_key_file"), why);
                return None;
            }
            return Some(None);
        };
        let url = self.take("api_url", table.value_at("api_url"), parse_url(&url));
        let key = match text(table, "api_key_file") {
            None => None,
            Some(file) => {
                let at = table.value_at("api_key_file");
                let file = self.base.join(file);
                let source = SecretSource::File(file.clone());
                let key = self.take("api_key_file", at, (self.world.secret)(&source))?;
                self.only_for_some("api_key_file", at, &file);
                Some(key)
            }
        };
        Some(Some((url?.expose().to_owned(), key)))
    }
}

/// Checks that the FastCGI client accepts an address.
fn check_address(text: &str) -> Result<(), String> {
    let parsed: Result<veche_fastcgi::Address, _> = text.parse();
    parsed
        .map(drop)
        .map_err(|error| format!("{error}, found {text:?}"))
}
