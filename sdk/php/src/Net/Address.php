<?php

declare(strict_types=1);

namespace Veche\Net;

use Veche\Exception\CallerException;

/**
 * Scheme, host, port and path of a URL.
 *
 * @internal
 */
final class Address
{
    /** Schemes with their default ports; 0 if a scheme has no default port. */
    private const PORTS = ['http' => 80, 'https' => 443, 'ws' => 80, 'wss' => 443, 'tcp' => 0, 'tls' => 0];

    private function __construct(
        public readonly string $scheme,
        public readonly string $host,
        public readonly int $port,
        public readonly string $target,
    ) {
    }

    /**
     * @param list<string> $schemes The accepted schemes.
     * @throws CallerException
     */
    public static function parse(string $url, array $schemes): self
    {
        $expected = "expected {$schemes[0]}://HOST:PORT";
        $parts = parse_url($url);
        if (!is_array($parts) || !isset($parts['scheme'], $parts['host'])) {
            throw new CallerException("bad address \"$url\": $expected");
        }
        $scheme = strtolower($parts['scheme']);
        $port = $parts['port'] ?? self::PORTS[$scheme] ?? 0;
        $problem = match (true) {
            !in_array($scheme, $schemes, true) => $expected,
            $port === 0 => 'the port is missing',
            isset($parts['user']) || isset($parts['pass']) => 'a user and a password are not allowed',
            isset($parts['fragment']) => 'a fragment is not allowed',
            preg_match('/[\x00-\x20\x7f]/', $url) === 1 => 'it contains a space or a control character',
            default => null,
        };
        if ($problem !== null) {
            throw new CallerException("bad address \"$url\": $problem");
        }
        $query = isset($parts['query']) ? "?{$parts['query']}" : '';
        return new self($scheme, $parts['host'], $port, ($parts['path'] ?? '/') . $query);
    }

    public function isTls(): bool
    {
        return in_array($this->scheme, ['https', 'wss', 'tls'], true);
    }

    /**
     * Returns the value of the header `Host`.
     */
    public function authority(): string
    {
        return $this->port === self::PORTS[$this->scheme] ? $this->host : "$this->host:$this->port";
    }

    public function __toString(): string
    {
        return "$this->host:$this->port";
    }
}
