<?php

declare(strict_types=1);

namespace Veche\Http;

use Veche\Exception\NetworkException;
use Veche\Exception\TimeoutException;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Net\Socket;

/**
 * HTTP over PHP's streams, for installations without ext-curl.
 */
final class StreamTransport implements Transport
{
    private readonly Address $address;
    private ?Socket $socket = null;

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
        $this->address = Address::parse($url, ['http', 'https']);
    }

    public function post(string $path, array $headers, string $body, float $timeout): Response
    {
        $deadline = Deadline::in($timeout);
        $head = "POST $path HTTP/1.1\r\nHost: {$this->address->authority()}\r\n";
        foreach ($headers + ['Content-Length' => (string) strlen($body)] as $name => $value) {
            $head .= "$name: $value\r\n";
        }
        $request = "$head\r\n$body";
        try {
            $this->send($request, $deadline);
            $more = fn (): string => $this->socket?->read($deadline)
                ?? throw new TimeoutException("no answer from $this->address within $timeout s", 0, true);
            [$response, $isKept] = (new ResponseReader($more, $this->bodyBytesMax))->read();
        } catch (\Throwable $error) {
            $this->close();
            throw $error;
        }
        if (!$isKept) {
            $this->close();
        }
        return $response;
    }

    /**
     * Closes the kept connection. The next request opens another one.
     */
    public function close(): void
    {
        $this->socket?->close();
        $this->socket = null;
    }

    private function send(string $request, Deadline $deadline): void
    {
        // No server sends before a request, so any input means that the server has closed the kept
        // connection.
        if ($this->socket !== null && $this->socket->poll() !== null) {
            $this->close();
        }
        if ($this->socket !== null) {
            try {
                $this->socket->write($request, $deadline);
                return;
            } catch (TimeoutException $error) {
                throw $error;
            } catch (NetworkException $error) {
                if ($error->mayHaveRun) {
                    throw $error;
                }
                $this->close();
            }
        }
        $timeout = min($this->connectTimeout, $deadline->remaining());
        $this->socket = Socket::connect($this->address, $timeout, $this->caFile);
        $this->socket->write($request, $deadline);
    }
}
