---@meta
-- `veche.semaphore`: limits how many coroutines of one VM do something at a time.

---@class veche
local veche = {}

---@param permits integer At least 1.
---@return veche.semaphore
function veche.semaphore(permits) end

---@class veche.semaphore
local semaphore = {}

---Acquires a permit; waits while none is free. Waiting coroutines are served in order. Prefer `with`: a permit acquired
---here is lost if the coroutine fails before releasing it.
---Errors: "cancelled", in which case there is no permit to release; a call where waiting is impossible.
function semaphore:acquire() end

---Acquires a permit if one is free.
---@return boolean acquired
function semaphore:try_acquire() end

---Releases a permit; the first waiting coroutine gets it. It is an error to release more permits than were acquired.
function semaphore:release() end

---Calls a function while holding a permit, which is released in any case: also after an error, after a cancellation, and
---if the CPU budget is exceeded.
---Errors: those of the function, unchanged, and those of `acquire`.
---@generic T, R
---@param f fun(...: T): R
---@param ... T
---@return R ... What the function returns.
function semaphore:with(f, ...) end

---Returns the number of free permits.
---@return integer
function semaphore:available() end
