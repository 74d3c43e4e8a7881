---@meta
-- `veche.hash` and `veche.hmac`: digests, and digests with a key. A digest is written as hexadecimal digits in lower
-- case unless told otherwise: "base64" with padding, or "raw" bytes.

---@alias veche.digest_form "hex"|"base64"|"raw"

---@class veche.hash
local hash = {}

---@param data string
---@param form? veche.digest_form "hex" unless told.
---@return string digest 32 bytes, in that form.
function hash.sha256(data, form) end

---For protocols that ask for it: it is broken where somebody may want to cheat.
---@param data string
---@param form? veche.digest_form "hex" unless told.
---@return string digest 20 bytes, in that form.
function hash.sha1(data, form) end

---For protocols that ask for it: it is broken where somebody may want to cheat.
---@param data string
---@param form? veche.digest_form "hex" unless told.
---@return string digest 16 bytes, in that form.
function hash.md5(data, form) end

---The checksum of zip, gzip and Ethernet: finds accidents, not forgeries.
---@param data string
---@return integer checksum From 0 to 4294967295.
function hash.crc32(data) end

---@class veche.hmac
local hmac = {}

---@param key string Of any length; 32 bytes that nobody can guess are good.
---@param data string
---@param form? veche.digest_form "hex" unless told.
---@return string digest 32 bytes, in that form.
function hmac.sha256(key, data, form) end

---@param key string Of any length.
---@param data string
---@param form? veche.digest_form "hex" unless told.
---@return string digest 20 bytes, in that form.
function hmac.sha1(key, data, form) end

---Whether two strings are the same, in a time that does not tell where they differ: for whatever a client must not
---guess byte by byte. Only the lengths can be learnt.
---@param a string
---@param b string
---@return boolean
function hmac.equals(a, b) end
