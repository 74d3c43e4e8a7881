---@meta
-- `app.centrifuge`: what clients of Centrifugo's protocol ask, on routes with `handler = "centrifuge"` that lead to the app. A
-- handler is asked if it is there, and decides before a back end does (`[hooks]`). Each may wait; the client's further
-- commands wait meanwhile. After an error, which is logged, the client gets error 100.

---A value with a form in JSON. Where `client.encoding` is "binary" a string is bytes, in both directions.
---@alias veche.centrifuge.data any

---@class veche.centrifuge.client
---@field id string No other connection has it.
---@field user? string Nil for nobody, and for who connects, unless his handshake says who he is.
---@field transport string "websocket", "http_stream", "sse", or one of these with "uni_" before it.
---@field protocol "json"|"protobuf"
---@field encoding "json"|"binary" "binary" if the data of this command are no JSON.
---@field name? string The kind of client, as it says.
---@field version? string Of that.
---@field token? string Of `connect` and `subscribe`, where the server itself has no use for it.
---@field remote string The client's IP address.
---@field headers table<string, string> Those of its request that `headers` and `client_headers` of `[hooks]` name, in lower case.
---@field cookies table<string, string>
---@field meta? any What `connect` has returned as `meta`.
---@field channels? string[] Of `connect`: channels of which a client that comes back says that it was given them.

---What may be returned instead of a result, or raised by `error`.
---@class veche.centrifuge.refusal
---@field error? veche.centrifuge.error The command fails with this.
---@field disconnect? veche.centrifuge.disconnect The client is closed.

---@class veche.centrifuge.error
---@field code integer From 1; your own from 400 on.
---@field message? string For people.
---@field temporary? boolean Whether the same command may succeed later.

---@class veche.centrifuge.disconnect
---@field code integer From 3000 to 4999; your own from 4000 on. SDKs come back but for 3500 to 3999 and 4500 to 4999.
---@field reason? string For people.

---@class veche.centrifuge.sub
---@field info? veche.centrifuge.data Of the client in the channel, for others to see.
---@field b64info? string The same as bytes, in base64.
---@field data? veche.centrifuge.data What the client is told.
---@field b64data? string
---@field expire_at? number Seconds since 1970; 0 for never.

---@class veche.centrifuge.connected
---@field user? string|integer Nobody without it.
---@field expire_at? number Seconds since 1970; 0 for never. Then `refresh` is asked, if there is one.
---@field info? veche.centrifuge.data Of the connection, for others to see.
---@field b64info? string
---@field data? veche.centrifuge.data What the client is told.
---@field b64data? string
---@field channels? string[] Channels that the client is given, whatever their namespace says.
---@field subs? table<string, veche.centrifuge.sub> The same with more.
---@field meta? any Comes back as `client.meta`.

---@class veche.centrifuge.refreshed
---@field expired? boolean It does not hold any more.
---@field expire_at? number Seconds since 1970; 0 for never.
---@field info? veche.centrifuge.data
---@field b64info? string

---@class veche.centrifuge.published
---@field data? veche.centrifuge.data In place of what the client has sent.
---@field b64data? string
---@field skip_history? boolean It is not kept.

---@class veche.centrifuge.reply
---@field data? veche.centrifuge.data
---@field b64data? string

---@class veche.centrifuge
---Who a client is that connects without a token.
---@field connect? fun(client: veche.centrifuge.client, data?: veche.centrifuge.data): veche.centrifuge.connected|veche.centrifuge.refusal
---Whether a connection may stay whose time is over.
---@field refresh? fun(client: veche.centrifuge.client): veche.centrifuge.refreshed|veche.centrifuge.refusal
---Whether it may hear a channel of a namespace with `subscribe = "hook"`.
---@field subscribe? fun(client: veche.centrifuge.client, channel: string, data?: veche.centrifuge.data): veche.centrifuge.sub|veche.centrifuge.refusal
---Whether a subscription may go on whose time is over.
---@field sub_refresh? fun(client: veche.centrifuge.client, channel: string): veche.centrifuge.refreshed|veche.centrifuge.refusal
---Whether it may publish to a channel of a namespace with `publish = "hook"`, and what.
---@field publish? fun(client: veche.centrifuge.client, channel: string, data: veche.centrifuge.data): veche.centrifuge.published|veche.centrifuge.refusal
---What a method gives; or functions by method, which get no `method`. A method that is not in the table is error 104.
---@field rpc? (fun(client: veche.centrifuge.client, method: string, data?: veche.centrifuge.data): veche.centrifuge.reply|veche.centrifuge.refusal)|table<string, fun(client: veche.centrifuge.client, data?: veche.centrifuge.data): veche.centrifuge.reply|veche.centrifuge.refusal>
---What a client says without asking for a reply. Messages of one client come one by one.
---@field message? fun(client: veche.centrifuge.client, data?: veche.centrifuge.data): veche.centrifuge.refusal?
---A client that was connected is gone, maybe while another handler of its waits.
---@field disconnect? fun(client: veche.centrifuge.client, code: integer, reason: string)
