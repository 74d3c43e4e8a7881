//! WebSocket: RFC 6455 and permessage-deflate of RFC 7692, both roles.
