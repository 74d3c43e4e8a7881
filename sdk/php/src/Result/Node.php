<?php

declare(strict_types=1);

namespace Veche\Result;

/**
 * A server process.
 */
final class Node
{
    /**
     * @param string $uid Id of the process.
     * @param string $name Name of the machine.
     * @param string $version Version of Veche.
     * @param int $clients Connections.
     * @param int $users Different users.
     * @param int $channels Channels with subscribers.
     * @param int $subscriptions Subscriptions.
     * @param int $uptime Seconds since the start.
     */
    public function __construct(
        public readonly string $uid,
        public readonly string $name,
        public readonly string $version,
        public readonly int $clients,
        public readonly int $users,
        public readonly int $channels,
        public readonly int $subscriptions,
        public readonly int $uptime,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->string('uid'),
            $fields->string('name'),
            $fields->string('version'),
            $fields->int('num_clients'),
            $fields->int('num_users'),
            $fields->int('num_channels'),
            $fields->int('num_subs'),
            $fields->int('uptime'),
        );
    }
}
