<?php

declare(strict_types=1);

namespace Veche\Hook;

use Veche\Exception\CallerException;
use Veche\Worker\Effects;

/**
 * Answers a command with an error. The connection stays.
 *
 * ```php
 * $app->subscribe(fn (Veche\Hook\Event $event) => new Veche\Hook\Refusal(403, 'members only'));
 * ```
 */
final class Refusal implements Decision
{
    /**
     * @param int $code From 1.
     * @param bool $isTemporary Whether the same command may succeed later.
     * @throws CallerException
     */
    public function __construct(
        public readonly int $code,
        public readonly string $message = '',
        public readonly bool $isTemporary = false,
    ) {
        if ($code < 1) {
            throw new CallerException('an error code must be at least 1');
        }
    }

    public function reply(Effects $effects): array
    {
        $error = ['code' => $this->code, 'message' => $this->message];
        return ['error' => $error + ($this->isTemporary ? ['temporary' => true] : [])];
    }
}
