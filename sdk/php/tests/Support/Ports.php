<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

/**
 * Ports of the loopback address.
 */
final class Ports
{
    /**
     * Returns ports that were free a moment ago.
     *
     * @return list<int>
     */
    public static function free(int $count): array
    {
        $held = array_map(static fn () => stream_socket_server('tcp://127.0.0.1:0'), range(1, $count));
        $ports = array_map(self::of(...), $held);
        array_map(fclose(...), $held);
        return $ports;
    }

    /**
     * @param resource $listener
     */
    public static function of($listener): int
    {
        return (int) substr(strrchr((string) stream_socket_get_name($listener, false), ':'), 1);
    }
}
