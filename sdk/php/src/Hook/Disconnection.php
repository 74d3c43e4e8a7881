<?php

declare(strict_types=1);

namespace Veche\Hook;

use Veche\Exception\CallerException;
use Veche\Worker\Effects;

/**
 * Answers a command by closing the connection of its client.
 *
 * ```php
 * $app->connect(fn (Veche\Hook\Event $event) => isBanned($event->client->remote)
 *     ? new Veche\Hook\Disconnection(4501, 'banned')
 *     : null);
 * ```
 */
final class Disconnection implements Decision
{
    /**
     * @param int $code From 3000 to 4999.
     * @throws CallerException
     */
    public function __construct(public readonly int $code, public readonly string $reason = '')
    {
        if ($code < 3000 || $code > 4999) {
            throw new CallerException('a close code must be between 3000 and 4999');
        }
    }

    public function reply(Effects $effects): array
    {
        return ['disconnect' => ['code' => $this->code, 'reason' => $this->reason]];
    }
}
