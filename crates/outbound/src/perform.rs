//! Assigns calls to their clients.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use veche_calls::mysql::Database;
use veche_calls::redis::Keyspace;
use veche_calls::{Call, FastcgiPool, Outcome};
use veche_tls::Trusts;

use crate::metrics::{Client, Metrics};
use crate::{fastcgi, http, mysql, password, redis, resolve};

/// Pools and clients, shared by calls with the same settings.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) metrics: Metrics,
    http: Arc<http::Client>,
    mysql: Known<Database, mysql::Client>,
    redis: Known<Keyspace, redis::Client>,
    password: password::Hasher,
    fastcgi: Known<FastcgiPool, fastcgi::Client>,
}

/// Clients by server.
type Known<K, C> = Mutex<HashMap<Arc<K>, Arc<C>>>;

impl Default for Clients {
    fn default() -> Self {
        let metrics = Metrics::default();
        let figures = Arc::clone(metrics.of(Client::Http));
        let hashing = Arc::clone(metrics.of(Client::Password));
        Self {
            metrics,
            http: Arc::new(http::Client::new(figures)),
            mysql: Mutex::default(),
            redis: Mutex::default(),
            password: password::Hasher::new(hashing),
            fastcgi: Mutex::default(),
        }
    }
}

impl Clients {
    pub(crate) fn trusts(&self) -> &Arc<Trusts> {
        self.http.trusts()
    }

    fn mysql(&self, database: &Arc<Database>) -> Arc<mysql::Client> {
        find(&self.mysql, database, || {
            mysql::Client::new(database, Arc::clone(self.metrics.of(Client::Mysql)))
        })
    }

    pub(crate) fn redis(&self, keyspace: &Arc<Keyspace>) -> Arc<redis::Client> {
        find(&self.redis, keyspace, || {
            redis::Client::new(keyspace, Arc::clone(self.metrics.of(Client::Redis)))
        })
    }
}

impl Clients {
    fn fastcgi(&self, pool: &Arc<FastcgiPool>) -> Arc<fastcgi::Client> {
        find(&self.fastcgi, pool, || {
            fastcgi::Client::new(pool, Arc::clone(self.metrics.of(Client::Fastcgi)))
        })
    }
}

/// Returns the client of a server, creating it on first use.
fn find<K: Eq + Hash, C>(known: &Known<K, C>, server: &Arc<K>, make: impl FnOnce() -> C) -> Arc<C> {
    let mut known = known.lock();
    let place = known.entry(Arc::clone(server));
    Arc::clone(place.or_insert_with(|| Arc::new(make())))
}

/// Performs one call.
pub(crate) async fn perform(clients: &Clients, call: Call) -> Outcome {
    let (client, outcome) = match call {
        Call::Resolve(resolve) => (Client::Resolve, resolve::perform(resolve).await),
        Call::Http(call) => (Client::Http, clients.http.perform(call).await),
        Call::Mysql(mysql) => {
            let client = clients.mysql(&mysql.database);
            (Client::Mysql, client.perform(mysql).await)
        }
        Call::Redis(redis) => {
            let client = clients.redis(&redis.keyspace);
            (Client::Redis, client.perform(redis).await)
        }
        Call::Password(call) => (Client::Password, clients.password.perform(call).await),
        Call::Fastcgi(call) => {
            let client = clients.fastcgi(&call.pool);
            (Client::Fastcgi, client.perform(*call).await)
        }
    };
    clients.metrics.of(client).ended(&outcome);
    outcome
}
