//! Who performs which call.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use veche_calls::mysql::Database;
use veche_calls::redis::Keyspace;
use veche_calls::{Call, Outcome};
use veche_tls::Trusts;

use crate::metrics::{Client, Metrics};
use crate::{http, mysql, redis, resolve};

/// What calls share: pools and clients, by what they lead to.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) metrics: Metrics,
    http: Arc<http::Client>,
    mysql: Mutex<HashMap<Arc<Database>, Arc<mysql::Client>>>,
    redis: Mutex<HashMap<Arc<Keyspace>, Arc<redis::Client>>>,
}

impl Default for Clients {
    fn default() -> Self {
        let metrics = Metrics::default();
        let figures = Arc::clone(metrics.of(Client::Http));
        Self {
            metrics,
            http: Arc::new(http::Client::new(figures)),
            mysql: Mutex::default(),
            redis: Mutex::default(),
        }
    }
}

impl Clients {
    pub(crate) fn trusts(&self) -> &Arc<Trusts> {
        self.http.trusts()
    }

    fn mysql(&self, database: &Arc<Database>) -> Arc<mysql::Client> {
        let mut known = self.mysql.lock();
        if let Some(client) = known.get(database) {
            return Arc::clone(client);
        }
        let figures = Arc::clone(self.metrics.of(Client::Mysql));
        let client = Arc::new(mysql::Client::new(database, figures));
        known.insert(Arc::clone(database), Arc::clone(&client));
        client
    }

    pub(crate) fn redis(&self, keyspace: &Arc<Keyspace>) -> Arc<redis::Client> {
        let mut known = self.redis.lock();
        if let Some(client) = known.get(keyspace) {
            return Arc::clone(client);
        }
        let figures = Arc::clone(self.metrics.of(Client::Redis));
        let client = Arc::new(redis::Client::new(keyspace, figures));
        known.insert(Arc::clone(keyspace), Arc::clone(&client));
        client
    }
}

/// Performs one.
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
    };
    clients.metrics.of(client).ended(&outcome);
    outcome
}
