<?php

declare(strict_types=1);

namespace Veche\Http;

use CurlHandle;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Net\Address;

/**
 * HTTP by ext-curl, with one handle whose connection is kept.
 */
final class CurlTransport implements Transport
{
    private readonly string $base;
    private ?CurlHandle $handle = null;

    /**
     * @param string $url Such as `http://127.0.0.1:8081`; a path in it is ignored.
     * @param float $connectTimeout Seconds.
     * @param string|null $caFile Certificates to trust instead of the system's.
     */
    public function __construct(
        string $url,
        private readonly float $connectTimeout = 2.0,
        private readonly ?string $caFile = null,
        private readonly int $bodyBytesMax = 64 << 20,
    ) {
        if (!extension_loaded('curl')) {
            throw new CallerException('ext-curl is not loaded; use StreamTransport');
        }
        $address = Address::parse($url, ['http', 'https']);
        $this->base = "$address->scheme://$address";
    }

    public function post(string $path, array $headers, string $body, float $timeout): Response
    {
        $handle = $this->handle ??= curl_init();
        $answered = '';
        $received = [];
        $isWhole = false;
        $sent = 0;
        curl_reset($handle);
        curl_setopt_array($handle, [
            CURLOPT_URL => $this->base . $path,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_PROXY => '',
            CURLOPT_CONNECTTIMEOUT_MS => self::milliseconds(min($this->connectTimeout, $timeout)),
            CURLOPT_TIMEOUT_MS => self::milliseconds($timeout),
            CURLOPT_NOSIGNAL => true,
            CURLOPT_HTTPHEADER => self::lines($headers + ['Expect' => '']),
            // If a reused connection breaks, curl repeats a request whose body is a string. A body
            // from a callback can't be rewound, which prevents the repetition.
            CURLOPT_UPLOAD => true,
            CURLOPT_CUSTOMREQUEST => 'POST',
            CURLOPT_INFILESIZE => strlen($body),
            CURLOPT_READFUNCTION => static function ($handle, $file, int $length) use ($body, &$sent): string {
                $part = substr($body, $sent, $length);
                $sent += strlen($part);
                return $part;
            },
            CURLOPT_HEADERFUNCTION => static function ($handle, string $line) use (&$received, &$isWhole): int {
                $isWhole = $isWhole || trim($line) === '';
                [$name, $value] = explode(':', $line, 2) + [1 => null];
                if ($value !== null) {
                    $received[strtolower($name)] = trim($value);
                }
                return strlen($line);
            },
            CURLOPT_WRITEFUNCTION => function ($handle, string $part) use (&$answered): int {
                $answered .= $part;
                return strlen($answered) > $this->bodyBytesMax ? -1 : strlen($part);
            },
        ]);
        if ($this->caFile !== null) {
            curl_setopt($handle, CURLOPT_CAINFO, $this->caFile);
        }
        if (curl_exec($handle) === false) {
            throw $this->failure($handle, strlen($answered) > $this->bodyBytesMax);
        }
        if (!$isWhole) {
            // curl treats a truncated response head as complete.
            throw new NetworkException("$this->base: the connection ended before the end of the answer", 0, true);
        }
        return new Response(curl_getinfo($handle, CURLINFO_RESPONSE_CODE), $received, $answered);
    }

    /**
     * Closes the kept connection. The next request opens another one.
     */
    public function close(): void
    {
        $this->handle = null;
    }

    private function failure(CurlHandle $handle, bool $isTooLong): NetworkException|ServerException
    {
        $number = curl_errno($handle);
        $why = curl_error($handle);
        $wasSent = curl_getinfo($handle, CURLINFO_REQUEST_SIZE) > 0;
        $this->close();
        return match (true) {
            $isTooLong => new ServerException("the answer is longer than $this->bodyBytesMax bytes", 0, true),
            $number === CURLE_OPERATION_TIMEOUTED => new TimeoutException("$this->base: $why", 0, $wasSent),
            in_array($number, [CURLE_UNSUPPORTED_PROTOCOL, CURLE_WEIRD_SERVER_REPLY], true)
                => new ServerException("the answer is not HTTP: $why", 0, true),
            default => new NetworkException("$this->base: $why", 0, $wasSent),
        };
    }

    private static function milliseconds(float $seconds): int
    {
        return max(1, (int) ceil($seconds * 1000));
    }

    /**
     * @param array<string, string> $headers
     * @return list<string>
     */
    private static function lines(array $headers): array
    {
        return array_map(
            static fn (string $name, string $value): string => "$name: $value",
            array_keys($headers),
            $headers,
        );
    }
}
