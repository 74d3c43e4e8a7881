//! Who hears what: users, channels, subscriptions, publications. Pure.
