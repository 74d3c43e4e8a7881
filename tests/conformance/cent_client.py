"""Tests Centrifugo's public Python client of its server API, unmodified, against a real server.

    python cent_client.py

The interpreter is one that has cent: tests/setup/pypi.sh cent.
"""

import asyncio
import contextlib
import json

import aiohttp
from cent import (
    AsyncClient,
    BatchRequest,
    BlockUserRequest,
    BroadcastRequest,
    CentApiResponseError,
    CentUnauthorizedError,
    ChannelsRequest,
    Client,
    ConnectionsRequest,
    Disconnect,
    DisconnectRequest,
    HistoryRemoveRequest,
    HistoryRequest,
    InfoRequest,
    PresenceRequest,
    PresenceStatsRequest,
    PublishRequest,
    RefreshRequest,
    StreamPosition,
    SubscribeRequest,
    UnblockUserRequest,
    UnsubscribeRequest,
)

from veche import Veche

KEY = "the-key-of-the-suite"
CONFIG = """
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{internal_port}"
role = "internal"
[api]
keys = ["the-key-of-the-suite"]
[[route]]
path = "/connection/*"
handler = "centrifuge"
identity = "query:user"
[[namespace]]
name = "chat"
history_size = 10
presence = true
subscribe = "client"
[[namespace]]
name = ""
"""
SOON_S = 10


class Browser:
    """A client of the server, in JSON over a WebSocket."""

    def __init__(self, socket):
        self.socket, self.lines = socket, []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, server, user):
        url = f"http://127.0.0.1:{server.port}/connection/websocket?user={user}"
        async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
            browser = cls(socket)
            await socket.send_str('{"id":1,"connect":{"name":"suite","version":"1.0"}}')
            browser.client = (await browser.next())["connect"]["client"]
            yield browser

    async def next(self):
        while not self.lines:
            message = await asyncio.wait_for(self.socket.receive(), SOON_S)
            assert message.type == aiohttp.WSMsgType.TEXT, message
            self.lines = [json.loads(line) for line in message.data.split("\n")]
        return self.lines.pop(0)

    async def closed(self):
        while not self.socket.closed:
            await asyncio.wait_for(self.socket.receive(), SOON_S)
        return self.socket.close_code


def refused(call, code):
    try:
        call()
    except CentApiResponseError as error:
        assert error.code == code, error
    else:
        raise AssertionError(f"not refused with {code}")


def channels_that_remember(client):
    first = client.publish(PublishRequest(channel="chat:1", data={"n": 1}, tags={"a": "b"}, idempotency_key="one"))
    assert first.offset == 1 and first.epoch, first
    again = client.publish(PublishRequest(channel="chat:1", data={"n": 1}, idempotency_key="one"))
    assert (again.offset, again.epoch) == (first.offset, first.epoch), again
    passing = client.publish(PublishRequest(channel="chat:1", data={"n": 0}, skip_history=True))
    assert passing.offset in (0, 1), passing
    both = client.broadcast(BroadcastRequest(channels=["chat:1", "chat:2"], data={"n": 2}))
    assert [one.result.offset for one in both.responses] == [2, 1], both

    history = client.history(HistoryRequest(channel="chat:1", limit=-1))
    assert [one.data for one in history.publications] == [{"n": 1}, {"n": 2}], history
    assert history.publications[0].tags == {"a": "b"} and history.offset == 2, history
    since = StreamPosition(offset=1, epoch=first.epoch)
    history = client.history(HistoryRequest(channel="chat:1", limit=10, since=since))
    assert [one.offset for one in history.publications] == [2], history
    history = client.history(HistoryRequest(channel="chat:1", limit=1, reverse=True))
    assert [one.data for one in history.publications] == [{"n": 2}], history
    client.history_remove(HistoryRemoveRequest(channel="chat:1"))
    history = client.history(HistoryRequest(channel="chat:1", limit=-1))
    assert history.publications == [] and history.offset == 2, history

    refused(lambda: client.history(HistoryRequest(channel="plain", limit=1)), 108)
    refused(lambda: client.presence(PresenceRequest(channel="plain")), 108)
    refused(lambda: client.publish(PublishRequest(channel="", data=1)), 107)

    requests = [PublishRequest(channel="chat:3", data=1), HistoryRequest(channel="chat:3", limit=5)]
    published, history = client.batch(BatchRequest(requests=requests)).replies
    assert published.offset == 1 and [one.data for one in history.publications] == [1], (published, history)


