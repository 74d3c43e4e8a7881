<?php

declare(strict_types=1);

namespace Veche\Net;

use Veche\Exception\NetworkException;
use Veche\Exception\TimeoutException;

/**
 * A TCP or TLS connection whose reads and writes have deadlines.
 *
 * @internal
 */
final class Socket
{
    private const READ_BYTES = 65536;

    /**
     * @param resource $stream
     */
    private function __construct(private $stream, private readonly Address $address)
    {
    }

    /**
     * Connects, and performs the TLS handshake if the address requires one.
     *
     * @param string|null $caFile Certificates to trust instead of the system's.
     * @throws NetworkException
     */
    public static function connect(Address $address, float $timeout, ?string $caFile = null): self
    {
        $ssl = ['peer_name' => trim($address->host, '[]'), 'verify_peer' => true, 'verify_peer_name' => true];
        if ($caFile !== null) {
            $ssl['cafile'] = $caFile;
        }
        $context = stream_context_create(['ssl' => $ssl, 'socket' => ['tcp_nodelay' => true]]);
        $url = ($address->isTls() ? 'tls' : 'tcp') . "://$address";
        $deadline = Deadline::in($timeout);
        $said = [];
        set_error_handler(static function (int $level, string $message) use (&$said): bool {
            $said[] = preg_replace('/^stream_socket_client\(\): /', '', $message);
            return true;
        });
        try {
            $stream = stream_socket_client($url, $code, $why, $timeout, STREAM_CLIENT_CONNECT, $context);
        } finally {
            restore_error_handler();
        }
        if ($stream === false) {
            $reason = $why !== '' ? $why : ($said[0] ?? 'unknown error');
            if ($deadline->isOver()) {
                throw new TimeoutException("cannot connect to $address: no answer within $timeout s");
            }
            throw new NetworkException("cannot connect to $address: $reason");
        }
        stream_set_blocking($stream, false);
        stream_set_read_buffer($stream, 0);
        return new self($stream, $address);
    }

    /**
     * Writes all bytes.
     *
     * @throws NetworkException
     */
    public function write(string $bytes, Deadline $deadline): void
    {
        $done = 0;
        $length = strlen($bytes);
        while ($done < $length) {
            $written = @fwrite($this->stream, $done === 0 ? $bytes : substr($bytes, $done));
            if ($written === false) {
                throw new NetworkException("the connection to $this->address broke", 0, $done > 0);
            }
            $done += $written;
            if ($written === 0 && !$this->wait(false, $deadline)) {
                throw new TimeoutException("$this->address accepted no data in time", 0, $done > 0);
            }
        }
    }

    /**
     * Returns at least one byte, or an empty string at the end of the stream; null if nothing arrived in time.
     */
    public function read(Deadline $deadline): ?string
    {
        while (true) {
            $bytes = @fread($this->stream, self::READ_BYTES);
            if ($bytes !== false && $bytes !== '') {
                return $bytes;
            }
            if ($bytes === false || feof($this->stream)) {
                return '';
            }
            if (!$this->wait(true, $deadline)) {
                return null;
            }
        }
    }

    /**
     * Returns the data that have already arrived, without waiting: null if there are none, an empty string at the end
     * of the stream.
     */
    public function poll(): ?string
    {
        return $this->read(Deadline::in(0));
    }

    public function close(): void
    {
        if (is_resource($this->stream)) {
            fclose($this->stream);
        }
    }

    private function wait(bool $isRead, Deadline $deadline): bool
    {
        // The loop is needed because a signal ends a call early, and because one call waits for at
        // most an hour.
        do {
            $left = min($deadline->remaining(), 3600.0);
            $read = $isRead ? [$this->stream] : [];
            $write = $isRead ? [] : [$this->stream];
            $except = [];
            $seconds = (int) $left;
            $ready = @stream_select($read, $write, $except, $seconds, (int) (($left - $seconds) * 1e6));
        } while ($ready !== 1 && !$deadline->isOver());
        return $ready === 1;
    }
}
