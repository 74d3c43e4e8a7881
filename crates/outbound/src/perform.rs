//! Passes each call to the client for its kind of server, such as HTTP or Redis.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use veche_calls::mysql::Database;
use veche_calls::redis::RedisDatabase;
use veche_calls::{Call, CallOutcome, FastcgiPool};
use veche_tls::TrustStores;

use crate::metrics::{ClientKind, OutboundMetrics};
use crate::{fastcgi, http, mysql, password, redis, resolve};

/// The clients with their connection pools, shared by calls with the same settings.
#[derive(Debug)]
pub(crate) struct ClientCache {
    pub(crate) metrics: OutboundMetrics,
    http: Arc<http::HttpClient>,
    mysql: ClientsByServer<Database, mysql::MysqlClient>,
    redis: ClientsByServer<RedisDatabase, redis::RedisClient>,
    password: password::Hasher,
    fastcgi: ClientsByServer<FastcgiPool, fastcgi::FastcgiServer>,
}

/// Clients by the server that they connect to.
type ClientsByServer<K, C> = Mutex<HashMap<Arc<K>, Arc<C>>>;

impl Default for ClientCache {
    fn default() -> Self {
        let metrics = OutboundMetrics::default();
        let figures = Arc::clone(metrics.of(ClientKind::Http));
        let hashing = Arc::clone(metrics.of(ClientKind::Password));
        Self {
            metrics,
            http: Arc::new(http::HttpClient::new(figures)),
            mysql: Mutex::default(),
            redis: Mutex::default(),
            password: password::Hasher::new(hashing),
            fastcgi: Mutex::default(),
        }
    }
}

impl ClientCache {
    pub(crate) fn trusts(&self) -> &Arc<TrustStores> {
        self.http.trusts()
    }

    fn mysql(&self, database: &Arc<Database>) -> Arc<mysql::MysqlClient> {
        find(&self.mysql, database, || {
            mysql::MysqlClient::new(database, Arc::clone(self.metrics.of(ClientKind::Mysql)))
        })
    }

    pub(crate) fn redis(&self, keyspace: &Arc<RedisDatabase>) -> Arc<redis::RedisClient> {
        find(&self.redis, keyspace, || {
            redis::RedisClient::new(keyspace, Arc::clone(self.metrics.of(ClientKind::Redis)))
        })
    }
}

impl ClientCache {
    fn fastcgi(&self, pool: &Arc<FastcgiPool>) -> Arc<fastcgi::FastcgiServer> {
        find(&self.fastcgi, pool, || {
            fastcgi::FastcgiServer::new(pool, Arc::clone(self.metrics.of(ClientKind::Fastcgi)))
        })
    }
}

/// Returns the client of a server, creating it on first use.
fn find<K: Eq + Hash, C>(
    known: &ClientsByServer<K, C>,
    server: &Arc<K>,
    make: impl FnOnce() -> C,
) -> Arc<C> {
    let mut known = known.lock();
    let place = known.entry(Arc::clone(server));
    Arc::clone(place.or_insert_with(|| Arc::new(make())))
}

/// Performs one call with the client for its server, and counts the outcome.
pub(crate) async fn perform(clients: &ClientCache, call: Call) -> CallOutcome {
    let (client, outcome) = match call {
        Call::Resolve(resolve) => (ClientKind::Resolve, resolve::perform(resolve).await),
        Call::Http(call) => (ClientKind::Http, clients.http.perform(call).await),
        Call::Mysql(mysql) => {
            let client = clients.mysql(&mysql.database);
            (ClientKind::Mysql, client.perform(mysql).await)
        }
        Call::Redis(redis) => {
            let client = clients.redis(&redis.keyspace);
            (ClientKind::Redis, client.perform(redis).await)
        }
        Call::Password(call) => (ClientKind::Password, clients.password.perform(call).await),
        Call::Fastcgi(call) => {
            let client = clients.fastcgi(&call.pool);
            (ClientKind::Fastcgi, client.perform(*call).await)
        }
    };
    clients.metrics.of(client).ended(&outcome);
    outcome
}
