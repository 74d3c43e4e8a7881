---@meta
-- `veche.hash` and `veche.hmac`: digests, without and with a key. A digest is returned as hexadecimal digits in lower case,
-- or optionally as "base64" with padding or as "raw" bytes.

---@alias veche.digest_form "hex"|"base64"|"raw"

---@class veche.hash
local hash = {}

---Returns the SHA-256 digest.
---@param data string
---@param form? veche.digest_form "hex" by default.
---@return string digest 32 bytes, encoded as `form` requires.
function hash.sha256(data, form) end

---Returns the SHA-1 digest. SHA-1 is not secure; use it only for protocols that require it.
---@param data string
---@param form? veche.digest_form "hex" by default.
---@return string digest 20 bytes, encoded as `form` requires.
function hash.sha1(data, form) end

---Returns the MD5 digest. MD5 is not secure; use it only for protocols that require it.
---@param data string
---@param form? veche.digest_form "hex" by default.
---@return string digest 16 bytes, encoded as `form` requires.
function hash.md5(data, form) end

---Returns the checksum of zip, gzip and Ethernet, which detects accidental changes, but not forgeries.
---@param data string
---@return integer checksum From 0 to 4294967295.
function hash.crc32(data) end

---@class veche.hmac
local hmac = {}

---Returns the HMAC with SHA-256.
---@param key string Of any length; 32 random bytes are recommended.
---@param data string
---@param form? veche.digest_form "hex" by default.
---@return string digest 32 bytes, encoded as `form` requires.
function hmac.sha256(key, data, form) end

---Returns the HMAC with SHA-1.
---@param key string Of any length.
---@param data string
---@param form? veche.digest_form "hex" by default.
---@return string digest 20 bytes, encoded as `form` requires.
function hmac.sha1(key, data, form) end

---Compares two strings in constant time, for secrets that a client must not be able to guess byte by byte. Only their
---lengths can be inferred from the time.
---@param a string
---@param b string
---@return boolean
function hmac.equals(a, b) end
