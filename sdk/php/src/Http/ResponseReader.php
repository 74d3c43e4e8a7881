<?php

declare(strict_types=1);

namespace Veche\Http;

use Closure;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;

/**
 * Reads one HTTP/1.x response.
 *
 * @internal
 */
final class ResponseReader
{
    private const HEAD_BYTES_MAX = 65536;
    private const INFORMATIONAL_MAX = 10;

    private string $buffer = '';
    private bool $isAtEnd = false;

    /**
     * @param Closure(): string $more Returns further bytes; an empty string at the end of the stream.
     */
    public function __construct(private readonly Closure $more, private readonly int $bodyBytesMax)
    {
    }

    /**
     * Returns the response, and whether the connection can be used for another request.
     *
     * @return array{Response, bool}
     * @throws NetworkException
     * @throws ServerException
     */
    public function read(): array
    {
        // Informational responses precede the final one.
        for ($i = 0; $i === 0 || ($status >= 100 && $status < 200); $i++) {
            if ($i > self::INFORMATIONAL_MAX) {
                throw self::bad('too many informational responses');
            }
            [$version, $status, $headers] = $this->head();
        }
        $isKept = $version === '1.1' && strtolower($headers['connection'] ?? '') !== 'close';
        if (in_array($status, [204, 304], true)) {
            return [new Response($status, $headers, ''), $isKept];
        }
        if (strtolower($headers['transfer-encoding'] ?? '') === 'chunked') {
            return [new Response($status, $headers, $this->chunks()), $isKept];
        }
        if (isset($headers['content-length'])) {
            $length = $headers['content-length'];
            if (preg_match('/^\d{1,15}$/', $length) !== 1) {
                throw self::bad('Content-Length is not a number');
            }
            return [new Response($status, $headers, $this->take((int) $length)), $isKept];
        }
        return [new Response($status, $headers, $this->rest()), false];
    }

    /**
     * @return array{string, int, array<string, string>}
     */
    private function head(): array
    {
        while (($end = strpos($this->buffer, "\r\n\r\n")) === false) {
            if (strlen($this->buffer) > self::HEAD_BYTES_MAX) {
                throw self::bad('the head is too long');
            }
            $this->fill();
        }
        $lines = explode("\r\n", substr($this->buffer, 0, $end));
        $this->buffer = substr($this->buffer, $end + 4);
        if (preg_match('#^HTTP/(1\.[01]) (\d{3})(?: |$)#', $lines[0], $parts) !== 1) {
            throw self::bad('no status line');
        }
        $headers = [];
        foreach (array_slice($lines, 1) as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => null];
            if ($value === null) {
                throw self::bad('a header without a colon');
            }
            $headers[strtolower($name)] = trim($value);
        }
        return [$parts[1], (int) $parts[2], $headers];
    }

    private function chunks(): string
    {
        $body = '';
        while (true) {
            $line = $this->line();
            if (preg_match('/^([0-9a-fA-F]{1,8})(?:;.*)?$/', $line, $parts) !== 1) {
                throw self::bad('a chunk without a length');
            }
            $length = (int) hexdec($parts[1]);
            if ($length === 0) {
                while ($this->line() !== '') {
                    continue;
                }
                return $body;
            }
            $this->limit(strlen($body) + $length);
            $body .= $this->take($length);
            if ($this->take(2) !== "\r\n") {
                throw self::bad('a chunk without an end');
            }
        }
    }

    private function line(): string
    {
        while (($end = strpos($this->buffer, "\r\n")) === false) {
            if (strlen($this->buffer) > self::HEAD_BYTES_MAX) {
                throw self::bad('a line is too long');
            }
            $this->fill();
        }
        $line = substr($this->buffer, 0, $end);
        $this->buffer = substr($this->buffer, $end + 2);
        return $line;
    }

    private function take(int $length): string
    {
        $this->limit($length);
        while (strlen($this->buffer) < $length) {
            $this->fill();
        }
        $taken = substr($this->buffer, 0, $length);
        $this->buffer = substr($this->buffer, $length);
        return $taken;
    }

    private function rest(): string
    {
        while (!$this->isAtEnd) {
            $more = ($this->more)();
            $this->isAtEnd = $more === '';
            $this->buffer .= $more;
            $this->limit(strlen($this->buffer));
        }
        return $this->buffer;
    }

    private function fill(): void
    {
        $more = ($this->more)();
        if ($more === '') {
            throw new NetworkException('the connection ended before the end of the answer', 0, true);
        }
        $this->buffer .= $more;
    }

    private function limit(int $bytes): void
    {
        if ($bytes > $this->bodyBytesMax) {
            throw new ServerException("the answer is longer than $this->bodyBytesMax bytes", 0, true);
        }
    }

    private static function bad(string $why): ServerException
    {
        return new ServerException("the answer is not HTTP: $why", 0, true);
    }
}
