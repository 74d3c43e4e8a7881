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
     * Makes one `POST` request. An implementation may repeat it only if no byte of it was sent before.
     *
     * @param string $path Such as `/api/push`.
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole request.
     * @throws NetworkException
     * @throws ServerException if the response is not HTTP
     */
    public function post(string $path, array $headers, string $body, float $timeout): Response;
}
