<?php

declare(strict_types=1);

namespace Veche\Result;

/**
 * A connection as the server knows it.
 */
final class ConnectionInfo
{
    /**
     * @param string $user Name of the user; empty for anonymous clients.
     * @param string $handler Handler of the route: `push`, `centrifuge`, `lua` and so on.
     * @param string $transport Such as `websocket`.
     * @param string $protocol Such as `json`; empty where the handler has none.
     * @param string $route Path of the route.
     * @param string $address Address of the client.
     * @param string $appName Name that the client's SDK gave.
     * @param string $appVersion Version that the client's SDK gave.
     * @param list<string> $channels Channels that it is subscribed to.
     */
    public function __construct(
        public readonly string $user,
        public readonly string $handler,
        public readonly string $transport,
        public readonly string $protocol,
        public readonly string $route,
        public readonly string $address,
        public readonly string $appName,
        public readonly string $appVersion,
        public readonly array $channels,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->string('user'),
            $fields->string('handler', ''),
            $fields->string('transport', ''),
            $fields->string('protocol', ''),
            $fields->string('route', ''),
            $fields->string('address', ''),
            $fields->string('app_name', ''),
            $fields->string('app_version', ''),
            array_map(strval(...), array_keys($fields->object('state')->array('channels'))),
        );
    }
}
