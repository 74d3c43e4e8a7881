//! Requests to scripts behind FastCGI.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::Secret;

/// A script behind a FastCGI server, and the settings of its requests. Equal values share limits and connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FastcgiPool {
    /// Address of the server: `unix:/PATH` or `HOST:PORT`.
    pub address: String,
    /// Path of the script in the file system of the FastCGI server.
    pub script: String,
    /// Maximum number of concurrent requests, at least 1.
    pub size: usize,
    /// The time limit for opening a connection.
    pub connect_timeout: Duration,
    /// The maximum time that a request waits for another request to finish.
    pub wait_timeout: Duration,
    /// The time limit of a request.
    pub timeout: Duration,
    /// How long an idle connection is kept; with zero, connections are closed after a request.
    pub idle_timeout: Duration,
    /// Maximum length of a response in bytes.
    pub response_bytes_max: usize,
}

/// A request to a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastcgiCall {
    /// The script and its server.
    pub pool: Arc<FastcgiPool>,
    /// The client's request that the script handles.
    pub client: FastcgiClient,
    /// Additional variables of the script; a value may be a secret.
    pub variables: Vec<(&'static str, Secret)>,
    /// The request body. It is not sent as a form, so the script reads it as is.
    pub body: Vec<u8>,
}

/// Properties of the client whose event a script handles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastcgiClient {
    /// Path of the client's request.
    pub path: String,
    /// Query of the client's request without the `?`, encoded.
    pub query: String,
    /// The client's address, if known.
    pub remote: Option<IpAddr>,
    /// Headers of the client's request.
    pub headers: Vec<(String, String)>,
}

/// The response of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastcgiReply {
    /// The status; 200 if the script set none.
    pub status: u16,
    /// The body of the response.
    pub body: Vec<u8>,
    /// The script's output on STDERR.
    pub log: Vec<u8>,
}
