---@meta
-- `app.centrifuge`: handlers for commands of clients that speak Centrifugo's protocol, on routes with `handler = "centrifuge"`
-- that lead to the application. A handler that is defined takes precedence over the back end (`[hooks]`). Handlers may wait;
-- the client's further commands are queued meanwhile. After an error, which is logged, the client gets error 100.

---A value that can be encoded as JSON. If `client.encoding` is "binary", strings are bytes, in both directions.
---@alias veche.centrifuge.data any

---@class veche.centrifuge.client
---@field id string Unique id of the connection.
---@field user? string Nil for an anonymous client, and during `connect` unless the handshake authenticated the user.
---@field transport string "websocket", "http_stream", "sse", or one of these prefixed with "uni_".
---@field protocol "json"|"protobuf"
---@field encoding "json"|"binary" "binary" if the data of this command is not JSON.
---@field name? string Name of the client software, as reported by the client.
---@field version? string Version of the client software.
---@field token? string The token of `connect` or `subscribe`, if the server itself does not verify it.
---@field remote string The client's IP address.
---@field headers table<string, string> Headers of its request that `headers` and `client_headers` of `[hooks]` select; names in lower case.
---@field cookies table<string, string>
---@field meta? any The `meta` that `connect` returned.
---@field channels? string[] In `connect`: channels of server-side subscriptions that a reconnecting client reports.

---May be returned instead of a result, or raised with `error`.
---@class veche.centrifuge.refusal
---@field error? veche.centrifuge.error The command fails with this error.
---@field disconnect? veche.centrifuge.disconnect The client is disconnected.

---@class veche.centrifuge.error
---@field code integer From 1; application-defined codes start at 400.
---@field message? string A text for people.
---@field temporary? boolean Whether the same command may succeed later.

---@class veche.centrifuge.disconnect
---@field code integer From 3000 to 4999; application-defined codes start at 4000. SDKs reconnect except after 3500 to 3999 and 4500 to 4999.
---@field reason? string A text for people.

---@class veche.centrifuge.sub
---@field info? veche.centrifuge.data Information about the client in this channel, visible to other clients.
---@field b64info? string The same for bytes, in base64.
---@field data? veche.centrifuge.data Data for the client.
---@field b64data? string
---@field expire_at? number Seconds since 1970; 0 for never.

---@class veche.centrifuge.connected
---@field user? string|integer The authenticated user; anonymous by default.
---@field expire_at? number Seconds since 1970; 0 for never. At this time `refresh` is called, if it is defined.
---@field info? veche.centrifuge.data Information about the connection, visible to other clients.
---@field b64info? string
---@field data? veche.centrifuge.data Data for the client.
---@field b64data? string
---@field channels? string[] Server-side subscriptions, whatever the permissions of their namespaces.
---@field subs? table<string, veche.centrifuge.sub> Server-side subscriptions with options.
---@field meta? any Available to later handlers as `client.meta`.

---@class veche.centrifuge.refreshed
---@field expired? boolean True if the connection or subscription has expired and is ended.
---@field expire_at? number Seconds since 1970; 0 for never.
---@field info? veche.centrifuge.data
---@field b64info? string

---@class veche.centrifuge.published
---@field data? veche.centrifuge.data Replaces the data that the client sent.
---@field b64data? string
---@field skip_history? boolean The publication is not added to the history.

---@class veche.centrifuge.reply
---@field data? veche.centrifuge.data
---@field b64data? string

---@class veche.centrifuge
---Authenticates a client that connects without a token.
---@field connect? fun(client: veche.centrifuge.client, data?: veche.centrifuge.data): veche.centrifuge.connected|veche.centrifuge.refusal
---Decides whether a connection that expires may continue.
---@field refresh? fun(client: veche.centrifuge.client): veche.centrifuge.refreshed|veche.centrifuge.refusal
---Decides whether the client may subscribe to a channel of a namespace with `subscribe = "hook"`.
---@field subscribe? fun(client: veche.centrifuge.client, channel: string, data?: veche.centrifuge.data): veche.centrifuge.sub|veche.centrifuge.refusal
---Decides whether a subscription that expires may continue.
---@field sub_refresh? fun(client: veche.centrifuge.client, channel: string): veche.centrifuge.refreshed|veche.centrifuge.refusal
---Decides whether the client may publish to a channel of a namespace with `publish = "hook"`, and may replace the data.
---@field publish? fun(client: veche.centrifuge.client, channel: string, data: veche.centrifuge.data): veche.centrifuge.published|veche.centrifuge.refusal
---Handles remote procedure calls: a function, or a table of functions by method name, which are
---called without `method`. Calling a method that is not in the table fails with error 104.
---@field rpc? (fun(client: veche.centrifuge.client, method: string, data?: veche.centrifuge.data): veche.centrifuge.reply|veche.centrifuge.refusal)|table<string, fun(client: veche.centrifuge.client, data?: veche.centrifuge.data): veche.centrifuge.reply|veche.centrifuge.refusal>
---Handles asynchronous messages, which get no reply. Messages of one client are handled one at a time.
---@field message? fun(client: veche.centrifuge.client, data?: veche.centrifuge.data): veche.centrifuge.refusal?
---A connected client has disconnected, possibly while another of its handlers is waiting.
---@field disconnect? fun(client: veche.centrifuge.client, code: integer, reason: string)
