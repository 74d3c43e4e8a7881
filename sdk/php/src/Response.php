<?php

declare(strict_types=1);

namespace Veche;

use Veche\Exception\CallerException;

/**
 * The answer to a request. As the answer to a handshake, it refuses the connection.
 *
 * ```php
 * $app->request(fn (Veche\Request $request) => Veche\Response::json(['path' => $request->path]));
 * $app->open(fn (Veche\Connection $conn) => $conn->user === null ? new Veche\Response(403) : null);
 * ```
 */
final class Response
{
    public readonly string $body;

    /** Path of a file; null if this object has the body itself. */
    public readonly ?string $file;

    /** @var iterable<string>|null */
    public readonly ?iterable $stream;

    /**
     * @param array<string, string|list<string>> $headers
     * @param string|iterable<string> $body The parts of an iterable are sent as they are produced,
     *     no faster than the client reads.
     * @throws CallerException
     */
    public function __construct(
        public readonly int $status = 200,
        string|iterable $body = '',
        public readonly array $headers = [],
        ?string $file = null,
    ) {
        if ($status < 200 || $status > 599) {
            throw new CallerException('a status must be between 200 and 599');
        }
        $this->file = $file;
        $this->body = is_string($body) ? $body : '';
        $this->stream = is_string($body) ? null : $body;
    }

    /**
     * Returns a response with a value as JSON.
     */
    public static function json(mixed $value, int $status = 200): self
    {
        return new self($status, Json::encode($value), ['Content-Type' => 'application/json']);
    }

    /**
     * Returns a response whose body is a file in the application's folder of files. Veche reads the
     * file.
     *
     * @param string $path A relative path without names that begin with a dot.
     * @param array<string, string|list<string>> $headers
     */
    public static function file(string $path, array $headers = []): self
    {
        return new self(200, '', $headers, $path);
    }

    /**
     * Returns a response in parts.
     *
     * ```php
     * $app->request(fn () => Veche\Response::stream((function () {
     *     foreach (orders() as $order) {
     *         yield implode(',', $order) . "\n";
     *     }
     * })(), headers: ['Content-Type' => 'text/csv']));
     * ```
     *
     * @param iterable<string> $parts
     * @param array<string, string|list<string>> $headers
     */
    public static function stream(iterable $parts, int $status = 200, array $headers = []): self
    {
        return new self($status, $parts, $headers);
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
