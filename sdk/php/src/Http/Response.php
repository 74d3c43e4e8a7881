<?php

declare(strict_types=1);

namespace Veche\Http;

/**
 * Status, headers and body of an answer.
 */
final class Response
{
    /**
     * @param array<string, string> $headers By name in lower case.
     */
    public function __construct(
        public readonly int $status,
        public readonly array $headers,
        public readonly string $body,
    ) {
    }
}
