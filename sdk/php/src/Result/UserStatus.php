<?php

declare(strict_types=1);

namespace Veche\Result;

/**
 * Whether a user is connected.
 */
final class UserStatus
{
    /**
     * @param bool $online Whether the user has a connection.
     * @param int $connections Number of connections.
     * @param int|null $lastSeen When the last connection ended, in milliseconds since 1970, if the
     *     server remembers it.
     * @param bool $blocked Whether `blockUser` is in force.
     */
    public function __construct(
        public readonly bool $online,
        public readonly int $connections,
        public readonly ?int $lastSeen = null,
        public readonly bool $blocked = false,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->bool('online', false),
            $fields->int('connections'),
            $fields->optionalInt('last_seen'),
            $fields->bool('blocked', false),
        );
    }
}
