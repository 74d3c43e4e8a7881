"""A table of HTTP requests with the expected results. A case has the bytes to send, the statuses of the responses in
order (a set if the RFC permits several), and whether the connection stays open: KEPT, CLOSED, or None if both are
correct. Requests to `/api/` go to the internal listener, all others to the public one."""

KEPT, CLOSED = "kept", "closed"
GET = b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
PUSH = b'{"user":"nobody","data":"x"}'


def get(*headers, target=b"/hello.txt", version=b"HTTP/1.1", method=b"GET", host=b"Host: a\r\n"):
    lines = b"".join(header + b"\r\n" for header in headers)
    return method + b" " + target + b" " + version + b"\r\n" + host + lines + b"\r\n"


def post(*headers, body=b""):
    key = b"X-API-Key: a-key-for-the-suite"
    return get(key, *headers, target=b"/api/push", method=b"POST") + body


def sized(body=PUSH, value=None):
    return post(b"Content-Length: " + (value if value is not None else str(len(body)).encode()), body=body)


def chunked(body, coding=b"Transfer-Encoding: chunked"):
    return post(coding, body=body)


UPGRADE = [b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Sec-WebSocket-Version: 13"]


def upgrade(*more, without=b"-", method=b"GET", version=b"HTTP/1.1", target=b"/echo"):
    kept = [line for line in UPGRADE if not line.lower().startswith(without.lower())]
    return get(*kept, *more, method=method, version=version, target=target)


# Each case has a name, the bytes to send, the expected statuses in order, and whether the connection stays open.
CASES = [
    # Versions and keep-alive: RFC 9112 section 9.
    ("1.1 stays open", GET, [200], KEPT),
    ("1.1 with Connection: close", get(b"Connection: close"), [200], CLOSED),
    ("1.1 with close among other options", get(b"Connection: foo, Close"), [200], CLOSED),
    ("1.0 closes", get(version=b"HTTP/1.0"), [200], CLOSED),
    ("1.0 without Host", get(version=b"HTTP/1.0", host=b""), [200], CLOSED),
    ("1.0 with keep-alive", get(b"Connection: Keep-Alive", version=b"HTTP/1.0"), [200], KEPT),
    ("pipelined, three", GET * 3, [200] * 3, KEPT),
    ("pipelined, two hundred", GET * 200, [200] * 200, KEPT),
    ("pipelined up to a close", GET + get(b"Connection: close") + GET, [200, 200], CLOSED),
    ("pipelined, a 404 in between", GET + get(target=b"/none") + GET, [200, 404, 200], KEPT),
    ("pipelined behind a sized body", sized() + HEALTH, [200, 200], KEPT),
    ("pipelined behind a chunked body", chunked(b"%x\r\n%s\r\n0\r\n\r\n" % (len(PUSH), PUSH)) + HEALTH, [200, 200], KEPT),
    ("an empty line before the request", b"\r\n" + GET, [200], KEPT),
    # Request line: RFC 9112 section 3.
    ("version 2.0", get(version=b"HTTP/2.0"), [505], CLOSED),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [{400, 505}], CLOSED),
    ("no version", b"GET /hello.txt\r\nHost: a\r\n\r\n", [{400, 505}], CLOSED),
    ("lower-case version", get(version=b"http/1.1"), [400], CLOSED),
    ("version with a space", get(version=b"HTTP/1. 1"), [400], CLOSED),
    ("no such method", get(method=b"BREW"), [{405, 501}], None),
    ("method with a bad character", get(method=b"GE(T"), [400], CLOSED),
    ("lower-case method", get(method=b"get"), [{405, 501}], None),
    ("CONNECT", get(method=b"CONNECT", target=b"a:80"), [{400, 405, 501}], None),
    ("TRACE", get(method=b"TRACE"), [{405, 501}], None),
    ("OPTIONS *", get(method=b"OPTIONS", target=b"*"), [{200, 204, 404, 405, 501}], None),
    ("two spaces", b"GET  /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n", [400], CLOSED),
    ("a tab for a space", b"GET\t/hello.txt HTTP/1.1\r\nHost: a\r\n\r\n", [400], CLOSED),
    ("a space in the target", get(target=b"/hello .txt"), [400], CLOSED),
    ("a control byte in the target", get(target=b"/hello\x01.txt"), [400], CLOSED),
    ("absolute form", get(target=b"http://a/hello.txt"), [200], KEPT),
    ("target without a slash", get(target=b"hello.txt"), [400], CLOSED),
    ("target of 9,000 bytes", get(target=b"/" + b"a" * 9000), [414], CLOSED),
    ("target without an end", b"GET /" + b"a" * 70_000, [{414, 431}], CLOSED),
    # Header lines: RFC 9112 section 5.
    ("bare LF", GET.replace(b"\r\n", b"\n"), [400], CLOSED),
    ("one bare LF", b"GET /hello.txt HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", [400], CLOSED),
    ("bare CR in a value", get(b"X: a\rb"), [400], CLOSED),
    ("NUL in a value", get(b"X: a\0b"), [400], CLOSED),
    ("folded line", get(b"X: a\r\n b"), [400], CLOSED),
    ("space before the first header", b"GET /hello.txt HTTP/1.1\r\n Host: a\r\n\r\n", [400], CLOSED),
    ("space before the colon", get(b"X : y"), [400], CLOSED),
    ("space in a name", get(b"X y: z"), [400], CLOSED),
    ("no name", get(b": y"), [400], CLOSED),
    ("no colon", get(b"nonsense"), [400], CLOSED),
    ("an empty value", get(b"X:"), [200], KEPT),
    ("octets above 127 in a value", get(b"X: \xe4\xf6\xfc"), [200], KEPT),
    ("a header of 32 KiB", get(b"X: " + b"y" * 32_768), [431], CLOSED),
    ("500 headers", get(*[b"X-%d: y" % n for n in range(500)]), [431], CLOSED),
    ("head without an end", b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 20_000, [431], CLOSED),
    # Host: RFC 9112 section 3.2.
    ("no Host", get(host=b""), [400], CLOSED),
    ("two Hosts", get(b"Host: b"), [400], CLOSED),
    ("Host with a space", get(host=b"Host: a b\r\n"), [400], CLOSED),
    ("Host with a path", get(host=b"Host: a/b\r\n"), [400], CLOSED),
    # Lengths of bodies, and attempts at request smuggling: RFC 9112 section 6.
    ("sized", sized(), [200], KEPT),
    ("length and chunked", post(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("chunked and length", post(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("two lengths", post(b"Content-Length: 5", b"Content-Length: 6", body=b"123456" + HEALTH), [400], CLOSED),
    ("length with plus", sized(value=b"+28") + HEALTH, [400], CLOSED),
    ("length with minus", sized(value=b"-1") + HEALTH, [400], CLOSED),
    ("length as a list", sized(value=b"28, 29") + HEALTH, [400], CLOSED),
    ("length in hex", sized(value=b"0x1c") + HEALTH, [400], CLOSED),
    ("length with a space", sized(value=b"2 8") + HEALTH, [400], CLOSED),
    ("length empty", sized(value=b"") + HEALTH, [400], CLOSED),
    ("length beyond 64 bits", sized(value=b"99999999999999999999") + HEALTH, [{400, 413}], CLOSED),
    ("length of 10 TB", sized(body=b"", value=b"10000000000000"), [413], CLOSED),
    ("chunked, misspelt", chunked(b"0\r\n\r\n" + HEALTH, b"Transfer-Encoding: xchunked"), [{400, 501}], CLOSED),
    ("chunked with a space before the colon", chunked(b"0\r\n\r\n" + HEALTH, b"Transfer-Encoding : chunked"), [400], CLOSED),
    ("chunked is not last", chunked(b"0\r\n\r\n" + HEALTH, b"Transfer-Encoding: chunked, identity"), [{400, 501}], CLOSED),
    ("identity", chunked(b"0\r\n\r\n" + HEALTH, b"Transfer-Encoding: identity"), [{400, 501}], CLOSED),
    ("gzip, chunked", chunked(b"0\r\n\r\n" + HEALTH, b"Transfer-Encoding: gzip, chunked"), [{400, 501}], CLOSED),
    ("two codings", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=b"0\r\n\r\n" + HEALTH), [{400, 501}], CLOSED),
    ("chunked after a vertical tab", chunked(b"0\r\n\r\n" + HEALTH, b"Transfer-Encoding:\x0bchunked"), [{400, 501}], CLOSED),
    ("chunked in 1.0", get(b"Transfer-Encoding: chunked", version=b"HTTP/1.0", method=b"POST", target=b"/api/push") + b"0\r\n\r\n", [400], CLOSED),
    ("chunks, extension, trailer", chunked(b"5;a=b\r\n%s\r\n%x\r\n%s\r\n0\r\nX: y\r\n\r\n" % (PUSH[:5], len(PUSH) - 5, PUSH[5:])), [200], KEPT),
    ("chunk size with 0x", chunked(b"0x5\r\n12345\r\n0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("chunk size with plus", chunked(b"+5\r\n12345\r\n0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("chunk size empty", chunked(b"\r\n12345\r\n0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("chunk size overflows", chunked(b"FFFFFFFFFFFFFFFFF\r\n12345\r\n0\r\n\r\n" + HEALTH), [{400, 413}], CLOSED),
    ("chunk size ends in LF", chunked(b"5\n12345\r\n0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("LF in an extension", chunked(b"5;a=\n12345\r\n0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("chunk without its CRLF", chunked(b"5\r\n123456\r\n0\r\n\r\n" + HEALTH), [400], CLOSED),
    ("trailer with a bare LF", chunked(b"0\r\nX: y\n\r\n" + HEALTH), [400], CLOSED),
    ("a trailer that is no header", chunked(b"0\r\nnonsense\r\n\r\n" + HEALTH), [400], CLOSED),
    # In HTTP/1.1 a request without a length has no body (RFC 9112 section 6.3); in HTTP/1.0 its length is unknown.
    ("POST without a length", post(), [{200, 400, 411}], None),
    ("POST without a length in 1.0", post().replace(b"HTTP/1.1", b"HTTP/1.0"), [411], CLOSED),
    ("a body that a static file does not use", get(b"Content-Length: 5", method=b"POST") + b"12345" + GET, [405, 200], None),
    ("GET with a body", get(b"Content-Length: 5") + b"12345" + GET, [{200, 400}, 200], KEPT),
    # Expect: RFC 9110 section 10.1.1.
    ("Expect: 100-continue", sized().replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n", 1), [200], KEPT),
    ("another expectation", get(b"Expect: miracles"), [417], None),
    ("100-continue for an oversized body", post(b"Content-Length: 10000000000000", b"Expect: 100-continue"), [413], CLOSED),
    # Static files.
    ("no such file", get(target=b"/none"), [404], KEPT),
    ("HEAD", get(method=b"HEAD"), [200], KEPT),
    ("HEAD of nothing", get(method=b"HEAD", target=b"/none"), [404], KEPT),
    ("DELETE", get(method=b"DELETE"), [405], None),
    ("a query", get(target=b"/hello.txt?a=b"), [200], KEPT),
    ("percent-encoded", get(target=b"/%68ello.txt"), [200], KEPT),
    ("dots out", get(target=b"/../secret.txt"), [{400, 403, 404}], None),
    ("dots out, encoded", get(target=b"/%2e%2e/secret.txt"), [{400, 403, 404}], None),
    ("slash encoded", get(target=b"/..%2fsecret.txt"), [{400, 403, 404}], None),
    ("dots out, deeper", get(target=b"/sub/../../secret.txt"), [{400, 403, 404}], None),
    ("backslash", get(target=b"/..\\secret.txt"), [{400, 403, 404}], None),
    ("backslash encoded", get(target=b"/..%5csecret.txt"), [{400, 403, 404}], None),
    ("twice encoded", get(target=b"/%252e%252e/secret.txt"), [{400, 403, 404}], None),
    ("two slashes", get(target=b"//secret.txt"), [{400, 403, 404}], None),
    ("NUL encoded", get(target=b"/hello.txt%00.html"), [{400, 403, 404}], None),
    ("bad percent", get(target=b"/%zz"), [{400, 404}], None),
    ("link out of the root", get(target=b"/out"), [{400, 403, 404}], None),
    ("CRLF encoded", get(target=b"/%0d%0aX-Split:%20yes"), [{400, 404}], None),
    # WebSocket handshakes: RFC 6455 section 4.2.
    ("plain GET where a WebSocket is", get(target=b"/echo"), [{400, 426}], None),
    ("upgrade", upgrade(), [101], None),
    ("upgrade, Connection: keep-alive, Upgrade", upgrade(b"Connection: keep-alive, Upgrade", without=b"Connection"), [101], None),
    ("upgrade, WebSocket in capitals", upgrade(b"Upgrade: WebSocket", without=b"Upgrade"), [101], None),
    ("upgrade, version 7", upgrade(b"Sec-WebSocket-Version: 7", without=b"Sec-WebSocket-Version"), [426], None),
    ("upgrade, no version", upgrade(without=b"Sec-WebSocket-Version"), [{400, 426}], None),
    ("upgrade, no key", upgrade(without=b"Sec-WebSocket-Key"), [400], None),
    ("upgrade, short key", upgrade(b"Sec-WebSocket-Key: YWJj", without=b"Sec-WebSocket-Key"), [400], None),
    ("upgrade, two keys", upgrade(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), [400], None),
    ("upgrade by POST", upgrade(b"Content-Length: 0", method=b"POST"), [{400, 405, 426}], None),
    ("upgrade in 1.0", upgrade(version=b"HTTP/1.0"), [{400, 426}], None),
    ("upgrade to something else", get(b"Connection: Upgrade", b"Upgrade: h2c"), [200], None),
    ("upgrade where nothing is", upgrade(target=b"/none"), [404], None),
    ("upgrade with a body", upgrade(b"Content-Length: 5") + b"12345" + GET, [{400, 413}, 200], KEPT),
]


def is_internal(data):
    """Returns whether a case is for the internal listener."""
    return b" /api/" in data
