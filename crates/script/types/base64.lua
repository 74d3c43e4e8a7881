---@meta
-- `veche.base64`: RFC 4648. The `_url` forms have `-` and `_` for `+` and `/`.

---@class veche.base64
local base64 = {}

---With padding.
---@param data string
---@return string
function base64.encode(data) end

---Padding is needed; line breaks and other strange bytes are refused.
---@param text string
---@return string? data Nil if it is no base64.
---@return string? why
function base64.decode(text) end

---Without padding.
---@param data string
---@return string
function base64.encode_url(data) end

---With or without padding.
---@param text string
---@return string? data Nil if it is no base64.
---@return string? why
function base64.decode_url(text) end
