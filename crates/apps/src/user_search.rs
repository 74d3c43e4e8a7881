//! Searches for a user's connections on all workers: a message asks every other worker for its
//! connections, and the answers of all workers form one result.
//!
//! The hub lists the connections of a user. This module selects those that belong to the searching
//! application, and tracks the handlers that wait for a result.

use std::collections::HashMap;

use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply, WorkerConnection};
use veche_frontends::{AppId, Context};
use veche_runtime::{Runtime, Token};
use veche_types::WorkerId;

use super::app_hosts::AppHosts;
use super::remote_sends::RemoteAction;

/// The time in milliseconds after which a search fails if a worker has not answered.
const PATIENCE_MS: u64 = 5000;

/// The size of one found connection in a message between workers, in bytes.
const PLACE_BYTES: usize = size_of::<WorkerConnection>();

/// A request to another worker for its connections of a user.
pub(super) struct UserSearch {
    /// Index of the requesting worker.
    from: WorkerId,
    token: Token,
    user: String,
    limit: usize,
}

/// A worker's answer to a search request.
pub(super) struct UserSearchResult {
    token: Token,
    places: Vec<WorkerConnection>,
}

/// The searches for users' connections that this worker's applications have started.
#[derive(Default)]
pub(super) struct UserSearches {
    under_way: HashMap<(AppId, Token), PendingSearch>,
    /// Completed searches whose result has not been delivered.
    over: Vec<(AppId, Token, CallOutcome)>,
}

struct PendingSearch {
    places: Vec<WorkerConnection>,
    limit: usize,
    /// The number of workers that have not answered.
    missing: u16,
    until_ms: u64,
}

impl UserSearches {
    /// Cancels a search that no handler waits for any more.
    pub(super) fn cancel(&mut self, app: AppId, token: Token) {
        self.under_way.remove(&(app, token));
        self.over.retain(|(of, own, _)| (*of, *own) != (app, token));
    }

    /// Records an outcome that is already known, so that it is delivered once the handler waits for
    /// it.
    pub(super) fn complete(&mut self, app: AppId, token: Token, outcome: CallOutcome) {
        self.over.push((app, token, outcome));
    }

    /// Returns the time at which a result has to be delivered, in monotonic milliseconds: 0 if one is available now,
    /// `u64::MAX` if no search is in progress.
    pub(super) fn due_ms(&self) -> u64 {
        if !self.over.is_empty() {
            return 0;
        }
        let due = self.under_way.values().map(|find| find.until_ms);
        due.min().unwrap_or(u64::MAX)
    }
}

impl PendingSearch {
    /// Returns the connections found, sorted, at most the requested number.
    fn outcome(mut self) -> CallOutcome {
        self.places.sort_unstable();
        self.places.truncate(self.limit);
        Ok(CallReply::Places(self.places))
    }
}

impl AppHosts {
    /// Starts a search for the connections of a user on all workers.
    pub(super) fn find(
        &mut self,
        app: AppId,
        token: Token,
        user: String,
        limit: usize,
        shared: &Context,
    ) {
        let find = PendingSearch {
            places: self.local_addresses(app, &user, limit, shared),
            limit,
            missing: self.workers.saturating_sub(1),
            until_ms: shared.now.mono_ms + PATIENCE_MS,
        };
        if find.missing == 0 {
            return self.user_searches.over.push((app, token, find.outcome()));
        }
        self.user_searches.under_way.insert((app, token), find);
        for worker in (0..self.workers)
            .map(WorkerId)
            .filter(|worker| *worker != self.worker)
        {
            let bytes = user.len();
            let search = UserSearch {
                from: self.worker,
                token,
                user: user.clone(),
                limit,
            };
            self.far
                .enqueue(worker, app, RemoteAction::Find(search), bytes);
        }
    }

    /// Answers the search request of another worker.
    pub(super) fn search_local(&mut self, app: AppId, search: UserSearch, shared: &Context) {
        let UserSearch {
            from,
            token,
            user,
            limit,
        } = search;
        let places = self.local_addresses(app, &user, limit, shared);
        let bytes = places.len() * PLACE_BYTES;
        let finding = UserSearchResult { token, places };
        self.far
            .enqueue(from, app, RemoteAction::Found(finding), bytes);
    }

    /// Adds another worker's answer to a search.
    pub(super) fn search_answered(&mut self, app: AppId, finding: UserSearchResult) {
        let key = (app, finding.token);
        let Some(find) = self.user_searches.under_way.get_mut(&key) else {
            return;
        };
        find.places.extend(finding.places);
        find.missing -= 1;
        if find.missing == 0
            && let Some(find) = self.user_searches.under_way.remove(&key)
        {
            self.user_searches.over.push((app, key.1, find.outcome()));
        }
    }

    /// Resumes handlers whose search is complete or has timed out.
    pub(super) fn deliver_searches(&mut self, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        let late = self
            .user_searches
            .under_way
            .extract_if(|_, find| find.until_ms <= now_ms);
        let late = late.map(|((app, token), _)| {
            let seconds = PATIENCE_MS / 1000;
            let words = format!("connections: a worker has not responded within {seconds} s");
            (
                app,
                token,
                Err(CallError::new(CallErrorKind::Timeout, words)),
            )
        });
        self.user_searches.over.extend(late);
        for (app, token, outcome) in std::mem::take(&mut self.user_searches.over) {
            self.run(app, None, shared, |app, now| {
                app.runtime.handle_outcome(token, outcome, now);
            });
        }
    }

    /// Returns a user's connections to the application on this worker, at most `limit`.
    fn local_addresses(
        &self,
        app: AppId,
        user: &str,
        limit: usize,
        shared: &Context,
    ) -> Vec<WorkerConnection> {
        let app = self.apps.get(usize::from(app.0)).and_then(Option::as_ref);
        let Some(app) = app else { return Vec::new() };
        let sessions = shared.hub.sessions_of_user(user);
        let own = sessions.filter(|id| app.runtime.is_open(*id));
        let places = own.map(|connection| WorkerConnection {
            worker: self.worker,
            connection,
        });
        places.take(limit).collect()
    }
}
