//! Translates channel options.

use super::draft::{ConfigDraft, string_literal};
use super::settings::SettingsTree;

/// The settings outside of the namespaces that affect their conversion.
pub(super) struct NamespaceContext {
    /// Whether the configuration has token keys.
    pub(super) has_tokens: bool,
    /// Whether there is a hook for subscriptions.
    pub(super) asks_to_subscribe: bool,
    /// Whether there is a hook for publications.
    pub(super) asks_to_publish: bool,
    /// The default lifetime of positions.
    pub(super) position_ttl: Option<String>,
}

/// Options that are dropped without a note. Either other settings replace them, or Veche always behaves
/// as if they were set, as far as that is possible.
const ALWAYS: [&str; 10] = [
    "force_positioning",
    "allow_positioning",
    "force_recovery",
    "allow_recovery",
    "sub_refresh_proxy_enabled",
    "proxy_sub_refresh",
    "allow_user_limited_channels",
    "subscribe_proxy_name",
    "publish_proxy_name",
    "sub_refresh_proxy_name",
];

/// Converts the options of a namespace and adds its section to the draft.
pub(super) fn namespace(
    name: &str,
    mut options: SettingsTree,
    namespace_context: &NamespaceContext,
    draft: &mut ConfigDraft,
) {
    let shown = match name {
        "" => "channel.without_namespace".to_owned(),
        name => format!("namespace {name}"),
    };
    draft.section("[[namespace]]");
    draft.set("name", string_literal(name));
    let has_history = history(&shown, &mut options, namespace_context, draft);
    let presence = options.flag("presence");
    let join_leave = options.flag("join_leave");
    if presence {
        draft.set("presence", true);
    }
    if join_leave {
        draft.set("join_leave", true);
        if options.flag("force_push_join_leave") {
            draft.set("force_push_join_leave", true);
        }
    }
    if presence || join_leave {
        // Without a leave delay, each connection has its own join and leave events, as in
        // Centrifugo.
        draft.set("leave_delay", string_literal("off"));
    }
    if options.flag("allow_tags_filter") {
        draft.set("tags_filter", true);
    }
    access(&shown, &mut options, namespace_context, draft);
    readers(&shown, "history", has_history, &mut options, draft);
    readers(&shown, "presence", presence, &mut options, draft);
    options.skip(&ALWAYS);
    for left in options.left() {
        draft.note(format!("no counterpart: {shown}: {left}"));
    }
}

/// Sets which clients may read a channel's history or presence (`what`), if channels have it
/// (`is_kept`). In Centrifugo, no client may do so by default.
fn readers(
    shown: &str,
    what: &str,
    is_kept: bool,
    options: &mut SettingsTree,
    draft: &mut ConfigDraft,
) {
    let is_for_client = is_for_client(shown, what, options, draft);
    let is_for_subscriber = options.flag(&format!("allow_{what}_for_subscriber"));
    let readers = match () {
        () if is_for_client => "client",
        () if is_for_subscriber => return,
        () => "none",
    };
    if is_kept {
        draft.set(&format!("allow_{what}"), string_literal(readers));
    }
}

/// Adds the history settings. Returns whether channels have history.
fn history(
    shown: &str,
    options: &mut SettingsTree,
    namespace_context: &NamespaceContext,
    draft: &mut ConfigDraft,
) -> bool {
    let size = options.number("history_size");
    let ttl = options.duration("history_ttl");
    let meta_ttl = options.duration("history_meta_ttl");
    let mode = options.text("force_recovery_mode");
    let deltas = options.list("allowed_delta_types");
    let always_deltas = options.flag("delta_publish");
    let (Some(size), Some(ttl)) = (size, ttl) else {
        if size.is_some() {
            draft.note(format!(
                "{shown}: history_size without history_ttl stores nothing, as in Centrifugo"
            ));
        }
        return false;
    };
    draft.set("history_size", size);
    draft.set("history_ttl", string_literal(&ttl));
    draft.set_text(
        "position_ttl",
        meta_ttl.or(namespace_context.position_ttl.clone()),
    );
    if mode.as_deref() == Some("cache") {
        draft.set("recovery", string_literal("latest"));
    }
    if deltas.iter().any(|delta| delta == "fossil") {
        draft.set("delta", string_literal("fossil"));
        if always_deltas {
            draft.set("delta_publish", true);
        }
    }
    true
}

/// Returns whether all clients have a permission. In Centrifugo, the option for anonymous clients
/// has an effect only together with the option for clients.
fn is_for_client(
    shown: &str,
    what: &str,
    options: &mut SettingsTree,
    draft: &mut ConfigDraft,
) -> bool {
    let for_client = options.flag(&format!("allow_{what}_for_client"));
    let for_anonymous = options.flag(&format!("allow_{what}_for_anonymous"));
    let note = match (for_client, for_anonymous) {
        (true, false) => "in Veche this includes anonymous clients, if the route accepts them",
        (false, true) => "has no effect without allow_…_for_client, as in Centrifugo",
        _ => return for_client,
    };
    let readers = if for_client { "client" } else { "anonymous" };
    draft.note(format!("{shown}: allow_{what}_for_{readers}: {note}"));
    for_client
}

fn access(
    shown: &str,
    options: &mut SettingsTree,
    namespace_context: &NamespaceContext,
    draft: &mut ConfigDraft,
) {
    // An option may have its old or its new name.
    let asks = |options: &mut SettingsTree, old, new| options.flag(old) | options.flag(new);
    let asks_to_subscribe = asks(options, "proxy_subscribe", "subscribe_proxy_enabled");
    let asks_to_publish = asks(options, "proxy_publish", "publish_proxy_enabled");
    let for_client = is_for_client(shown, "subscribe", options, draft);
    let subscribe = match () {
        () if asks_to_subscribe && namespace_context.asks_to_subscribe => "hook",
        () if for_client => "client",
        () if namespace_context.has_tokens => "token",
        () => "none",
    };
    if asks_to_subscribe && !namespace_context.asks_to_subscribe {
        draft.note(format!(
            "{shown}: subscriptions need a decision of the back end, but no endpoint is configured"
        ));
    }
    draft.set("subscribe", string_literal(subscribe));
    let by_client = is_for_client(shown, "publish", options, draft);
    let by_subscriber = options.flag("allow_publish_for_subscriber");
    let publish = match () {
        () if asks_to_publish && namespace_context.asks_to_publish => Some("hook"),
        () if by_client => Some("client"),
        () if by_subscriber => Some("subscriber"),
        () => None,
    };
    draft.set_text("publish", publish.map(str::to_owned));
    if asks_to_publish && !namespace_context.asks_to_publish {
        draft.note(format!(
            "{shown}: publications need a decision of the back end, but no endpoint is configured"
        ));
    }
}
