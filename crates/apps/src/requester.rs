//! Requests of applications to the hub and to the API. Each has an id in the place of a session's, above the indices of all
//! connections, so that its response finds the way back.

use veche_frontends::AppId;
use veche_hub::ConnectionId;

/// The index of queries.
const QUERIES: u32 = u32::MAX;
/// The index of API calls is this minus the application's number.
const API_CALLS: u32 = u32::MAX - 1;

/// The origin of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Requester {
    /// A client's session, or a back end's call.
    Connection,
    /// A query by an application.
    Query(AppId),
    /// An API call by an application.
    ApiCall {
        app: AppId,
        /// Its number among the calls of the worker.
        number: u32,
    },
}

impl Requester {
    /// Returns the requester that has this id.
    pub(super) fn of(id: ConnectionId) -> Self {
        if id.index == QUERIES {
            return Self::Query(AppId(id.generation as u16));
        }
        match API_CALLS.checked_sub(id.index).map(u16::try_from) {
            Some(Ok(app)) => Self::ApiCall {
                app: AppId(app),
                number: id.generation,
            },
            _ => Self::Connection,
        }
    }

    /// Returns the application, if it is one.
    pub(super) fn app(self) -> Option<AppId> {
        match self {
            Self::Connection => None,
            Self::Query(app) | Self::ApiCall { app, .. } => Some(app),
        }
    }
}

/// Returns the id of an application's queries.
pub(super) fn query_id(app: AppId) -> ConnectionId {
    ConnectionId {
        index: QUERIES,
        generation: app.0.into(),
    }
}

/// Returns the id of an application's API call.
pub(super) fn api_call_id(app: AppId, number: u32) -> ConnectionId {
    ConnectionId {
        index: API_CALLS - u32::from(app.0),
        generation: number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_belongs_to_one_requester() {
        for number in [0, 7, u16::MAX] {
            let app = AppId(number);
            assert_eq!(Requester::of(query_id(app)), Requester::Query(app));
            for number in [0, 1, u32::MAX] {
                let call = Requester::ApiCall { app, number };
                assert_eq!(Requester::of(api_call_id(app, number)), call);
                assert_eq!(call.app(), Some(app));
            }
        }
        let last = API_CALLS - u32::from(u16::MAX) - 1;
        for index in [0, last] {
            let id = ConnectionId {
                index,
                generation: 0,
            };
            assert_eq!(Requester::of(id), Requester::Connection);
            assert_eq!(Requester::of(id).app(), None);
        }
    }
}
