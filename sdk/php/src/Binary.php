<?php

declare(strict_types=1);

namespace Veche;

/**
 * Bytes that clients receive as a binary message.
 *
 * ```php
 * $veche->push('ann', new Veche\Binary(file_get_contents('picture.png')));
 * ```
 */
final class Binary
{
    public function __construct(public readonly string $bytes)
    {
    }
}
