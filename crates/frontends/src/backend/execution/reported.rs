//! Reports of back end publications to the decision log.

use std::slice;

use crate::backend::command::Target;
use crate::context::note::Decision;
use crate::context::shared::Shared;

/// Reports a back end's publication to the decision log.
pub(super) fn report_publish(target: &Target<'_>, shared: &Shared) {
    if !shared.process.is_watched() {
        return;
    }
    let (users, channels) = match target {
        Target::User(user) => (slice::from_ref(user), &[][..]),
        Target::Users(users) => (&users[..], &[][..]),
        Target::Channel(channel) => (&[][..], slice::from_ref(channel)),
        Target::Channels(channels) => (&[][..], &channels[..]),
    };
    let published = Decision {
        what: "publish",
        reason: "by a back end",
        ..Decision::default()
    };
    for user in users {
        shared.decided(&Decision {
            user: &user.0,
            ..published
        });
    }
    for channel in channels {
        shared.decided(&Decision {
            channel: &channel.0,
            ..published
        });
    }
}
