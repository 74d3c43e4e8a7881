//! Resolves host names with the system's resolver.

use tokio::net::lookup_host;
use tokio::time::timeout;
use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply, ResolveCall};

pub(crate) async fn perform(call: ResolveCall) -> CallOutcome {
    let host = &call.host;
    // The resolver's interface requires a port, which is ignored here.
    let found = match timeout(call.timeout, lookup_host((host.as_str(), 0))).await {
        Err(_) => {
            let words = format!("no answer from DNS for {host:?} within {:?}", call.timeout);
            return Err(CallError::new(CallErrorKind::Timeout, words));
        }
        Ok(Err(error)) => {
            let words = format!("no address for {host:?}: {error}");
            return Err(CallError::new(CallErrorKind::Unreachable, words));
        }
        Ok(Ok(found)) => found,
    };
    let mut addresses = Vec::new();
    for address in found {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    if addresses.is_empty() {
        let words = format!("no address for {host:?}");
        return Err(CallError::new(CallErrorKind::Unreachable, words));
    }
    Ok(CallReply::Addresses(addresses))
}
