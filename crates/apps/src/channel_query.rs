//! Queries of channels by applications. They are passed to the hub, and the reply resumes the handler that waits for
//! it.

use std::sync::Arc;

use veche_calls::channel::{AppChannelQuery, ChannelMember, ChannelPublication, ChannelReply};
use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply};
use veche_frontends::{AppId, Context};
use veche_hub::{
    ChannelName, ChannelQuery, ClientInfo, HistoryQuery, HubMessage, HubReply, Outlet as _,
    PayloadKind, Position, Publication, Since,
};
use veche_runtime::Token;

use super::app_hosts::AppHosts;
use super::requester::Requester;

impl AppHosts {
    /// Sends a query to the home of a channel.
    pub(super) fn query_channel(
        &mut self,
        app: AppId,
        token: Token,
        channel: &str,
        request: AppChannelQuery,
        shared: &mut Context,
    ) {
        let session = Requester::Query(app).id();
        let asked = hub_query(request).and_then(|query| {
            let name = ChannelName::new(channel).map_err(|error| refused(&error.to_string()))?;
            Ok((name, query))
        });
        let (name, query) = match asked {
            Ok(asked) => asked,
            Err(fault) => return self.user_searches.complete(app, token, Err(fault)),
        };
        let ticket = self.tickets.issue(session, channel, token);
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        if let (Some(nodes), ChannelQuery::UserStatus) = (ports.nodes, &query) {
            let mail = HubMessage::Query {
                channel: Arc::from(name.as_str()),
                query,
                session,
                ticket,
            };
            return ports.send_message(nodes, mail);
        }
        if let veche_hub::RequestOutcome::Done(answer) =
            hub.query((session, ticket), name, query, ports)
        {
            self.tickets.take(session, ticket);
            if let Some(outcome) = outcome(&answer) {
                self.user_searches.complete(app, token, outcome);
            }
        }
    }
}

fn hub_query(request: AppChannelQuery) -> Result<ChannelQuery, CallError> {
    Ok(match request {
        AppChannelQuery::History {
            since,
            limit,
            is_reverse,
        } => {
            let since = since.map(|since| since.parse::<Position>()).transpose();
            let since = since.map_err(|error| refused(&format!("since: {error}")))?;
            ChannelQuery::History(HistoryQuery {
                since: since.map(Since::from),
                limit,
                is_reverse,
                ..HistoryQuery::default()
            })
        }
        AppChannelQuery::Presence => ChannelQuery::Presence,
        AppChannelQuery::PresenceStats => ChannelQuery::PresenceStats,
        AppChannelQuery::UserStatus => ChannelQuery::UserStatus,
    })
}

/// Converts the hub's reply for the waiting handler. Returns `None` if it is not a reply to a query of a channel.
pub(super) fn outcome(answer: &HubReply) -> Option<CallOutcome> {
    let reply = match answer {
        HubReply::History(Ok(page)) => ChannelReply::History {
            publications: page.iter().map(|one| published(&one)).collect(),
            position: page.position.to_string(),
        },
        HubReply::Presence(Ok(clients)) => {
            ChannelReply::Presence(clients.iter().map(|one| member(one)).collect())
        }
        HubReply::PresenceStats(Ok(stats)) => ChannelReply::PresenceStats {
            clients: stats.clients,
            users: stats.users,
        },
        HubReply::UserStatus(status) => ChannelReply::UserStatus {
            connections: status.connections,
            last_seen_ms: status.last_seen_ms,
        },
        HubReply::History(Err(error)) => return Some(Err(refused(&error.to_string()))),
        HubReply::Presence(Err(error)) | HubReply::PresenceStats(Err(error)) => {
            return Some(Err(refused(&error.to_string())));
        }
        _ => return None,
    };
    Some(Ok(CallReply::Channel(reply)))
}

fn refused(words: &str) -> CallError {
    CallError::new(CallErrorKind::Refused, words)
}

fn published(publication: &Publication) -> ChannelPublication {
    let info = publication.info.as_deref();
    let tags = info.map_or(&[][..], |info| &info.tags);
    ChannelPublication {
        is_text: publication.payload.kind != PayloadKind::Binary,
        data: publication.payload.bytes.to_vec(),
        position: publication
            .position
            .map_or_else(String::new, |position| position.to_string()),
        at_ms: publication.at_ms,
        by: info.and_then(|info| info.client.as_deref()).map(member),
        tags: tags
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
    }
}

fn member(client: &ClientInfo) -> ChannelMember {
    ChannelMember {
        user: client.user.to_string(),
        client: client.client.to_string(),
        info: client.conn_info.as_ref().map(|info| info.bytes.to_vec()),
    }
}
