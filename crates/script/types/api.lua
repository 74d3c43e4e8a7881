---@meta
-- `veche.api`: what back ends do by HTTP, with the same names, fields and results (docs/guide/push.md, presence.md,
-- history.md, identity.md), and the same meaning of an answer: it is done, on every worker. All of these wait for it. What an
-- application publishes has no rate (`publish_rate`).
--
-- Each takes one table. Errors: a field that there is not, or of another type; a bad name, also `#user`, where users' own
-- channels begin; the words of the HTTP API's errors; an answer over 1 MiB; "too many calls are under way"; "cancelled";
-- where nothing can wait. A call that has begun is carried out though its coroutine is cancelled.

---@class veche
---@field api veche.api
local veche = {}

---@class veche.api
local api = {}

---How it is published.
---@class veche.api.terms
---@field idempotency_key? string 1 to 128 bytes. With one that was used for the channel in the last five minutes nothing is published.
---@field version? integer Of what is kept: nothing is published that is not newer than the last one with a version.
---@field version_epoch? string Of another epoch any version is newer.
---@field skip_history? boolean It is not kept.
---@field delta? boolean Clients that take differences get one.
---@field tags? table<string, string> At most 32.

---What became of a publication.
---@class veche.api.published
---@field handed integer Subscribers on all workers to whom it goes.
---@field offset? integer Its place, or that of the latest if it was not taken, where the channel remembers.
---@field epoch? string Of that.
---@field taken boolean False if its idempotency key was used before, or its version is not newer.

---@class veche.api.publish: veche.api.terms
---@field channel string
---@field data? any A string is published as it is, anything else as JSON.
---@field binary? string Bytes in base64, in place of `data`.

---@param publication veche.api.publish
---@return veche.api.published
function api.publish(publication) end

---@class veche.api.push: veche.api.terms
---@field user? string One of them.
---@field users? string[] At most 1024.
---@field data? any
---@field binary? string

---@param publication veche.api.push
---@return { handed: integer, offset: integer?, epoch: string?, taken: boolean? } # `taken = false` of one user, as that of `publish`.
function api.push(publication) end

---@class veche.api.broadcast: veche.api.terms
---@field channels string[] 1 to 1024.
---@field data? any
---@field binary? string

---@param publication veche.api.broadcast
---@return { responses: { result: veche.api.published }[] } # In the order of the channels; `taken` only where it is false.
function api.broadcast(publication) end

---@param of { user: string, client: string?, whitelist: string[]?, disconnect: { code: integer, reason: string? }? }
---@return { disconnected: integer? } # How many, where all connections of the user were meant.
function api.disconnect(of) end

---@param of { user: string, channel: string, client: string?, info: any, data: any, recover_since: { offset: integer, epoch: string? }?, expire_at: integer? }
---@return table # Empty.
function api.subscribe(of) end

---@param of { user: string, channel: string, client: string? }
---@return table # Empty.
function api.unsubscribe(of) end

---@param of { user: string, client: string?, expired: boolean?, expire_at: integer? }
---@return table # Empty.
function api.refresh(of) end

---@param of { user: string, expire_at: integer? }
---@return { disconnected: integer }
function api.block_user(of) end

---@param of { user: string }
---@return table # Empty.
function api.unblock_user(of) end

---@param of { uid: string, expire_at: integer? } The token's `jti`.
---@return table # Empty.
function api.revoke_token(of) end

---@param of { user: string, issued_before: integer?, expire_at: integer? }
---@return table # Empty.
function api.invalidate_user_tokens(of) end

---@param of { user: string }
---@return { online: boolean, connections: integer, last_seen: integer?, blocked: boolean? } # `last_seen` in milliseconds since 1970.
function api.user_status(of) end

---@param of { channel: string, limit: integer?, since: { offset: integer, epoch: string? }?, reverse: boolean? } `limit` is 0 unless told; -1 for all.
---@return { publications: table[], offset: integer, epoch: string }
function api.history(of) end

---@param of { channel: string }
---@return table # Empty.
function api.history_remove(of) end

---@param of { channel: string }
---@return { presence: table<string, { user: string, client: string, conn_info: any, chan_info: any }> } # By client.
function api.presence(of) end

---@param of { channel: string }
---@return { num_clients: integer, num_users: integer }
function api.presence_stats(of) end

---@param of? { pattern: string? }
---@return { channels: table<string, { num_clients: integer }> } # At most 10000.
function api.channels(of) end

---@param of { user: string?, channel: string?, name: string? }
---@return { connections: table<string, table> } # By client; at most 1000.
function api.connections(of) end

---@return { nodes: table[] }
function api.info() end

return veche
