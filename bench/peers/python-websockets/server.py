"""The peer `websockets` on asyncio: an echo at any path and a short body for plain GET. `server.py PORT`."""

import asyncio
import http
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def echo(connection):
    try:
        # Text arrives as str and binary as bytes, and `send` keeps the type.
        async for message in connection:
            await connection.send(message)
    except ConnectionClosed:
        pass  # a reset is the load generator's way to end


def answer_plain(connection, request):
    if "Upgrade" not in request.headers:
        return connection.respond(http.HTTPStatus.OK, "Hello, world!\n")
    return None


async def main(port):
    # Compression and pings are off, as in the other servers of the comparison.
    options = {"compression": None, "ping_interval": None, "process_request": answer_plain, "backlog": 4096}
    async with serve(echo, "127.0.0.1", port, **options) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
