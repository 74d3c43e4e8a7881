//! Names of channels and users in commands of back ends.

use veche_hub::ChannelName;

use crate::backend::command::BadCommand;
use crate::context::worker_context::Context;

/// Returns the name of a user's personal channel, which is built in the buffer `name`.
pub(super) fn personal_channel<'n>(
    user: &str,
    name: &'n mut String,
) -> Result<ChannelName<'n>, BadCommand> {
    ChannelName::of_user(user, name)
        .map_err(|error| BadCommand::new(format!("bad user {user:?}: {error}")))
}

/// Checks the form of a channel's name.
pub(super) fn channel_name(channel: &str) -> Result<ChannelName<'_>, BadCommand> {
    ChannelName::new(channel)
        .map_err(|error| BadCommand::new(format!("bad channel {channel:?}: {error}")))
}

/// Checks the form of a channel's name, and that its namespace exists.
pub(super) fn known_channel<'c>(
    channel: &'c str,
    shared: &Context,
) -> Result<ChannelName<'c>, BadCommand> {
    let name = channel_name(channel)?;
    match shared.config.namespaces.knows(channel) {
        true => Ok(name),
        false => Err(BadCommand::unknown_channel()),
    }
}
