<?php

declare(strict_types=1);

namespace Veche\WebSocket;

use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ProtocolException;
use Veche\Exception\RateLimitException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Net\Address;

/**
 * The HTTP request that opens a WebSocket, and the check of its response (RFC 6455, section 4.1). It does no I/O.
 *
 * @internal
 */
final class Handshake
{
    private const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    private const HEAD_BYTES_MAX = 65536;
    private const OURS = [
        'host', 'upgrade', 'connection', 'sec-websocket-key', 'sec-websocket-version', 'sec-websocket-protocol',
        'sec-websocket-extensions', 'content-length', 'transfer-encoding',
    ];

    private string $received = '';

    /**
     * @param array<string, string> $headers
     * @param list<string> $protocols
     * @param string $key Base64 of 16 bytes.
     * @throws CallerException
     */
    public function __construct(
        private readonly Address $address,
        private readonly array $headers,
        private readonly array $protocols,
        private readonly string $key,
    ) {
        foreach ($headers as $name => $value) {
            $isName = preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', (string) $name) === 1;
            if (!$isName || preg_match('/[\r\n\0]/', $value) === 1) {
                throw new CallerException("bad header \"$name\"");
            }
            if (in_array(strtolower((string) $name), self::OURS, true)) {
                throw new CallerException("the header $name is reserved for the handshake");
            }
        }
        foreach ($protocols as $protocol) {
            if (preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', $protocol) !== 1) {
                throw new CallerException("bad subprotocol \"$protocol\"");
            }
        }
    }

    public function request(): string
    {
        $lines = [
            "GET {$this->address->target} HTTP/1.1",
            "Host: {$this->address->authority()}",
            'Upgrade: websocket',
            'Connection: Upgrade',
            "Sec-WebSocket-Key: $this->key",
            'Sec-WebSocket-Version: 13',
        ];
        if ($this->protocols !== []) {
            $lines[] = 'Sec-WebSocket-Protocol: ' . implode(', ', $this->protocols);
        }
        foreach ($this->headers as $name => $value) {
            $lines[] = "$name: $value";
        }
        return implode("\r\n", $lines) . "\r\n\r\n";
    }

    /**
     * Takes bytes of the response. Returns null until its head is complete, then the chosen
     * subprotocol, or an empty string for none, and the bytes after the head.
     *
     * @return array{string, string}|null
     * @throws VecheException if the server refuses
     */
    public function take(string $bytes): ?array
    {
        $this->received .= $bytes;
        $end = strpos($this->received, "\r\n\r\n");
        if ($end === false) {
            if (strlen($this->received) > self::HEAD_BYTES_MAX) {
                throw self::broken('the head of the response is too long');
            }
            return null;
        }
        $lines = explode("\r\n", substr($this->received, 0, $end));
        $rest = substr($this->received, $end + 4);
        if (preg_match('#^HTTP/1\.1 (\d{3})(?: (.*))?$#', $lines[0], $status) !== 1) {
            throw self::broken('the response has no status line');
        }
        $headers = [];
        foreach (array_slice($lines, 1) as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[strtolower($name)] = trim($value);
        }
        if ($status[1] !== '101') {
            throw self::refusal((int) $status[1], $status[2] ?? '', $headers, $rest);
        }
        $this->check($headers);
        return [$headers['sec-websocket-protocol'] ?? '', $rest];
    }

    /**
     * @param array<string, string> $headers
     */
    private function check(array $headers): void
    {
        $accept = base64_encode(sha1($this->key . self::GUID, true));
        $chosen = $headers['sec-websocket-protocol'] ?? null;
        $problem = match (true) {
            strtolower($headers['upgrade'] ?? '') !== 'websocket' => 'no Upgrade: websocket',
            !preg_match('/(?:^|,)\s*upgrade\s*(?:,|$)/i', $headers['connection'] ?? '') => 'no Connection: Upgrade',
            ($headers['sec-websocket-accept'] ?? '') !== $accept => 'a wrong Sec-WebSocket-Accept',
            isset($headers['sec-websocket-extensions']) => 'an extension that was not offered',
            $chosen !== null && !in_array($chosen, $this->protocols, true) => 'a subprotocol that was not offered',
            default => null,
        };
        if ($problem !== null) {
            throw self::broken("the response has $problem");
        }
    }

    /**
     * @param array<string, string> $headers
     */
    private static function refusal(int $status, string $words, array $headers, string $body): VecheException
    {
        $why = trim(strtok($body, "\n") ?: $words);
        $message = "the handshake was refused with status $status: $why";
        $seconds = $headers['retry-after'] ?? '';
        $retryAfter = preg_match('/^\d{1,6}$/', $seconds) === 1 ? (float) $seconds : null;
        return match (true) {
            $status === 429 => new RateLimitException($message, $status, $retryAfter),
            $status >= 500 => new UnavailableException($message, $status, $retryAfter),
            default => new CallerException($message, $status),
        };
    }

    private static function broken(string $why): ProtocolException
    {
        return new ProtocolException("the WebSocket handshake failed: $why", 1002);
    }
}
