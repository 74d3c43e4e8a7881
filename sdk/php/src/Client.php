<?php

declare(strict_types=1);

namespace Veche;

use Psr\Log\LoggerInterface;
use Veche\Exception\AuthenticationException;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\RateLimitException;
use Veche\Exception\ServerException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Http\CurlTransport;
use Veche\Http\Response;
use Veche\Http\StreamTransport;
use Veche\Http\Transport;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Result\Fields;

/**
 * Calls Veche's API over HTTP, on a connection that is kept between calls.
 *
 * ```php
 * $veche = new Veche\Client('http://127.0.0.1:8081', key: 'demo');
 * $handed = $veche->push('tester01', 'hello')->handed;
 * ```
 *
 * A failed call is repeated only if that is safe: nothing was sent, or the server reported that
 * nothing was done (it is stopping, or short of memory), or a repetition changes nothing, as with
 * `history`. Publications with an idempotency key can be repeated too; `generateKeys` gives each
 * publication its own key.
 */
final class Client extends AbstractClient
{
    private const FIRST_PAUSE_S = 0.05;

    private readonly Transport $transport;
    private readonly string $base;

    /**
     * @param string $url Address of the internal listener; a path `/api` behind it is accepted.
     * @param string|null $key One of the keys under `[api]`.
     * @param float $timeout Seconds for one call with its repetitions.
     * @param float $connectTimeout Seconds for opening a connection.
     * @param int $retries Maximum number of repetitions of a call.
     * @param bool $generateKeys Give publications an idempotency key, so that they can be repeated.
     * @param string|null $caFile Certificates to trust for https instead of the system's.
     * @param LoggerInterface|null $logger Receives a warning for each repetition.
     * @param Transport|null $transport By default {@see CurlTransport} where ext-curl is loaded, else
     *     {@see StreamTransport}.
     * @throws CallerException
     */
    public function __construct(
        string $url,
        private readonly ?string $key = null,
        private readonly float $timeout = 5.0,
        float $connectTimeout = 2.0,
        private readonly int $retries = 2,
        private readonly bool $generateKeys = false,
        ?string $caFile = null,
        private readonly ?LoggerInterface $logger = null,
        ?Transport $transport = null,
    ) {
        $address = Address::parse($url, ['http', 'https']);
        if ($key !== null && preg_match('/^[\x21-\x7e]+$/', $key) !== 1) {
            throw new CallerException('an API key must consist of printable ASCII characters without spaces');
        }
        if ($timeout <= 0 || $connectTimeout <= 0 || $retries < 0) {
            throw new CallerException('timeouts must be positive, and retries must be at least 0');
        }
        $this->base = preg_replace('#(?:/api)?/*$#', '', $address->target) . '/api/';
        $this->transport = $transport ?? (extension_loaded('curl')
            ? new CurlTransport($url, $connectTimeout, $caFile)
            : new StreamTransport($url, $connectTimeout, $caFile));
    }

    public function run(Command $command): mixed
    {
        if ($this->generateKeys && $command->publishes()) {
            $command = $command->withIdempotencyKey(bin2hex(random_bytes(16)));
        }
        $body = $command->body();
        $deadline = Deadline::in($this->timeout);
        for ($attempt = 1;; $attempt++) {
            try {
                return $this->attempt($command, $body, $deadline);
            } catch (VecheException $error) {
                $pause = self::pause($error, $command, $attempt);
                if ($attempt > $this->retries || $pause === null || $pause >= $deadline->remaining()) {
                    throw $error;
                }
                $this->logger?->warning('Veche: {method} is repeated: {error}', [
                    'method' => $command->method,
                    'error' => $error->getMessage(),
                    'exception' => $error,
                ]);
                usleep((int) ($pause * 1e6));
            }
        }
    }

    private function attempt(Command $command, string $body, Deadline $deadline): mixed
    {
        $headers = ['Content-Type' => 'application/json', 'User-Agent' => 'veche-php'];
        if ($this->key !== null) {
            $headers['X-API-Key'] = $this->key;
        }
        $path = $this->base . $command->method;
        $response = $this->transport->post($path, $headers, $body, max(0.001, $deadline->remaining()));
        $answer = Fields::decode($response->body);
        if ($answer?->has('error')) {
            $error = $answer->object('error');
            throw self::error($response, $error->int('code'), $error->string('message'), $command);
        }
        if ($response->status !== 200 || $answer === null) {
            throw self::error($response, 0, "unexpected answer with status $response->status", $command);
        }
        return $command->result($command->method === 'batch' ? $answer : $answer->object('result'));
    }

    /**
     * Returns the seconds to wait before the call is repeated; null if it must not be repeated.
     */
    private static function pause(VecheException $error, Command $command, int $attempt): ?float
    {
        $isRefused = $error instanceof UnavailableException || $error instanceof RateLimitException;
        $isTransient = $isRefused || $error instanceof NetworkException;
        if (!$isTransient || ($error->mayHaveRun && !$command->isRepeatable)) {
            return null;
        }
        $asked = $isRefused ? $error->retryAfter : null;
        // Pauses are random, so that clients that failed at the same time do not retry at the same time.
        return $asked ?? self::FIRST_PAUSE_S * 2 ** ($attempt - 1) * (0.5 + mt_rand() / mt_getrandmax());
    }

    private static function error(Response $response, int $code, string $message, Command $command): VecheException
    {
        $status = $response->status;
        $shown = $code > 0 ? $code : $status;
        $seconds = $response->headers['retry-after'] ?? '';
        $retryAfter = preg_match('/^\d{1,6}$/', $seconds) === 1 ? (float) $seconds : null;
        return match (true) {
            $status === 401 => new AuthenticationException($message, $shown),
            $status === 429 => new RateLimitException($message, $shown, $retryAfter),
            $status === 503 => new UnavailableException($message, $shown, $retryAfter),
            $code > 0 => ErrorCode::exception($code, $message, $command->publishes()),
            $status === 404 => new CallerException("$message: is this the address of the internal listener?", $shown),
            $status >= 400 && $status < 500 => new CallerException($message, $shown),
            default => new ServerException($message, $shown, true),
        };
    }
}
