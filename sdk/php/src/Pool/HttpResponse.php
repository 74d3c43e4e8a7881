<?php

declare(strict_types=1);

namespace Veche\Pool;

use JsonException;

/**
 * A response of another server.
 */
final class HttpResponse
{
    /**
     * @param int $status Such as 200.
     * @param string $body The whole body.
     * @param list<array{string, string}> $headers Names in lower case, and values.
     * @param string $url The URL of the response, after all redirects.
     */
    public function __construct(
        public readonly int $status,
        public readonly string $body = '',
        public readonly array $headers = [],
        public readonly string $url = '',
    ) {
    }

    /**
     * Returns the first header with this name, which is compared without regard to case.
     */
    public function header(string $name): ?string
    {
        foreach ($this->headers as [$one, $value]) {
            if ($one === strtolower($name)) {
                return $value;
            }
        }
        return null;
    }

    /**
     * Returns the body as JSON, with objects as arrays.
     *
     * @throws JsonException if the body is not JSON
     */
    public function json(): mixed
    {
        return json_decode($this->body, true, 512, JSON_THROW_ON_ERROR);
    }
}
