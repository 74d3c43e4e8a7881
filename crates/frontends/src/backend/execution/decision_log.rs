//! Reports of back end publications to the decision log.

use std::slice;

use crate::backend::command::PublishTarget;
use crate::context::log_note::AuthDecision;
use crate::context::worker_context::Context;

/// Reports a back end's publication to the decision log.
pub(super) fn report_publish(target: &PublishTarget<'_>, shared: &Context) {
    if !shared.process.watches_decisions() {
        return;
    }
    let (users, channels) = match target {
        PublishTarget::User(user) => (slice::from_ref(user), &[][..]),
        PublishTarget::Users(users) => (&users[..], &[][..]),
        PublishTarget::Channel(channel) => (&[][..], slice::from_ref(channel)),
        PublishTarget::Channels(channels) => (&[][..], &channels[..]),
    };
    let published = AuthDecision {
        what: "publish",
        reason: "by a back end",
        ..AuthDecision::default()
    };
    for user in users {
        shared.log_decision(&AuthDecision {
            user: &user.0,
            ..published
        });
    }
    for channel in channels {
        shared.log_decision(&AuthDecision {
            channel: &channel.0,
            ..published
        });
    }
}
