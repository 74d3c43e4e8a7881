//! Ids for requests of applications to the hub and to the API. Such an id is a [`ConnectionId`] with an index that
//! no connection has. It identifies the application that gets the reply.

use veche_frontends::AppId;
use veche_hub::ConnectionId;

/// The index in the [`ConnectionId`]s that stand for queries of channels.
const QUERIES: u32 = u32::MAX;
/// The index in the [`ConnectionId`] that stands for an API call is this value minus the application's number.
const API_CALLS: u32 = u32::MAX - 1;

/// The application that made a request, with the kind of the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Requester {
    /// A query of a channel by an application.
    Query(AppId),
    /// A call of the API.
    ApiCall {
        app: AppId,
        /// The number of the call among the API calls of this worker.
        number: u32,
    },
}

impl Requester {
    /// Returns the requester with this id; `None` if the id belongs to a connection.
    pub(super) fn of(id: ConnectionId) -> Option<Self> {
        if id.index == QUERIES {
            return Some(Self::Query(AppId(id.generation as u16)));
        }
        let app = API_CALLS.checked_sub(id.index)?;
        Some(Self::ApiCall {
            app: AppId(u16::try_from(app).ok()?),
            number: id.generation,
        })
    }

    /// Returns the id that stands for the requester where the hub expects the id of a session.
    pub(super) fn id(self) -> ConnectionId {
        match self {
            Self::Query(app) => ConnectionId {
                index: QUERIES,
                generation: app.0.into(),
            },
            Self::ApiCall { app, number } => ConnectionId {
                index: API_CALLS - u32::from(app.0),
                generation: number,
            },
        }
    }

    /// Returns the application that made the request and gets the response.
    pub(super) fn app(self) -> AppId {
        match self {
            Self::Query(app) | Self::ApiCall { app, .. } => app,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_belongs_to_one_requester() {
        for number in [0, 7, u16::MAX] {
            let app = AppId(number);
            let calls = [0, 1, u32::MAX].map(|number| Requester::ApiCall { app, number });
            for requester in calls.into_iter().chain([Requester::Query(app)]) {
                assert_eq!(Requester::of(requester.id()), Some(requester));
                assert_eq!(requester.app(), app);
            }
        }
        let last = API_CALLS - u32::from(u16::MAX) - 1;
        for index in [0, last] {
            let id = ConnectionId {
                index,
                generation: 0,
            };
            assert_eq!(Requester::of(id), None);
        }
    }
}
