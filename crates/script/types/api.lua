---@meta
-- `veche.api`: the HTTP API of back ends, with the same names, fields and results (docs/guide/push.md, presence.md,
-- history.md, identity.md). As in the HTTP API, a result means that the operation is complete on
-- every worker. All functions wait for their result. Publications of an application are not limited by
-- `publish_rate`.
--
-- Each function takes one table. Errors: an unknown field, or one of another type; an invalid name, including names that
-- begin with `#`, which are users' own channels; the error messages of the HTTP API; a result of more than 1 MiB; "too
-- many calls are under way"; "cancelled"; where waiting is impossible. A call that has begun is completed even if its
-- coroutine is cancelled.

---@class veche
---@field api veche.api
local veche = {}

---@class veche.api
local api = {}

---Options of a publication.
---@class veche.api.terms
---@field idempotency_key? string 1 to 128 bytes. If the channel had a publication with this key in the last five minutes,
---nothing is published.
---@field version? integer Version of the data: nothing is published unless it is higher than that of the latest publication
---with a version.
---@field version_epoch? string Versions of different epochs are not compared: the publication counts as newer.
---@field skip_history? boolean The publication is not added to the history.
---@field delta? boolean Clients that negotiated deltas get a delta.
---@field tags? table<string, string> Up to 32.

---The outcome of a publication.
---@class veche.api.published
---@field handed? integer Number of subscribers on all workers to whom it is sent. Absent with the engine on Redis.
---@field nodes? integer With the engine on Redis: number of nodes with subscribers of the channel, if it is known.
---@field offset? integer If the channel keeps a history: the publication's offset, or if it was not
---accepted, the offset of the latest publication.
---@field epoch? string The epoch of the offset.
---@field taken boolean False if the publication was not accepted, because its idempotency key was used before, or its
---version is not newer.

---@class veche.api.publish: veche.api.terms
---@field channel string
---@field data? any A string is published as it is, any other value as JSON.
---@field binary? string Bytes in base64, instead of `data`.

---Publishes to a channel.
---@param publication veche.api.publish
---@return veche.api.published
function api.publish(publication) end

---@class veche.api.push: veche.api.terms
---@field user? string Either `user` or `users` is required.
---@field users? string[] Up to 1024.
---@field data? any
---@field binary? string

---Publishes to all connections of one or several users.
---@param publication veche.api.push
---@return { handed: integer?, nodes: integer?, offset: integer?, epoch: string?, taken: boolean? } # `handed` and `nodes` are as for `publish`; for several users `nodes` is absent. With one user, `taken = false` means the same as for `publish`.
function api.push(publication) end

---@class veche.api.broadcast: veche.api.terms
---@field channels string[] 1 to 1024.
---@field data? any
---@field binary? string

---Publishes to several channels.
---@param publication veche.api.broadcast
---@return { responses: { result: veche.api.published }[] } # In the order of the channels; `taken` is present only if it is false.
function api.broadcast(publication) end

---Closes connections of a user: all of them, or the one with the id `client`.
---@param of { user: string, client: string?, whitelist: string[]?, disconnect: { code: integer, reason: string? }? }
---@return { disconnected: integer? } # The number, if all connections of the user were closed.
function api.disconnect(of) end

---Subscribes all connections of a user to a channel, or only the one with the id `client`.
---@param of { user: string, channel: string, client: string?, info: any, data: any, recover_since: { offset: integer, epoch: string? }?, expire_at: integer? }
---@return table # Empty.
function api.subscribe(of) end

---Ends the subscription of all of a user's connections, or only of the one with the id `client`.
---@param of { user: string, channel: string, client: string? }
---@return table # Empty.
function api.unsubscribe(of) end

---Changes the expiry of all connections of a user, or only of the one with the id `client`.
---@param of { user: string, client: string?, expired: boolean?, expire_at: integer? }
---@return table # Empty.
function api.refresh(of) end

---Bans a user and closes its connections.
---@param of { user: string, expire_at: integer? }
---@return { disconnected: integer } # The number of closed connections.
function api.block_user(of) end

---Lifts a user's ban.
---@param of { user: string }
---@return table # Empty.
function api.unblock_user(of) end

---Revokes a token by its id.
---@param of { uid: string, expire_at: integer? } `uid` is the token's `jti`.
---@return table # Empty.
function api.revoke_token(of) end

---Revokes the tokens of a user that were issued before a time.
---@param of { user: string, issued_before: integer?, expire_at: integer? }
---@return table # Empty.
function api.invalidate_user_tokens(of) end

---Returns whether a user is online, and whether it is banned.
---@param of { user: string }
---@return { online: boolean, connections: integer, last_seen: integer?, blocked: boolean? } # `last_seen` in milliseconds since 1970.
function api.user_status(of) end

---Reads a channel's history.
---@param of { channel: string, limit: integer?, since: { offset: integer, epoch: string? }?, reverse: boolean? } `limit` is 0 by default; -1 for all.
---@return { publications: table[], offset: integer, epoch: string }
function api.history(of) end

---Deletes a channel's history.
---@param of { channel: string }
---@return table # Empty.
function api.history_remove(of) end

---Lists the members of a channel.
---@param of { channel: string }
---@return { presence: table<string, { user: string, client: string, conn_info: any, chan_info: any }> } # By client id.
function api.presence(of) end

---Counts the members of a channel.
---@param of { channel: string }
---@return { num_clients: integer, num_users: integer }
function api.presence_stats(of) end

---Lists channels with subscribers.
---@param of? { pattern: string? }
---@return { channels: table<string, { num_clients: integer }> } # Up to 10000.
function api.channels(of) end

---Lists connections.
---@param of { user: string?, channel: string?, name: string? }
---@return { connections: table<string, table> } # By client id; up to 1000.
function api.connections(of) end

---Describes the servers of the cluster.
---@return { nodes: table[] }
function api.info() end

return veche
