"""A process between nodes and Redis that breaks the network in between. Reads orders from its standard input, a line each:
a port, a fault, and the fault's number.

    relay.py TARGET PORT [PORT...]
"""

import asyncio
import os
import sys

STEP_S = 0.02
GARBAGE = b"$-7\r\n*9999999999\r\n\x00\xff\xfe:::\r\n"


class Line:
    """The way from one port to Redis."""

    def __init__(self, target):
        self.target, self.fault, self.number = target, "none", 0.0
        self.transfers = set()

    def set(self, fault, number):
        self.fault, self.number = fault, number
        if fault == "cut":
            for writer in list(self.transfers):
                writer.transport.abort()

    async def join(self, reader, writer):
        if self.fault == "cut":
            writer.transport.abort()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there[1]}
        self.transfers |= ends
        both = [asyncio.ensure_future(self.transfer(reader, there[1], False))]
        both.append(asyncio.ensure_future(self.transfer(there[0], writer, True)))
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.transport.abort()
        for each in both:
            each.cancel()
        self.transfers -= ends

    async def transfer(self, reader, writer, is_answer):
        """Forwards bytes until either side ends; a connection that has lost bytes ends with the fault."""
        has_lost = False
        try:
            while True:
                data = await reader.read(64 << 10)
                if not data:
                    return
                while self.fault == "stall":
                    await asyncio.sleep(STEP_S)
                if self.fault == "half-open":
                    has_lost = True
                    while self.fault == "half-open":
                        await asyncio.sleep(STEP_S)
                if has_lost:
                    return
                if self.fault == "delay":
                    await asyncio.sleep(self.number)
                if is_answer and self.fault == "garbage":
                    data = GARBAGE + data
                if is_answer and self.fault == "truncate" and len(data) > 8:
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    return
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            return


async def main():
    target, ports = int(sys.argv[1]), [int(port) for port in sys.argv[2:]]
    lines = {port: Line(target) for port in ports}
    for port, line in lines.items():
        await asyncio.start_server(line.join, "127.0.0.1", port)
    orders = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(orders)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(0, "rb"))
    print("ready", flush=True)
    while order := (await orders.readline()).split():
        if order[1] == b"target":
            lines[int(order[0])].target = int(order[2])
        else:
            lines[int(order[0])].set(order[1].decode(), float(order[2]))
        print("done", flush=True)
    # Without a word about the transfers that end here.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
