<?php

declare(strict_types=1);

namespace Veche;

use Psr\Log\LoggerInterface;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Exception\VecheException;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Net\Socket;
use Veche\Result\Fields;
use Veche\Result\Published;

/**
 * Pushes over the line port (`role = "push"`): one line of JSON over a TCP connection that is kept.
 *
 * It needs no key and costs less than HTTP, and it can only push and publish.
 *
 * ```php
 * $veche = new Veche\LineClient('127.0.0.1:1234');
 * $handed = $veche->push('tester01', 'hello')->handed;
 * ```
 *
 * With `acknowledge: false` nothing waits for an answer: a push is one write. A refusal is then thrown by a later push,
 * or by {@see flush()}.
 */
final class LineClient implements Publisher
{
    private const LINE_BYTES_MAX = 1 << 20;

    private readonly Address $address;
    private ?Socket $socket = null;
    private string $buffer = '';
    private int $lastId = 0;

    /**
     * @param string $address Of the push listener, such as `127.0.0.1:1234`, or `tls://push.example.org:1234`.
     * @param bool $acknowledge Wait for the server's answer to each push.
     * @param float $timeout Seconds for one push.
     * @param float $connectTimeout Seconds for opening the connection.
     * @param LoggerInterface|null $logger Receives refusals if `acknowledge` is false; without a
     *     logger the next call throws them.
     * @param string|null $caFile Certificates to trust for TLS instead of the system's.
     * @throws CallerException
     */
    public function __construct(
        string $address,
        private readonly bool $acknowledge = true,
        private readonly float $timeout = 5.0,
        private readonly float $connectTimeout = 2.0,
        private readonly ?LoggerInterface $logger = null,
        private readonly ?string $caFile = null,
    ) {
        $this->address = Address::parse(str_contains($address, '://') ? $address : "tcp://$address", ['tcp', 'tls']);
    }

    public function push(string|array $users, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::push($users, $data, $options));
    }

    public function publish(string $channel, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::publish($channel, $data, $options));
    }

    /**
     * Publishes one message to several channels. `handed` is the sum over all of them, or null if the number is unknown
     * for one of them, as with the engine on Redis; `nodes` is null for several channels.
     *
     * @param list<string> $channels Up to 1,024.
     * @throws VecheException
     */
    public function broadcast(array $channels, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::broadcast($channels, $data, $options));
    }

    /**
     * Waits until the server has carried out all lines so far, and throws the first refusal.
     *
     * Call it after the last push if `acknowledge` is false.
     *
     * @throws VecheException
     */
    public function flush(): void
    {
        if ($this->socket !== null) {
            // Lines are answered in order, so the answer to this line means that all earlier ones
            // were handled.
            $this->ask(Command::push('veche-php-flush', '', new PublishOptions(skipHistory: true)));
        }
    }

    /**
     * Closes the connection. The next push opens another one.
     */
    public function close(): void
    {
        $this->socket?->close();
        $this->socket = null;
        $this->buffer = '';
    }

    private function run(Command $command): Published
    {
        if ($this->acknowledge) {
            return $this->ask($command);
        }
        $this->send($command->body() . "\n", Deadline::in($this->timeout));
        return new Published(null);
    }

    private function ask(Command $command): Published
    {
        $deadline = Deadline::in($this->timeout);
        $id = ++$this->lastId;
        $this->send($command->body(['id' => $id]) . "\n", $deadline);
        try {
            // Skips the response to an earlier malformed line, which has no id, and the late response to a line that
            // timed out.
            while (($answer = self::decode($this->line($deadline)))->value('id') !== $id) {
                $this->refused($answer);
                if ($deadline->isOver()) {
                    throw $this->late();
                }
            }
        } catch (NetworkException | ServerException $error) {
            $this->close();
            throw $error;
        }
        if ($answer->has('error')) {
            throw self::error($answer);
        }
        return Published::from($answer->object('result'));
    }

    private function send(string $line, Deadline $deadline): void
    {
        if (strlen($line) > self::LINE_BYTES_MAX) {
            throw new CallerException('the line is longer than the 1 MiB that a push listener takes');
        }
        $this->drain();
        try {
            $this->open($deadline)->write($line, $deadline);
        } catch (NetworkException $error) {
            // The server may have received a part of the line. It would take further bytes for the rest, so the
            // connection is closed; the server then ignores the part.
            $this->close();
            throw $error;
        }
    }

    private function open(Deadline $deadline): Socket
    {
        $timeout = max(0.001, min($this->connectTimeout, $deadline->remaining()));
        return $this->socket ??= Socket::connect($this->address, $timeout, $this->caFile);
    }

    /**
     * Reads pending input: errors of earlier lines, or the end of the connection after a restart of the server.
     */
    private function drain(): void
    {
        $bytes = $this->socket?->poll();
        if ($bytes === null) {
            return;
        }
        $this->buffer .= $bytes;
        $lines = explode("\n", $this->buffer);
        $this->buffer = (string) array_pop($lines);
        if ($bytes === '') {
            $this->close();
        }
        foreach ($lines as $line) {
            $this->refused(self::decode($line));
        }
    }

    private function refused(Fields $answer): void
    {
        if (!$answer->has('error')) {
            return;
        }
        $error = self::error($answer);
        if ($this->logger === null) {
            throw $error;
        }
        $this->logger->error('Veche refused a line: {error}', ['error' => $error->getMessage(), 'exception' => $error]);
    }

    private function line(Deadline $deadline): string
    {
        while (($end = strpos($this->buffer, "\n")) === false) {
            $bytes = $this->socket?->read($deadline);
            if ($bytes === null) {
                throw $this->late();
            }
            if ($bytes === '') {
                throw new NetworkException("$this->address closed the connection before it answered", 0, true);
            }
            $this->buffer .= $bytes;
        }
        $line = substr($this->buffer, 0, $end);
        $this->buffer = substr($this->buffer, $end + 1);
        return $line;
    }

    private function late(): TimeoutException
    {
        return new TimeoutException("no answer from $this->address within $this->timeout s", 0, true);
    }

    private static function decode(string $line): Fields
    {
        return Fields::decode($line)
            ?? throw new ServerException('unexpected answer: not a JSON object; is this a push listener?', 0, true);
    }

    private static function error(Fields $answer): VecheException
    {
        $error = $answer->object('error');
        return ErrorCode::exception($error->int('code'), $error->string('message'), true);
    }
}
