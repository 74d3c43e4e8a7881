---@meta
-- `veche.base64`: Base64 (RFC 4648). The `_url` variants use `-` and `_` instead of `+` and `/`.

---@class veche.base64
local base64 = {}

---Encodes with padding.
---@param data string
---@return string
function base64.encode(data) end

---Decodes a text, which must have padding; line breaks and other invalid characters are rejected.
---@param text string
---@return string? data Nil if it is not valid base64.
---@return string? why
function base64.decode(text) end

---Encodes as base64url, without padding.
---@param data string
---@return string
function base64.encode_url(data) end

---Decodes base64url, with or without padding.
---@param text string
---@return string? data Nil if the text is not valid base64url.
---@return string? why
function base64.decode_url(text) end
