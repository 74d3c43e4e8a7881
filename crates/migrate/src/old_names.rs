//! Maps the settings of Centrifugo 5 to their paths in version 6.

use super::settings::SettingsTree;

/// Objects that exist only in configurations of version 6.
const OBJECTS: [&str; 8] = [
    "client",
    "channel",
    "http_server",
    "http_api",
    "rpc",
    "log",
    "websocket",
    "prometheus",
];

const NAMES: &[(&str, &str)] = &[
    ("address", "http_server.address"),
    ("port", "http_server.port"),
    ("internal_address", "http_server.internal_address"),
    ("internal_port", "http_server.internal_port"),
    ("tls", "http_server.tls.enabled"),
    ("tls_cert", "http_server.tls.cert_pem"),
    ("tls_key", "http_server.tls.key_pem"),
    ("tls_autocert", "http_server.tls_autocert.enabled"),
    (
        "tls_autocert_host_whitelist",
        "http_server.tls_autocert.host_whitelist",
    ),
    ("token_hmac_secret_key", "client.token.hmac_secret_key"),
    ("token_rsa_public_key", "client.token.rsa_public_key"),
    ("token_ecdsa_public_key", "client.token.ecdsa_public_key"),
    (
        "token_jwks_public_endpoint",
        "client.token.jwks_public_endpoint",
    ),
    ("token_audience", "client.token.audience"),
    ("token_audience_regex", "client.token.audience_regex"),
    ("token_issuer", "client.token.issuer"),
    ("token_issuer_regex", "client.token.issuer_regex"),
    ("token_user_id_claim", "client.token.user_id_claim"),
    (
        "separate_subscription_token_config",
        "client.subscription_token.enabled",
    ),
    (
        "subscription_token_hmac_secret_key",
        "client.subscription_token.hmac_secret_key",
    ),
    (
        "subscription_token_rsa_public_key",
        "client.subscription_token.rsa_public_key",
    ),
    (
        "subscription_token_ecdsa_public_key",
        "client.subscription_token.ecdsa_public_key",
    ),
    (
        "subscription_token_jwks_public_endpoint",
        "client.subscription_token.jwks_public_endpoint",
    ),
    ("allowed_origins", "client.allowed_origins"),
    (
        "allow_anonymous_connect_without_token",
        "client.allow_anonymous_connect_without_token",
    ),
    (
        "disallow_anonymous_connection_tokens",
        "client.disallow_anonymous_connection_tokens",
    ),
    ("client_insecure", "client.insecure"),
    ("client_channel_limit", "client.channel_limit"),
    ("client_connection_limit", "client.connection_limit"),
    (
        "client_user_connection_limit",
        "client.user_connection_limit",
    ),
    ("client_queue_max_size", "client.queue_max_size"),
    ("client_user_id_http_header", "client.user_id_http_header"),
    ("client_stale_close_delay", "client.stale_close_delay"),
    ("client_expired_close_delay", "client.expired_close_delay"),
    (
        "client_expired_sub_close_delay",
        "client.expired_sub_close_delay",
    ),
    (
        "client_presence_update_interval",
        "client.presence_update_interval",
    ),
    (
        "client_history_max_publication_limit",
        "client.history_max_publication_limit",
    ),
    (
        "client_recovery_max_publication_limit",
        "client.recovery_max_publication_limit",
    ),
    ("ping_interval", "client.ping_interval"),
    ("pong_timeout", "client.pong_timeout"),
    (
        "user_subscribe_to_personal",
        "client.subscribe_to_user_personal_channel.enabled",
    ),
    (
        "user_personal_channel_namespace",
        "client.subscribe_to_user_personal_channel.personal_channel_namespace",
    ),
    (
        "user_personal_single_connection",
        "client.subscribe_to_user_personal_channel.single_connection",
    ),
    ("proxy_connect_endpoint", "client.proxy.connect.endpoint"),
    ("proxy_connect_timeout", "client.proxy.connect.timeout"),
    ("proxy_refresh_endpoint", "client.proxy.refresh.endpoint"),
    ("proxy_refresh_timeout", "client.proxy.refresh.timeout"),
    (
        "proxy_subscribe_endpoint",
        "channel.proxy.subscribe.endpoint",
    ),
    ("proxy_subscribe_timeout", "channel.proxy.subscribe.timeout"),
    ("proxy_publish_endpoint", "channel.proxy.publish.endpoint"),
    ("proxy_publish_timeout", "channel.proxy.publish.timeout"),
    (
        "proxy_sub_refresh_endpoint",
        "channel.proxy.sub_refresh.endpoint",
    ),
    (
        "proxy_sub_refresh_timeout",
        "channel.proxy.sub_refresh.timeout",
    ),
    ("proxy_rpc_endpoint", "rpc.proxy.endpoint"),
    ("proxy_rpc_timeout", "rpc.proxy.timeout"),
    ("proxy_http_headers", "client.proxy.connect.http_headers"),
    ("api_key", "http_api.key"),
    ("api_insecure", "http_api.insecure"),
    ("api_disabled", "http_api.disabled"),
    ("api_handler_prefix", "http_api.handler_prefix"),
    ("api_error_mode", "http_api.error_mode"),
    ("admin_password", "admin.password"),
    ("admin_secret", "admin.secret"),
    ("admin_insecure", "admin.insecure"),
    ("namespaces", "channel.namespaces"),
    ("global_history_meta_ttl", "channel.history_meta_ttl"),
    ("channel_max_length", "channel.max_length"),
    ("channel_private_prefix", "channel.private_prefix"),
    ("channel_namespace_boundary", "channel.namespace_boundary"),
    ("channel_user_boundary", "channel.user_boundary"),
    ("channel_user_separator", "channel.user_separator"),
    ("log_level", "log.level"),
    ("log_file", "log.file"),
    ("shutdown_timeout", "shutdown.timeout"),
    ("websocket_compression", "websocket.compression"),
    (
        "websocket_message_size_limit",
        "websocket.message_size_limit",
    ),
    ("websocket_handler_prefix", "websocket.handler_prefix"),
    ("presence", "channel.without_namespace.presence"),
    ("join_leave", "channel.without_namespace.join_leave"),
    (
        "force_push_join_leave",
        "channel.without_namespace.force_push_join_leave",
    ),
    ("history_size", "channel.without_namespace.history_size"),
    ("history_ttl", "channel.without_namespace.history_ttl"),
    (
        "history_meta_ttl",
        "channel.without_namespace.history_meta_ttl",
    ),
    (
        "force_positioning",
        "channel.without_namespace.force_positioning",
    ),
    (
        "allow_positioning",
        "channel.without_namespace.allow_positioning",
    ),
    ("force_recovery", "channel.without_namespace.force_recovery"),
    ("allow_recovery", "channel.without_namespace.allow_recovery"),
    (
        "force_recovery_mode",
        "channel.without_namespace.force_recovery_mode",
    ),
    (
        "allowed_delta_types",
        "channel.without_namespace.allowed_delta_types",
    ),
    ("delta_publish", "channel.without_namespace.delta_publish"),
    (
        "allow_subscribe_for_anonymous",
        "channel.without_namespace.allow_subscribe_for_anonymous",
    ),
    (
        "allow_subscribe_for_client",
        "channel.without_namespace.allow_subscribe_for_client",
    ),
    (
        "allow_publish_for_anonymous",
        "channel.without_namespace.allow_publish_for_anonymous",
    ),
    (
        "allow_publish_for_subscriber",
        "channel.without_namespace.allow_publish_for_subscriber",
    ),
    (
        "allow_publish_for_client",
        "channel.without_namespace.allow_publish_for_client",
    ),
    (
        "allow_presence_for_anonymous",
        "channel.without_namespace.allow_presence_for_anonymous",
    ),
    (
        "allow_presence_for_subscriber",
        "channel.without_namespace.allow_presence_for_subscriber",
    ),
    (
        "allow_presence_for_client",
        "channel.without_namespace.allow_presence_for_client",
    ),
    (
        "allow_history_for_anonymous",
        "channel.without_namespace.allow_history_for_anonymous",
    ),
    (
        "allow_history_for_subscriber",
        "channel.without_namespace.allow_history_for_subscriber",
    ),
    (
        "allow_history_for_client",
        "channel.without_namespace.allow_history_for_client",
    ),
    (
        "allow_user_limited_channels",
        "channel.without_namespace.allow_user_limited_channels",
    ),
    ("channel_regex", "channel.without_namespace.channel_regex"),
    (
        "proxy_subscribe",
        "channel.without_namespace.subscribe_proxy_enabled",
    ),
    (
        "proxy_publish",
        "channel.without_namespace.publish_proxy_enabled",
    ),
    (
        "proxy_sub_refresh",
        "channel.without_namespace.sub_refresh_proxy_enabled",
    ),
];

/// Flags of version 5 whose names are names of objects in version 6. There, the flag is the object's member `enabled`.
const SWITCHES: [&str; 9] = [
    "admin",
    "health",
    "prometheus",
    "http_stream",
    "sse",
    "uni_websocket",
    "uni_http_stream",
    "uni_sse",
    "debug",
];

/// Renames settings of version 5 to those of version 6. Settings of namespaces are renamed where they are read.
pub(super) fn renew(settings: &mut SettingsTree) {
    if settings.has_objects(&OBJECTS) {
        return;
    }
    for name in SWITCHES {
        settings.rename(name, &format!("{name}.enabled"));
    }
    for (old, path) in NAMES {
        settings.rename(old, path);
    }
}
