//! Records in the store the members of the channels whose home is this worker.

use std::sync::Arc;

use veche_nodes::engine::channel as wire;

use super::{RemoteEngine, Task, data};
use crate::engine::{Catalog, EngineReply, EngineReport, MemberChange, QueryContext};
use crate::{ClientInfo, FeedEvent, MEMBERS_MAX, PresenceError, PresenceStats};

impl RemoteEngine {
    /// Records in the store that a member has joined or left. If presence counts users, also
    /// queries whether other nodes have the same user, and the reply is deferred.
    pub(super) fn change_member(&mut self, change: &MemberChange<'_>) -> EngineReply<bool> {
        let is_asking = change.is_by_user && change.is_announced;
        let notice = is_asking.then(|| change.context());
        self.note_member(
            change.channel,
            change.client,
            change.event != FeedEvent::Left,
            notice,
        );
        match is_asking {
            true => EngineReply::Deferred,
            false => EngineReply::Ready(true),
        }
    }

    fn note_member(
        &mut self,
        channel: &Arc<str>,
        client: &ClientInfo,
        is_there: bool,
        notice: Option<crate::engine::MemberChangeContext>,
    ) {
        let member = wire::Member {
            ticket: 0,
            channel: Arc::clone(channel),
            client: client.client.clone(),
            user: client.user.clone(),
            data: is_there.then(|| data::encode_member(client)),
            finds_user: notice.is_some(),
        };
        let member = Box::new(member);
        self.order(Task::Member { notice, member });
    }

    /// Records the changes of occupancy that could not be recorded before. If the store has lost members or occupied
    /// channels, records all of them again.
    pub(super) fn restore(&mut self, catalog: &Catalog<'_>) {
        if self.connection.is_none() {
            return;
        }
        self.record();
        if std::mem::take(&mut self.has_forgotten) {
            for (channel, client) in catalog.members() {
                self.note_member(channel, client, true, None);
            }
            for channel in catalog.occupied() {
                self.note_occupancy(channel, true);
            }
        }
    }

    pub(super) fn ask_members(&mut self, channel: &str, caller: QueryContext, only_counts: bool) {
        let channel = Arc::from(channel);
        self.order(Task::Presence {
            caller,
            channel,
            only_counts,
        });
    }

    pub(super) fn members_found(&mut self, caller: QueryContext, found: Option<wire::Members>) {
        let report = match found {
            Some(wire::Members::Counts(clients, users)) => {
                EngineReport::PresenceStats(caller, Ok(PresenceStats { clients, users }))
            }
            Some(wire::Members::List(members)) if members.len() <= MEMBERS_MAX => {
                let members = members.iter();
                let members = members.filter_map(|one| data::decode_member(one).map(Arc::new));
                EngineReport::Presence(caller, Ok(members.collect()))
            }
            Some(_) => EngineReport::Presence(caller, Err(PresenceError::TooMany)),
            None => EngineReport::Presence(caller, Err(PresenceError::Unavailable)),
        };
        self.reports.push_back(report);
    }

    /// Reports that a member of another node has left because the lease of that node has ended. `is_elsewhere` states
    /// whether the same user is a member on a node whose lease is valid.
    pub(super) fn departed(&mut self, channel: Arc<str>, data: &[u8], is_elsewhere: bool) {
        match data::decode_member(data) {
            Some(client) => {
                let report = EngineReport::LeaseExpired(channel, Arc::new(client), is_elsewhere);
                self.reports.push_back(report);
            }
            None => self.ignored += 1,
        }
    }
}
