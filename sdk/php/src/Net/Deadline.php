<?php

declare(strict_types=1);

namespace Veche\Net;

/**
 * The time at which an operation has to be complete.
 *
 * @internal
 */
final class Deadline
{
    private function __construct(private readonly float $at)
    {
    }

    public static function in(float $seconds): self
    {
        return new self(self::now() + $seconds);
    }

    /**
     * Returns the seconds that are left, at least 0.
     */
    public function remaining(): float
    {
        return max(0.0, $this->at - self::now());
    }

    public function isOver(): bool
    {
        return $this->at <= self::now();
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
