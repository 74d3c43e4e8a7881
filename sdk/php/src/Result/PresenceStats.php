<?php

declare(strict_types=1);

namespace Veche\Result;

/**
 * Numbers of subscribers of a channel.
 */
final class PresenceStats
{
    /**
     * @param int $clients Connections.
     * @param int $users Different users; all anonymous clients count as one.
     */
    public function __construct(public readonly int $clients, public readonly int $users)
    {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self($fields->int('num_clients'), $fields->int('num_users'));
    }
}
