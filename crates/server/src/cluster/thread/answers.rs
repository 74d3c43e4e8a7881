//! Converts the replies of workers to parts of a node's answer to other nodes.

use veche_hub::{CommandDispatch, HubReply};
use veche_nodes::NodeAnswer;
use veche_nodes::node::Part;

/// Converts a worker's reply to a part of an answer; `None` for replies that the node does not request.
pub(super) fn part_of(answer: HubReply) -> Option<Part> {
    Some(match answer {
        HubReply::CommandDispatched(CommandDispatch {
            connections,
            pending_acknowledgements: open,
        }) => Part::Instructed { connections, open },
        HubReply::CommandAcknowledged => Part::Settled,
        HubReply::Connections(all) => Part::Answer(NodeAnswer::Connections(all)),
        HubReply::Channels(all) => Part::Answer(NodeAnswer::Channels(all)),
        HubReply::UserStatus(status) => Part::Answer(NodeAnswer::UserStatus(status)),
        HubReply::Subscribed(_)
        | HubReply::Published(_)
        | HubReply::Failed
        | HubReply::History(_)
        | HubReply::HistoryRemoved(_)
        | HubReply::Presence(_)
        | HubReply::PresenceStats(_)
        | HubReply::Partial { .. } => return None,
    })
}
