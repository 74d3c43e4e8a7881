<?php

declare(strict_types=1);

namespace Veche;

/**
 * Outcome of {@see Connection::join()}.
 */
final class Joined
{
    /**
     * @param string|null $position Where the client has joined, as `EPOCH:OFFSET`; null where the channel keeps no
     *     history.
     * @param bool|null $recovered Whether everything after `since` is on its way; null without `since`.
     */
    public function __construct(public readonly ?string $position, public readonly ?bool $recovered)
    {
    }
}
