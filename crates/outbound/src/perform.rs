//! Who performs which call.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use veche_calls::mysql::Database;
use veche_calls::redis::RedisDatabase;
use veche_calls::{Call, CallOutcome};
use veche_tls::TrustStores;

use crate::metrics::{ClientKind, Metrics};
use crate::{http, mysql, password, redis, resolve};

/// What calls share: pools and clients, by what they lead to.
#[derive(Debug)]
pub(crate) struct ClientCache {
    pub(crate) metrics: Metrics,
    http: Arc<http::HttpClient>,
    mysql: ClientsByServer<Database, mysql::MysqlClient>,
    redis: ClientsByServer<RedisDatabase, redis::RedisClient>,
    password: password::Hasher,
}

/// Clients by their servers.
type ClientsByServer<K, C> = Mutex<HashMap<Arc<K>, Arc<C>>>;

impl Default for ClientCache {
    fn default() -> Self {
        let metrics = Metrics::default();
        let figures = Arc::clone(metrics.of(ClientKind::Http));
        let hashing = Arc::clone(metrics.of(ClientKind::Password));
        Self {
            metrics,
            http: Arc::new(http::HttpClient::new(figures)),
            mysql: Mutex::default(),
            redis: Mutex::default(),
            password: password::Hasher::new(hashing),
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

/// The client for a server, made when it is first asked for.
fn find<K: Eq + Hash, C>(
    known: &ClientsByServer<K, C>,
    server: &Arc<K>,
    make: impl FnOnce() -> C,
) -> Arc<C> {
    let mut known = known.lock();
    let place = known.entry(Arc::clone(server));
    Arc::clone(place.or_insert_with(|| Arc::new(make())))
}

/// Performs one.
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
    };
    clients.metrics.of(client).ended(&outcome);
    outcome
}
