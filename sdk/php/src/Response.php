<?php

declare(strict_types=1);

namespace Veche;

use Veche\Exception\CallerException;

/**
 * Answer to a request; to a handshake it is a refusal.
 *
 * ```php
 * $app->request(fn (Veche\Request $request) => Veche\Response::json(['path' => $request->path]));
 * $app->open(fn (Veche\Connection $conn) => $conn->user === null ? new Veche\Response(403) : null);
 * ```
 */
final class Response
{
    /**
     * @param array<string, string|list<string>> $headers
     * @throws CallerException
     */
    public function __construct(
        public readonly int $status = 200,
        public readonly string $body = '',
        public readonly array $headers = [],
    ) {
        if ($status < 200 || $status > 599) {
            throw new CallerException('a status is between 200 and 599');
        }
    }

    /**
     * Returns a response with a value as JSON.
     */
    public static function json(mixed $value, int $status = 200): self
    {
        return new self($status, Json::encode($value), ['Content-Type' => 'application/json']);
    }

    /**
     * @internal
     * @return list<array{string, string}>
     */
    public function headerList(): array
    {
        $list = [];
        foreach ($this->headers as $name => $values) {
            foreach ((array) $values as $value) {
                $list[] = [(string) $name, $value];
            }
        }
        return $list;
    }
}
