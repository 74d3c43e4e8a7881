//! The server as its users meet it: the real process, real sockets, the main job and what may go wrong in it.
//!
//! Most tests run on every [`support::setups`]: each back end, one worker and three.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod access_log;
mod admin;
mod alerts;
mod apps;
mod asked;
mod backing_tls;
mod bad_input;
mod blocks;
mod caps;
mod carried_out;
mod centrifuge;
mod centrifuge_one_way;
mod chat;
mod churn;
mod confined;
mod dashboard;
mod decisions;
mod dump;
mod durability;
mod events;
mod examples;
mod guide;
mod history;
mod history_budgets;
mod history_on_disk;
mod hook;
mod http_apps;
mod http_client;
mod jwt;
mod jwt_kinds;
mod ledger;
mod lifecycle;
mod limits;
mod lua_api;
mod lua_positions;
mod main_job;
mod mysql;
mod pam;
mod paths;
mod peer;
mod php_workers;
mod planted;
mod present;
mod proxy;
mod proxy_protocol;
mod public_names;
mod rates;
mod redis;
mod scrape;
mod secrets;
mod services;
mod shared_apps;
mod slow_handlers;
mod slow_query;
mod slow_reader;
mod static_files;
mod suite;
mod timeouts;
mod tls;
mod websocket;
