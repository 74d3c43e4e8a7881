//! Disconnection of a user by the back end. The reply comes only when the disconnection is done.

use veche_hub::{
    CommandDispatch, ConnectionId, HubReply, RequestOutcome, Ticket, UserAction, UserCommand,
};

use crate::apps::BACK_END;
use crate::back_end::BackEndRequest;
use crate::channels::{self, CHANNELS};
use crate::coverage::CoverageEvent;
use crate::failure::{PromiseResult, promise};
use crate::world::World;

/// An incomplete call to disconnect a user, with the counts that the API keeps for it.
pub(crate) struct PendingDisconnect {
    /// The user's connections at the time of the call, each with its worker.
    meant: Vec<(usize, ConnectionId)>,
    /// Outstanding acknowledgements; negative if some come before the home's reply.
    open: i64,
    /// Whether the user's home worker has replied.
    is_counted: bool,
}

impl World {
    /// Disconnects all connections of a user through a worker.
    pub(crate) fn kick(&mut self, worker: usize, user: u8) -> PromiseResult {
        let user = CHANNELS[channels::own_channel(user.into())].user;
        let user = user.unwrap_or_default();
        let mut meant = Vec::new();
        for (place, worker) in self.process.workers.iter().enumerate() {
            let sessions = worker.shared().hub.sessions_of_user(user);
            meant.extend(sessions.map(|id| (place, id)));
        }
        let ticket = self.ticket(BackEndRequest::Disconnect(PendingDisconnect {
            meant,
            open: 0,
            is_counted: false,
        }));
        let action = UserAction::Disconnect {
            code: 3503,
            reason: "go".into(),
        };
        let now = self.now();
        let shared = self.process.workers[worker].shared_mut();
        shared.set_now(now);
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        let from = Some((BACK_END, ticket));
        match hub.send_user_command(from, user, UserCommand::to_all(action), ports) {
            Ok(RequestOutcome::Done(instructed)) => {
                self.disconnect_answered(ticket, &HubReply::CommandDispatched(instructed))
            }
            Ok(RequestOutcome::Pending) => Ok(()),
            Err(error) => {
                promise!(false, "users can be disconnected", "{error}");
                Ok(())
            }
        }
    }

    /// Handles a reply to a call that disconnects a user.
    pub(crate) fn disconnect_answered(
        &mut self,
        ticket: Ticket,
        answer: &HubReply,
    ) -> PromiseResult {
        let Some(BackEndRequest::Disconnect(call)) =
            self.back_end.requests.get_mut(ticket.0 as usize)
        else {
            return Ok(());
        };
        match answer {
            HubReply::CommandDispatched(CommandDispatch {
                pending_acknowledgements: open,
                ..
            }) => {
                call.open += i64::from(*open);
                call.is_counted = true;
            }
            HubReply::CommandAcknowledged => call.open -= 1,
            answer => promise!(false, "every answer has a request", "{answer:?}"),
        }
        if !call.is_counted || call.open != 0 {
            return Ok(());
        }
        self.ledger.seen.note(CoverageEvent::KickAnswered);
        for (worker, id) in std::mem::take(&mut call.meant) {
            let hub = &self.process.workers[worker].shared().hub;
            let channels: Vec<_> = hub.channels_of(id).collect();
            promise!(
                channels.is_empty(),
                "a disconnected user receives nothing after the answer",
                "{id:?} of worker {worker} is subscribed to {channels:?}"
            );
        }
        Ok(())
    }
}
