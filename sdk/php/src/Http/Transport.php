<?php

declare(strict_types=1);

namespace Veche\Http;

use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;

/**
 * Makes HTTP requests to one server over a connection that is kept.
 *
 * An implementation of your own can route calls through the HTTP client of a framework.
 */
interface Transport
{
    /**
     * Makes one `POST` request. It may be sent a second time by itself only if nothing of it had been sent before.
     *
     * @param string $path Such as `/api/push`.
     * @param array<string, string> $headers
     * @param float $timeout Seconds for all of it.
     * @throws NetworkException
     * @throws ServerException if the answer is not HTTP
     */
    public function post(string $path, array $headers, string $body, float $timeout): Response;
}