async def people(server, client):
    async def call(method, *arguments):
        return await asyncio.to_thread(method, *arguments)

    async with Browser.open(server, "ann") as ann:
        await call(client.subscribe, SubscribeRequest(user="ann", channel="chat:9", data={"hello": 1}, info={"x": 2}))
        push = (await ann.next())["push"]
        assert push["channel"] == "chat:9" and push["subscribe"]["data"] == {"hello": 1}, push
        presence = (await call(client.presence, PresenceRequest(channel="chat:9"))).presence
        assert [(one.user, one.chan_info) for one in presence.values()] == [("ann", {"x": 2})], presence
        assert list(presence) == [ann.client], presence
        stats = await call(client.presence_stats, PresenceStatsRequest(channel="chat:9"))
        assert (stats.num_clients, stats.num_users) == (1, 1), stats
        channels = (await call(client.channels, ChannelsRequest(pattern="chat:*"))).channels
        assert {name: one.num_clients for name, one in channels.items()} == {"chat:9": 1}, channels
        connections = (await call(client.connections, ConnectionsRequest(user="ann", expression=""))).connections
        mine = connections[ann.client]
        assert (mine.app_name, mine.app_version, mine.transport, mine.protocol) == ("suite", "1.0", "websocket", "json"), mine
        assert set(mine.state.channels) == {"#ann", "chat:9"}, mine
        node = (await call(client.info, InfoRequest())).nodes[0]
        assert node.num_clients == 1 and node.num_users == 1, node

        await call(client.publish, PublishRequest(channel="chat:9", data="text"))
        push = (await ann.next())["push"]
        assert push["pub"]["data"] == "text", push
        await call(client.unsubscribe, UnsubscribeRequest(user="ann", channel="chat:9"))
        push = (await ann.next())["push"]
        assert push["channel"] == "chat:9" and push["unsubscribe"]["code"] == 2000, push
        await call(client.refresh, RefreshRequest(user="ann", expired=True))
        assert await ann.closed() == 3005

    async with Browser.open(server, "bob") as bob:
        why = Disconnect(code=4501, reason="enough")
        await call(client.disconnect, DisconnectRequest(user="bob", disconnect=why))
        assert await bob.closed() == 4501
    async with Browser.open(server, "eve") as eve:
        await call(client.block_user, BlockUserRequest(user="eve"))
        assert await eve.closed() == 3507
        url = f"http://127.0.0.1:{server.port}/connection/websocket?user=eve"
        async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
            assert await Browser(socket).closed() == 3507
        await call(client.unblock_user, UnblockUserRequest(user="eve"))
        async with Browser.open(server, "eve"):
            pass


async def asynchronous(url):
    client = AsyncClient(url, KEY)
    try:
        result = await client.publish(PublishRequest(channel="chat:7", data={"async": True}))
        assert result.offset == 1, result
    finally:
        await client.close()


def main():
    with Veche(CONFIG) as server:
        url = f"http://127.0.0.1:{server.internal_port}/api"
        client = Client(url, KEY)
        channels_that_remember(client)
        print("ok   channels that remember", flush=True)
        asyncio.run(people(server, client))
        print("ok   people", flush=True)
        asyncio.run(asynchronous(url))
        print("ok   asynchronous", flush=True)
        try:
            Client(url, "another-key").info(InfoRequest())
            raise AssertionError("that is no key")
        except CentUnauthorizedError:
            print("ok   a key is asked for", flush=True)


if __name__ == "__main__":
    main()
