"""Tests Centrifugo's public Python client, unmodified, against a real server, with JSON and with Protobuf.

    python centrifuge_python.py

The interpreter is one that has centrifuge-python: tests/setup/pypi.sh centrifuge-python.
"""

import asyncio
import json
import urllib.request

from centrifuge import CentrifugeError, Client, ClientEventHandler, SubscriptionEventHandler

from veche import Veche

CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{internal_port}"
role = "internal"
[[route]]
path = "/connection/*"
handler = "centrifuge"
identity = "query:user"
[[namespace]]
name = "chat"
history_size = 10
presence = true
subscribe = "client"
publish = "subscriber"
"""
SOON_S = 10


def publish(server, channel, data):
    body = json.dumps({"channel": channel, "data": data}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.internal_port}/api/publish", body) as answer:
        assert answer.status == 200, answer.status


class Heard(SubscriptionEventHandler):
    """The publications of a subscription, and its reply."""

    def __init__(self):
        self.publications, self.joined = asyncio.Queue(), asyncio.Queue()

    async def on_publication(self, ctx):
        await self.publications.put(ctx.pub)

    async def on_subscribed(self, ctx):
        await self.joined.put(ctx)


class Pushed(ClientEventHandler):
    """Records the publications of the user's personal channel."""

    def __init__(self):
        self.publications = asyncio.Queue()

    async def on_publication(self, ctx):
        await self.publications.put(ctx)


def soon(what):
    return asyncio.wait_for(what, SOON_S)


async def use(server, is_binary):
    def wrap(value):
        return json.dumps(value).encode() if is_binary else value

    def unwrap(data):
        return json.loads(data) if is_binary else data

    pushed, heard = Pushed(), Heard()
    user = f"ann{int(is_binary)}"
    url = f"ws://127.0.0.1:{server.port}/connection/websocket?user={user}"
    client = Client(url, events=pushed, use_protobuf=is_binary, min_reconnect_delay=0.01)
    channel = f"chat:{user}"
    subscription = client.new_subscription(channel, events=heard)
    await client.connect()
    await subscription.subscribe()
    await soon(heard.joined.get())
    await subscription.publish(wrap({"n": 1}))
    first = await soon(heard.publications.get())
    assert unwrap(first.data) == {"n": 1} and first.offset == 1, first
    assert first.info.user == user, first
    history = await subscription.history(limit=10)
    assert [unwrap(one.data) for one in history.publications] == [{"n": 1}], history
    stats = await subscription.presence_stats()
    assert stats.num_clients == 1, stats
    try:
        await client.rpc("method", wrap({}))
        raise AssertionError("an unexpected request")
    except CentrifugeError as error:
        assert "108" in str(error) or getattr(error, "code", 108) == 108, error

    body = json.dumps({"user": user, "data": {"yours": True}}).encode()
    urllib.request.urlopen(f"http://127.0.0.1:{server.internal_port}/api/push", body).close()
    own = await soon(pushed.publications.get())
    assert own.channel == f"#{user}" and unwrap(own.pub.data) == {"yours": True}, own

    # The client disconnects for a while and recovers everything.
    await client.disconnect()
    for number in (2, 3):
        publish(server, channel, {"n": number})
    await client.connect()
    joined = await soon(heard.joined.get())
    assert joined.was_recovering and joined.recovered, joined
    missed = [unwrap((await soon(heard.publications.get())).data) for _ in range(2)]
    assert missed == [{"n": 2}, {"n": 3}], missed
    await subscription.unsubscribe()
    await client.disconnect()


def main():
    with Veche(CONFIG) as server:
        for is_binary in (False, True):
            asyncio.run(use(server, is_binary))
            print("ok  ", "Protobuf" if is_binary else "JSON", flush=True)


if __name__ == "__main__":
    main()
