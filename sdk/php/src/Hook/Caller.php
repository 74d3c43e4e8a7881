<?php

declare(strict_types=1);

namespace Veche\Hook;

/**
 * The client of Centrifugo's protocol that an event is about.
 */
final class Caller
{
    /**
     * @param string $id Id of the client.
     * @param string|null $user The user; null before it is known, and for anonymous clients.
     * @param string $transport Such as `websocket`.
     * @param string $protocol `json` or `protobuf`.
     * @param string $name Name that the client's SDK gave.
     * @param string $version Version that the client's SDK gave.
     * @param string $remote Address of the client.
     * @param list<array{string, string}> $headers Headers that the route passes on, with names in lower case.
     * @param mixed $meta Data of the application about the connection.
     */
    public function __construct(
        public readonly string $id,
        public readonly ?string $user,
        public readonly string $transport,
        public readonly string $protocol,
        public readonly string $name,
        public readonly string $version,
        public readonly string $remote,
        public readonly array $headers,
        public readonly mixed $meta,
    ) {
    }
}
