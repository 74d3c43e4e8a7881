<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use PHPUnit\Framework\TestCase;
use Veche\Tests\Support\Server;
use Veche\WebSocket\Client as Socket;

/**
 * Tests against one real server, which the class starts and stops.
 */
abstract class ServerTestCase extends TestCase
{
    protected static Server $server;

    public static function setUpBeforeClass(): void
    {
        self::$server = new Server(static::config());
    }

    public static function tearDownAfterClass(): void
    {
        self::$server->stop();
    }

    abstract protected static function config(): string;

    protected static function open(string $path): Socket
    {
        return Socket::connect(self::$server->url($path));
    }

    /**
     * Opens a client of Centrifugo's protocol and returns it with its id.
     *
     * @return array{Socket, string}
     */
    protected static function centrifuge(string $query, string $token = ''): array
    {
        $socket = self::open("/connection/websocket$query");
        $connect = ['name' => 'suite', 'version' => '1.0'] + ($token === '' ? [] : ['token' => $token]);
        $socket->send(json_encode(['id' => 1, 'connect' => $connect], JSON_THROW_ON_ERROR));
        return [$socket, self::next($socket)['connect']['client']];
    }

    /**
     * Returns the next message of a client of Centrifugo's protocol.
     *
     * @return array<string, mixed>
     */
    protected static function next(Socket $socket): array
    {
        return json_decode($socket->receive(10)->data, true, 512, JSON_THROW_ON_ERROR);
    }
}
