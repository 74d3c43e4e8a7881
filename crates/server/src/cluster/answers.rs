//! Answers of workers as parts of a node's answer.

use veche_hub::{Answer, Instructed};
use veche_nodes::Answer as NodeAnswer;
use veche_nodes::node::Part;

/// Returns the part that an answer of a worker is; `None` for answers that the node does not ask for.
pub(super) fn part_of(answer: Answer) -> Option<Part> {
    Some(match answer {
        Answer::Instructed(Instructed { connections, open }) => {
            Part::Instructed { connections, open }
        }
        Answer::Settled => Part::Settled,
        Answer::Connections(all) => Part::Answer(NodeAnswer::Connections(all)),
        Answer::Channels(all) => Part::Answer(NodeAnswer::Channels(all)),
        Answer::UserStatus(status) => Part::Answer(NodeAnswer::UserStatus(status)),
        Answer::Subscribed(_)
        | Answer::Published(_)
        | Answer::Failed
        | Answer::History(_)
        | Answer::HistoryRemoved(_)
        | Answer::Presence(_)
        | Answer::PresenceStats(_)
        | Answer::Partial { .. } => return None,
    })
}
