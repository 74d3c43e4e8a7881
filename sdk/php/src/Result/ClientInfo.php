<?php

declare(strict_types=1);

namespace Veche\Result;

/**
 * A connection as other clients see it.
 */
final class ClientInfo
{
    /**
     * @param string $user Name of the user; empty for anonymous clients.
     * @param string $client Id of the connection.
     * @param mixed $connectionInfo `info` of the connection's token.
     * @param mixed $channelInfo `info` of the subscription.
     */
    public function __construct(
        public readonly string $user,
        public readonly string $client,
        public readonly mixed $connectionInfo = null,
        public readonly mixed $channelInfo = null,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->string('user'),
            $fields->string('client'),
            $fields->value('conn_info'),
            $fields->value('chan_info'),
        );
    }
}
