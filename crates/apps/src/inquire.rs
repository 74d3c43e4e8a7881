//! Channel queries by applications: passed to the hub, whose answer goes to the waiting handler.

use std::sync::Arc;

use veche_calls::channel::{ChannelReply, Inquiry, Member, Published};
use veche_calls::{Fault, FaultKind, Outcome, Reply};
use veche_frontends::{AppId, Shared};
use veche_hub::{
    Answer, ChannelName, ClientInfo, ConnectionId, Mail, Outlet as _, PayloadKind, Position,
    Publication, Query, Question, Since,
};
use veche_runtime::Token;

use super::here::Here;

/// Stands in for a session's index in queries of applications; no connection has this index.
const ASKER: u32 = u32::MAX;

/// Returns the application that made a query, unless a session did.
pub(super) fn asker(session: ConnectionId) -> Option<AppId> {
    (session.index == ASKER).then_some(AppId(session.generation as u16))
}

impl Here {
    /// Sends a query to the home of a channel.
    pub(super) fn inquire(
        &mut self,
        app: AppId,
        token: Token,
        channel: &str,
        inquiry: Inquiry,
        shared: &mut Shared,
    ) {
        let session = ConnectionId {
            index: ASKER,
            generation: app.0.into(),
        };
        let asked = question(inquiry).and_then(|question| {
            let name = ChannelName::new(channel).map_err(|error| refused(&error.to_string()))?;
            Ok((name, question))
        });
        let (name, question) = match asked {
            Ok(asked) => asked,
            Err(fault) => return self.finds.end(app, token, Err(fault)),
        };
        let ticket = self.tickets.issue(session, channel, token);
        let (hub, ports) = (&mut shared.hub, &mut shared.ports);
        if let (Some(nodes), Question::UserStatus) = (ports.nodes, &question) {
            let mail = Mail::Ask {
                channel: Arc::from(name.as_str()),
                question,
                session,
                ticket,
            };
            return ports.mail(nodes, mail);
        }
        if let veche_hub::Outcome::Done(answer) = hub.ask((session, ticket), name, question, ports)
        {
            self.tickets.take(session, ticket);
            if let Some(outcome) = outcome(&answer) {
                self.finds.end(app, token, outcome);
            }
        }
    }
}

fn question(inquiry: Inquiry) -> Result<Question, Fault> {
    Ok(match inquiry {
        Inquiry::History {
            since,
            limit,
            is_reverse,
        } => {
            let since = since.map(|since| since.parse::<Position>()).transpose();
            let since = since.map_err(|error| refused(&format!("since: {error}")))?;
            Question::History(Query {
                since: since.map(Since::from),
                limit,
                is_reverse,
                ..Query::default()
            })
        }
        Inquiry::Presence => Question::Presence,
        Inquiry::PresenceStats => Question::PresenceStats,
        Inquiry::UserStatus => Question::UserStatus,
    })
}

/// Converts the hub's answer for the waiting handler; `None` if no query leads to such an answer.
pub(super) fn outcome(answer: &Answer) -> Option<Outcome> {
    let reply = match answer {
        Answer::History(Ok(page)) => ChannelReply::History {
            publications: page.iter().map(|one| published(&one)).collect(),
            position: page.position.to_string(),
        },
        Answer::Presence(Ok(clients)) => {
            ChannelReply::Presence(clients.iter().map(|one| member(one)).collect())
        }
        Answer::PresenceStats(Ok(stats)) => ChannelReply::PresenceStats {
            clients: stats.clients,
            users: stats.users,
        },
        Answer::UserStatus(status) => ChannelReply::UserStatus {
            connections: status.connections,
            last_seen_ms: status.last_seen_ms,
        },
        Answer::History(Err(error)) => return Some(Err(refused(&error.to_string()))),
        Answer::Presence(Err(error)) | Answer::PresenceStats(Err(error)) => {
            return Some(Err(refused(&error.to_string())));
        }
        _ => return None,
    };
    Some(Ok(Reply::Channel(reply)))
}

fn refused(words: &str) -> Fault {
    Fault::new(FaultKind::Refused, words)
}

fn published(publication: &Publication) -> Published {
    let info = publication.info.as_deref();
    let tags = info.map_or(&[][..], |info| &info.tags);
    Published {
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

fn member(client: &ClientInfo) -> Member {
    Member {
        user: client.user.to_string(),
        client: client.client.to_string(),
        info: client.conn_info.as_ref().map(|info| info.bytes.to_vec()),
    }
}
