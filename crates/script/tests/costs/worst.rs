//! Tests of calls that cause much work. Each call is repeated until the time limit of its run stops
//! it.

/// The names of the functions, the Lua code that runs once as the setup, and the Lua code of the
/// call.
pub(crate) type Worst = (&'static str, &'static str, &'static str);

const TEXT: &str = "local text = ('a'):rep(2 ^ 24)";
const LIST: &str = "local list = {} for at = 1, 2e5 do list[at] = at * 7919 % 200003 end";
const ROWS: &str =
    "local rows = veche.table('rows', { key = 'id:u32', columns = { mark = 'u32' }, indexes = { by_mark = { 'mark' } } })
    rows:batch(function(batch) for id = 1, 1e4 do batch:insert { id = id, mark = id } end end)";

pub(crate) const WORST: &[Worst] = &[
    ("string.find", TEXT, "text:find('ab', 1, true)"),
    (
        "string.find",
        "local text = ('a'):rep(2 ^ 24) local needle = ('a'):rep(2 ^ 20) .. 'b'",
        "text:find(needle, 1, true)",
    ),
    ("string.find", TEXT, "text:find('[ab]-[ab]-c')"),
    ("string.match", TEXT, "text:match('(a*)b')"),
    ("string.gmatch", TEXT, "for _ in text:gmatch('a') do end"),
    ("string.gsub", TEXT, "text:gsub('a', 'b')"),
    ("string.gsub", TEXT, "text:gsub('a', '%0')"),
    ("string.gsub", TEXT, "text:gsub('a', { a = 'b' })"),
    ("string.gsub", TEXT, "text:gsub('a', string.upper)"),
    ("string.gsub", TEXT, "text:gsub('b', '')"),
    (
        "string.format",
        "local text = ('\\1'):rep(2 ^ 19)",
        "return ('%q'):format(text)",
    ),
    (
        "string.format",
        "local text = ('a'):rep(2 ^ 22)",
        "return ('%s%s%s%s'):format(text, text, text, text)",
    ),
    (
        "string.format",
        "local text = ('%%'):rep(2 ^ 18)",
        "return text:format()",
    ),
    ("string.rep", "", "return ('x'):rep(2 ^ 24)"),
    ("string.rep", "", "return ('x'):rep(2 ^ 22, 'yz')"),
    ("string.lower", TEXT, "return text:lower()"),
    ("string.upper", TEXT, "return text:upper()"),
    ("string.reverse", TEXT, "return text:reverse()"),
    ("string.byte", TEXT, "return text:byte(1, 7900)"),
    (
        "string.char unpack select",
        "local list = {} for at = 1, 7900 do list[at] = 65 end",
        "return string.char(unpack(list)), select('#', unpack(list))",
    ),
    ("string.sub", TEXT, "return text:sub(2)"),
    ("string.len", TEXT, "return text:len()"),
    ("table.concat", LIST, "return table.concat(list, ',')"),
    (
        "table.concat",
        "local text = ('a'):rep(2 ^ 20) local list = {} for at = 1, 16 do list[at] = text end",
        "return table.concat(list)",
    ),
    ("table.sort", LIST, "table.sort(list)"),
    (
        "table.sort",
        "local list = {} for at = 1, 1e5 do list[at] = 'key ' .. at * 7919 % 100003 end",
        "table.sort(list)",
    ),
    (
        "table.sort",
        "local list = {} for at = 1, 512 do list[at] = at < 256 and at or 512 - at end",
        "table.sort(list)",
    ),
    (
        "table.sort",
        LIST,
        "table.sort(list, function(a, b) return a > b end)",
    ),
    ("table.sort", LIST, "table.sort(list, rawequal)"),
    (
        "table.sort",
        "local meta, list = { __lt = rawequal }, {} for at = 1, 1e5 do list[at] = setmetatable({}, meta) end",
        "table.sort(list)",
    ),
    ("table.insert", LIST, "table.insert(list, 1, 0)"),
    (
        "table.insert",
        "local list = {} for at = 1, 16000 do list[at] = at end",
        "table.insert(list, 1, 0) list[#list] = nil",
    ),
    ("table.remove", LIST, "table.remove(list, 1)"),
    ("table.move", LIST, "table.move(list, 1, #list, 2)"),
    (
        "table.maxn table.getn",
        LIST,
        "return table.maxn(list), table.getn(list)",
    ),
    ("table.foreach", LIST, "table.foreach(list, rawequal)"),
    ("table.foreachi", LIST, "table.foreachi(list, rawequal)"),
    (
        "pairs ipairs",
        LIST,
        "for _ in pairs(list) do end for _ in ipairs(list) do end",
    ),
    (
        "next",
        "local list = {} for at = 1, 2e5 do list['k' .. at] = at end for key in pairs(list) do list[key] = nil end",
        "return next(list)",
    ),
    (
        "tonumber",
        "local text, zeros = ('0'):rep(2 ^ 24), ('1'):rep(2 ^ 19)",
        "return tonumber(text), tonumber(zeros), tonumber(zeros, 36)",
    ),
    (
        "load loadstring",
        "local source = ('x=1 '):rep(32000)",
        "return load(source), loadstring(source)",
    ),
    (
        "load",
        "local source = 'return {' .. ('{},'):rep(43000) .. '}'",
        "return load(source)",
    ),
    ("pcall", "local function f() pcall(f) end", "f()"),
    ("pcall", "local function f() pcall(f) error('x') end", "f()"),
    (
        "xpcall",
        "local function f() xpcall(f, function(e) return e end) error('x') end",
        "f()",
    ),
    (
        "xpcall debug.traceback",
        "local function f() xpcall(f, debug.traceback) error('x') end",
        "f()",
    ),
    (
        "coroutine.create coroutine.resume",
        "local c, r = coroutine.create, coroutine.resume local function f() assert(r(c(f))) end",
        "f()",
    ),
    (
        "coroutine.wrap",
        "local function f() return coroutine.wrap(f)() end",
        "f()",
    ),
    (
        "coroutine.resume",
        "local c, r = coroutine.create, coroutine.resume local function f() r(c(f)) error('x') end",
        "f()",
    ),
    (
        "string.gsub",
        "local function f() return (('x'):gsub('x', f)) end",
        "f()",
    ),
    (
        "table.sort",
        "local function f() table.sort({ 2, 1, 3 }, function(a, b) pcall(f) return a < b end) end",
        "f()",
    ),
    (
        "collectgarbage",
        "local list = {} for at = 1, 1e5 do list[at] = { at } end",
        "return collectgarbage()",
    ),
    (
        "os.date",
        "local text = ('%c'):rep(512)",
        "return os.date(text)",
    ),
    ("veche.json.encode", LIST, "return veche.json.encode(list)"),
    (
        "veche.json.encode",
        "local fields = {} for at = 1, 1e5 do fields['key ' .. at] = at end",
        "return veche.json.encode(fields)",
    ),
    (
        "veche.json.encode",
        "local text = ('a'):rep(2 ^ 23 - 2)",
        "return veche.json.encode(text)",
    ),
    (
        "veche.json.encode",
        "local text = ('\\1'):rep(2 ^ 23)",
        "return veche.json.encode(text)",
    ),
    (
        "veche.json.decode",
        "local text = '[' .. ('1,'):rep(4e6) .. '1]'",
        "return veche.json.decode(text)",
    ),
    (
        "veche.json.decode",
        "local text = '\"' .. ('\\\\n'):rep(8e6) .. '\"'",
        "return veche.json.decode(text)",
    ),
    (
        "veche.json.decode",
        "local text = (' '):rep(2 ^ 24)",
        "return veche.json.decode(text)",
    ),
    (
        "veche.json.decode",
        "local text = '[' .. ('99999999999999999999,'):rep(7e5) .. '1]'",
        "return veche.json.decode(text)",
    ),
    (
        "veche.hash.sha256 veche.hash.sha1 veche.hash.md5 veche.hash.crc32",
        TEXT,
        "veche.hash.crc32(text) veche.hash.sha1(text) veche.hash.md5(text) veche.hash.sha256(text)",
    ),
    ("veche.hash.crc32", TEXT, "veche.hash.crc32(text)"),
    (
        "veche.hmac.sha256 veche.hmac.sha1",
        TEXT,
        "veche.hmac.sha1(text, text) veche.hmac.sha256(text, text)",
    ),
    (
        "veche.hmac.equals",
        "local text, other = ('a'):rep(2 ^ 23), ('a'):rep(2 ^ 23 - 1) .. 'b'",
        "return veche.hmac.equals(text, other)",
    ),
    (
        "veche.base64.encode veche.base64.encode_url",
        "local text = ('a'):rep(12 * 2 ^ 20)",
        "return #veche.base64.encode(text) + #veche.base64.encode_url(text)",
    ),
    (
        "veche.base64.decode veche.base64.decode_url",
        TEXT,
        "return #veche.base64.decode(text) + #veche.base64.decode_url(text)",
    ),
    ("veche.error", TEXT, "return veche.error(text)"),
    ("error", TEXT, "error(text)"),
    ("print veche.log.info", TEXT, "print(text, text)"),
    (
        "veche.log.debug veche.log.warn veche.log.error",
        LIST,
        "veche.log.debug(list) veche.log.warn(list) veche.log.error(list)",
    ),
    (
        "veche.publish",
        "local text = ('a'):rep(2 ^ 20)",
        "veche.publish('news', text)",
    ),
    ("veche.publish", LIST, "veche.publish('news', list)"),
    (
        "veche.push",
        "local text = ('a'):rep(2 ^ 20)",
        "veche.push('ann', text)",
    ),
    ("conn:send", TEXT, "conn:send(text)"),
    (
        "queue:try_push queue:try_pop",
        "local queue, text = veche.queue('queue'), ('a'):rep(2 ^ 23)",
        "queue:try_push(text) queue:try_pop()",
    ),
    (
        "queue:try_push queue:try_pop",
        "local queue, list = veche.queue('queue'), {} for at = 1, 1e5 do list[at] = at end",
        "queue:try_push(list) queue:try_pop()",
    ),
    (
        "dict:set dict:get",
        "local dict, text = veche.dict('dict'), ('a'):rep(2 ^ 23)",
        "dict:set('key', text) dict:get('key')",
    ),
    (
        "dict:keys dict:count",
        "local dict = veche.dict('dict') for at = 1, 1e5 do dict:set('key ' .. at, at) end",
        "dict:keys('', 10000) dict:count()",
    ),
    (
        "dict:update",
        "local dict = veche.dict('dict')",
        "dict:update('key', function(value) return (value or 0) + 1 end)",
    ),
    (
        "table:scan table:values",
        ROWS,
        "for _ in rows:scan('key') do end for _ in rows:values('key', { columns = { 'id' } }) do end",
    ),
    (
        "table:count table:aggregate",
        ROWS,
        "rows:count('key', { from = 1 }) rows:aggregate('mark', 'key')",
    ),
    (
        "table:batch table:clear",
        ROWS,
        "rows:clear() rows:batch(function(batch) for id = 1, 1e4 do batch:insert { id = id, mark = id } end end)",
    ),
    (
        "table:update table:get table:json",
        ROWS,
        "rows:update(7, function(row) return { mark = row.mark + 1 } end) rows:get(7) rows:json(7)",
    ),
    (
        "channel:try_send channel:try_receive",
        "local channel = veche.channel(1000000)",
        "channel:try_send(1) if channel:length() == 1000000 then while channel:try_receive() do end end",
    ),
    (
        "veche.random.bytes",
        "",
        "return veche.random.bytes(2 ^ 20)",
    ),
    ("veche.spawn", "local function f() end", "veche.spawn(f)"),
    (
        "router:get",
        "local router, at = veche.router(), 0",
        "at = at + 1 router:get('/a/:b/' .. at, print)",
    ),
];
