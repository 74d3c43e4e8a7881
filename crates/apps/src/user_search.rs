//! Connections of a user, looked for on all workers: a question to each by mail, and one answer made of all answers.
//!
//! Who is whose the hub knows. This knows which of them are an application's, and who waits for the answer.

use std::collections::HashMap;

use veche_calls::{CallError, CallErrorKind, CallOutcome, Reply, WorkerConnection};
use veche_frontends::{AppId, Context};
use veche_runtime::{Runtime, Token};

use super::app_hosts::AppHosts;
use super::remote_sends::RemoteAction;

/// A worker that has not answered after so long lags too much.
const PATIENCE_MS: u64 = 5000;

/// Bytes of a place in mail.
const PLACE_BYTES: usize = size_of::<WorkerConnection>();

/// What one worker asks another one.
pub(super) struct UserSearch {
    /// Whom to answer.
    from: u16,
    token: Token,
    user: String,
    limit: usize,
}

/// What that one has.
pub(super) struct UserSearchResult {
    token: Token,
    places: Vec<WorkerConnection>,
}

/// Searches of this worker's applications.
#[derive(Default)]
pub(super) struct UserSearches {
    under_way: HashMap<(AppId, Token), PendingSearch>,
    /// Over, and not handed in.
    over: Vec<(AppId, Token, CallOutcome)>,
}

struct PendingSearch {
    places: Vec<WorkerConnection>,
    limit: usize,
    /// Workers that have not answered.
    missing: u16,
    until_ms: u64,
}

impl UserSearches {
    /// Nobody waits for it any more.
    pub(super) fn cancel(&mut self, app: AppId, token: Token) {
        self.under_way.remove(&(app, token));
        self.over.retain(|(of, own, _)| (*of, *own) != (app, token));
    }

    /// Something is known at once; it is handed in when the script waits for it.
    pub(super) fn complete(&mut self, app: AppId, token: Token, outcome: CallOutcome) {
        self.over.push((app, token, outcome));
    }

    /// When something is to be handed in.
    pub(super) fn due_ms(&self) -> u64 {
        if !self.over.is_empty() {
            return 0;
        }
        let due = self.under_way.values().map(|find| find.until_ms);
        due.min().unwrap_or(u64::MAX)
    }
}

impl PendingSearch {
    /// In order, no more than were asked for.
    fn outcome(mut self) -> CallOutcome {
        self.places.sort_unstable();
        self.places.truncate(self.limit);
        Ok(Reply::Places(self.places))
    }
}

impl AppHosts {
    /// Begins a search.
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
            return self.finds.over.push((app, token, find.outcome()));
        }
        self.finds.under_way.insert((app, token), find);
        for worker in (0..self.workers).filter(|worker| *worker != self.worker) {
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

    /// Another worker looks for a user's connections.
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

    /// Another worker has looked.
    pub(super) fn search_answered(&mut self, app: AppId, finding: UserSearchResult) {
        let key = (app, finding.token);
        let Some(find) = self.finds.under_way.get_mut(&key) else {
            return;
        };
        find.places.extend(finding.places);
        find.missing -= 1;
        if find.missing == 0
            && let Some(find) = self.finds.under_way.remove(&key)
        {
            self.finds.over.push((app, key.1, find.outcome()));
        }
    }

    /// Lets those go on whose search is over, or has taken too long.
    pub(super) fn deliver_searches(&mut self, shared: &mut Context) {
        let now_ms = shared.now.mono_ms;
        let late = self
            .finds
            .under_way
            .extract_if(|_, find| find.until_ms <= now_ms);
        let late = late.map(|((app, token), _)| {
            let seconds = PATIENCE_MS / 1000;
            let words = format!("connections: a worker has not answered within {seconds} s");
            (
                app,
                token,
                Err(CallError::new(CallErrorKind::Timeout, words)),
            )
        });
        self.finds.over.extend(late);
        for (app, token, outcome) in std::mem::take(&mut self.finds.over) {
            self.run(app, None, shared, |app, now| {
                app.runtime.handle_outcome(token, outcome, now);
            });
        }
    }

    /// Those of this worker that the application has.
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
        let places = own.map(|id| WorkerConnection {
            worker: self.worker,
            index: id.index,
            generation: id.generation,
        });
        places.take(limit).collect()
    }
}
