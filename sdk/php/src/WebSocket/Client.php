<?php

declare(strict_types=1);

namespace Veche\WebSocket;

use Veche\Exception\CallerException;
use Veche\Exception\ClosedException;
use Veche\Exception\NetworkException;
use Veche\Exception\ProtocolException;
use Veche\Exception\TimeoutException;
use Veche\Exception\VecheException;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Net\Socket;

/**
 * A WebSocket client for back ends (RFC 6455): it blocks, with timeouts, and answers pings while it waits.
 *
 * ```php
 * $socket = Veche\WebSocket\Client::connect('ws://127.0.0.1:8080/echo');
 * $socket->send('hello');
 * echo $socket->receive(timeout: 5)->data;
 * $socket->close();
 * ```
 *
 * It supports no extensions, so messages are not compressed.
 */
final class Client
{
    /** Maximum number of control frames that a call handles after its time is over. */
    private const CONTROL_FRAMES_MAX = 100;

    private bool $isClosed = false;

    private function __construct(
        private readonly Socket $socket,
        private readonly Receiver $receiver,
        private readonly float $timeout,
        public readonly string $protocol,
    ) {
    }

    /**
     * Connects and makes the handshake.
     *
     * @param string $url `ws://…` or `wss://…`.
     * @param array<string, string> $headers Further headers of the handshake, such as `Authorization`.
     * @param list<string> $protocols Subprotocols to offer; `$protocol` of the client is the one that was chosen.
     * @param float $timeout Seconds for the handshake, and for each later send.
     * @param int $messageBytesMax Maximum length of a received message in bytes.
     * @param int $fragmentsMax Maximum number of frames of a received message.
     * @param string|null $caFile Certificates to trust for wss instead of the system's.
     * @throws VecheException
     */
    public static function connect(
        string $url,
        array $headers = [],
        array $protocols = [],
        float $timeout = 5.0,
        int $messageBytesMax = 16 << 20,
        int $fragmentsMax = 1000,
        ?string $caFile = null,
    ): self {
        $address = Address::parse($url, ['ws', 'wss']);
        $handshake = new Handshake($address, $headers, $protocols, base64_encode(random_bytes(16)));
        $deadline = Deadline::in($timeout);
        $socket = Socket::connect($address, $timeout, $caFile);
        try {
            $socket->write($handshake->request(), $deadline);
            do {
                $bytes = $socket->read($deadline);
                if ($bytes === null) {
                    throw new TimeoutException("$address did not complete the handshake within $timeout s");
                }
                if ($bytes === '') {
                    throw new NetworkException("$address closed the connection during the handshake");
                }
                $opened = $handshake->take($bytes);
            } while ($opened === null);
        } catch (VecheException $error) {
            $socket->close();
            throw $error;
        }
        [$protocol, $rest] = $opened;
        $receiver = new Receiver($messageBytesMax, $fragmentsMax);
        $receiver->feed($rest);
        return new self($socket, $receiver, $timeout, $protocol);
    }

    /**
     * Sends a text message.
     *
     * @throws CallerException if it is not UTF-8
     * @throws NetworkException
     */
    public function send(string $text): void
    {
        if (preg_match('//u', $text) !== 1) {
            throw new CallerException('a text message has to be UTF-8; use sendBinary for bytes');
        }
        $this->write(Frame::encode(Opcode::Text, $text));
    }

    /**
     * Sends a binary message.
     *
     * @throws NetworkException
     */
    public function sendBinary(string $bytes): void
    {
        $this->write(Frame::encode(Opcode::Binary, $bytes));
    }

    /**
     * Sends a ping. {@see receive()} reads and skips the pong.
     *
     * @param string $payload At most 125 bytes.
     * @throws CallerException
     * @throws NetworkException
     */
    public function ping(string $payload = ''): void
    {
        if (strlen($payload) > 125) {
            throw new CallerException('a ping may have at most 125 bytes');
        }
        $this->write(Frame::encode(Opcode::Ping, $payload));
    }

