---@meta
-- `veche.semaphore`: at most so many coroutines of one VM at once.

---@class veche
local veche = {}

---@param permits integer At least 1.
---@return veche.semaphore
function veche.semaphore(permits) end

---@class veche.semaphore
local semaphore = {}

---Takes a permit; waits while there is none. Who waits is served in order. Prefer `with`: a permit that is taken this
---way is lost if the coroutine fails before it is released.
---Errors: "cancelled": then there is none to release; where nothing can wait.
function semaphore:acquire() end

---Takes a permit if one is free.
---@return boolean acquired
function semaphore:try_acquire() end

---Gives a permit back, to whoever waits first. Error: more than were taken.
function semaphore:release() end

---Calls a function with a permit, which is given back whatever happens: an error, a cancellation, a run over the budget.
---Errors: those of the function, as they are; those of `acquire`.
---@generic T, R
---@param f fun(...: T): R
---@param ... T
---@return R ... What the function returns.
function semaphore:with(f, ...) end

---Permits that are free.
---@return integer
function semaphore:available() end
