<?php

declare(strict_types=1);

namespace Veche;

/**
 * An HTTP request: a plain one, or the handshake of a WebSocket.
 *
 * ```php
 * $app->request(fn (Veche\Request $request) => match ("$request->method $request->path") {
 *     'GET /orders' => Veche\Response::json(orders($request->user, page: (int) $request->query('page'))),
 *     'POST /orders' => Veche\Response::json(order(json_decode($request->body, true)), 201),
 *     default => new Veche\Response(404, "not found\n"),
 * });
 * ```
 */
final class Request
{
    /**
     * @param string $method Such as `GET`.
     * @param string $path The path in normal form.
     * @param string $queryString The query without the `?`, still encoded.
     * @param list<array{string, string}> $headers Names in lower case, and values.
     * @param array<string, string> $parameters Parameters of the route's path.
     * @param string $remote Address of the client.
     * @param string $body The body; empty for handshakes.
     * @param string|null $user The user that the route's identity has named.
     */
    public function __construct(
        public readonly string $method,
        public readonly string $path,
        public readonly string $queryString = '',
        public readonly array $headers = [],
        public readonly array $parameters = [],
        public readonly string $remote = '',
        public readonly string $body = '',
        public readonly ?string $user = null,
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
     * Returns a value of the query.
     */
    public function query(string $name): ?string
    {
        parse_str($this->queryString, $values);
        $value = $values[$name] ?? null;
        return is_string($value) ? $value : null;
    }

    /**
     * Returns a cookie.
     */
    public function cookie(string $name): ?string
    {
        foreach (explode(';', $this->header('cookie') ?? '') as $pair) {
            [$one, $value] = explode('=', trim($pair), 2) + [1 => ''];
            if ($one === $name) {
                return urldecode($value);
            }
        }
        return null;
    }

    /**
     * Returns a parameter of the route's path, such as `room` of `/chat/:room`.
     */
    public function parameter(string $name): ?string
    {
        return $this->parameters[$name] ?? null;
    }

    /**
     * @internal
     * @param array<string, mixed> $head
     */
    public static function from(array $head, string $body = '', ?string $user = null): self
    {
        return new self(
            $head['method'],
            $head['path'],
            $head['query'] ?? '',
            $head['headers'] ?? [],
            array_column($head['params'] ?? [], 1, 0),
            $head['remote'] ?? '',
            $body,
            $user,
        );
    }
}