    /**
     * Waits for the next message. Pings that arrive meanwhile are answered.
     *
     * @param float|null $timeout Seconds; null: no limit. After a timeout the connection can still be used.
     * @throws TimeoutException
     * @throws ClosedException when the connection has ended
     * @throws ProtocolException if the server breaks RFC 6455; the connection is closed then
     */
    public function receive(?float $timeout = null): Message
    {
        $message = $this->tryReceive($timeout);
        return $message ?? throw new TimeoutException("no message within $timeout s");
    }

    /**
     * Does the same as {@see receive()}, but returns null if no message arrives in time. With a
     * timeout of 0 it does not wait.
     *
     * @throws ClosedException
     * @throws ProtocolException
     */
    public function tryReceive(?float $timeout = 0.0): ?Message
    {
        $deadline = Deadline::in($timeout ?? INF);
        // A message may have arrived already behind some control frames, so these are skipped even
        // after the deadline; their number is limited because a peer could send them endlessly.
        for ($passed = 0; $passed < self::CONTROL_FRAMES_MAX || !$deadline->isOver(); $passed++) {
            $event = $this->event($deadline);
            if ($event === null) {
                return null;
            }
            if ($event->kind === Opcode::Text || $event->kind === Opcode::Binary) {
                return new Message($event->data, $event->kind === Opcode::Binary);
            }
        }
        return null;
    }

    /**
     * Closes the connection and waits for the server's Close frame, for at most a second.
     *
     * Messages that arrive meanwhile are dropped. Closing again does nothing.
     *
     * @param int $code 1000, or from 3000 to 4999.
     * @param string $reason At most 123 bytes.
     * @throws CallerException
     */
    public function close(int $code = 1000, string $reason = ''): void
    {
        if ($code !== 1000 && ($code < 3000 || $code > 4999)) {
            throw new CallerException('a close code must be 1000 or between 3000 and 4999');
        }
        if (strlen($reason) > 123 || preg_match('//u', $reason) !== 1) {
            throw new CallerException('a close reason must be UTF-8 of at most 123 bytes');
        }
        if ($this->isClosed) {
            return;
        }
        $deadline = Deadline::in(1.0);
        try {
            $this->write(Frame::close($code, $reason));
            do {
                $event = $this->event($deadline);
            } while ($event !== null && !$deadline->isOver());
        } catch (VecheException) {
            // The connection ends in any case.
        }
        $this->end();
    }

    /**
     * Returns the next event, after answering it if necessary. Returns null if the deadline passes first.
     */
    private function event(Deadline $deadline): ?Event
    {
        if ($this->isClosed) {
            throw new ClosedException(1006, 'the connection has already ended');
        }
        try {
            while (($event = $this->receiver->next()) === null) {
                $bytes = $this->socket->read($deadline);
                if ($bytes === null) {
                    return null;
                }
                if ($bytes === '') {
                    $this->end();
                    throw new ClosedException(1006, 'the connection ended without a Close frame');
                }
                $this->receiver->feed($bytes);
            }
        } catch (ProtocolException $error) {
            $this->fail($error);
        }
        if ($event->kind === Opcode::Ping) {
            $this->write(Frame::encode(Opcode::Pong, $event->data));
        }
        if ($event->kind === Opcode::Close) {
            $this->write(Frame::close($event->code));
            $this->end();
            throw new ClosedException($event->code, $event->data);
        }
        return $event;
    }

    private function fail(ProtocolException $error): never
    {
        try {
            $this->write(Frame::close($error->getCode()));
        } catch (NetworkException | ClosedException) {
            // `$error` describes the cause, so it is thrown instead of the failure to send the Close frame.
        }
        $this->end();
        throw $error;
    }

    private function write(string $frame): void
    {
        if ($this->isClosed) {
            throw new ClosedException(1006, 'the connection has already ended');
        }
        try {
            $this->socket->write($frame, Deadline::in($this->timeout));
        } catch (NetworkException $error) {
            // A part of the frame may have been sent, so no other frame can follow.
            $this->end();
            throw $error;
        }
    }

    private function end(): void
    {
        $this->isClosed = true;
        $this->socket->close();
    }
}
