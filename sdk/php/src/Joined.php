<?php

declare(strict_types=1);

namespace Veche;

/**
 * Outcome of {@see Connection::join()}.
 */
final class Joined
{
    /**
     * @param string|null $position Position in the channel at which the subscription begins, as
     *     `EPOCH:OFFSET`; null if the channel keeps no history.
     * @param bool|null $recovered Whether all publications after `since` are being sent; null
     *     without `since`.
     */
    public function __construct(public readonly ?string $position, public readonly ?bool $recovered)
    {
    }
}
