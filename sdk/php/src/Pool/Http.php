<?php

declare(strict_types=1);

namespace Veche\Pool;

use Veche\Exception\VecheException;
use Veche\Json;
use Veche\Worker\Engine;

/**
 * HTTP requests over Veche's connections: other handlers of the worker run during a request.
 *
 * ```php
 * $app->message(function (Veche\Connection $conn, string $data) use ($app): void {
 *     $response = $app->http()->get('https://api.example.com/weather?city=' . urlencode($data));
 *     $conn->send($response->status === 200 ? $response->body : 'not known');
 * });
 * ```
 *
 * Any status is a response. Redirects are followed, and a body is at most 16 MiB.
 */
final class Http
{
    /**
     * @internal {@see \Veche\App::http()} makes one.
     */
    public function __construct()
    {
    }

    /**
     * Makes a GET request.
     *
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole call, including redirects.
     * @throws VecheException if there is no response
     */
    public function get(string $url, array $headers = [], float $timeout = 30.0): HttpResponse
    {
        return $this->request('GET', $url, '', $headers, $timeout);
    }

    /**
     * Makes a POST request.
     *
     * @param mixed $body A string is sent as it is, anything else as JSON.
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole call, including redirects.
     * @throws VecheException if there is no response
     */
    public function post(string $url, mixed $body, array $headers = [], float $timeout = 30.0): HttpResponse
    {
        if (!is_string($body)) {
            $body = Json::encode($body);
            $headers += ['Content-Type' => 'application/json'];
        }
        return $this->request('POST', $url, $body, $headers, $timeout);
    }

    /**
     * Makes a request with any method.
     *
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole call, including redirects.
     * @throws VecheException if there is no response
     */
    public function request(
        string $method,
        string $url,
        string $body = '',
        array $headers = [],
        float $timeout = 30.0,
    ): HttpResponse {
        $pair = static fn (string $name, string $value): array => [$name, $value];
        $pairs = array_map($pair, array_keys($headers), $headers);
        $head = ['method' => $method, 'url' => $url, 'headers' => $pairs ?: null, 'timeout' => $timeout];
        $result = Engine::current()->call('http', $head, $body === '' ? null : $body);
        return new HttpResponse(
            $result->head['status'],
            (string) $result->part(0),
            $result->head['headers'] ?? [],
            $result->head['url'] ?? $url,
        );
    }
}
