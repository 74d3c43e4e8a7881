<?php

declare(strict_types=1);

namespace Veche\Testing;

/**
 * The client's end of a connection to an application under test.
 *
 * ```php
 * $ann = $tester->open('/ws', user: 'ann');
 * $ann->say('leave');
 * self::assertSame([4000, 'as you wish'], [$ann->closeCode, $ann->closeReason]);
 * ```
 */
final class TestConnection
{
    /** Close code that the application has chosen; null while the connection is open. */
    public ?int $closeCode = null;

    public string $closeReason = '';

    /** @var array<string, true> */
    public array $channels = [];

    /** @var array<string, bool|int|float|string> */
    public array $attributes = [];

    /** @var list<string> */
    private array $inbox = [];

    /**
     * @param int|null $refusedWith Status of a handshake that was refused.
     * @internal {@see AppTester::open()} creates connections.
     */
    public function __construct(
        private readonly AppTester $tester,
        public readonly string $id,
        public ?string $user = null,
        public ?string $protocol = null,
        public ?int $refusedWith = null,
    ) {
    }

    /**
     * Sends a text message and returns when the application has handled it.
     */
    public function say(string $text): void
    {
        $this->tester->message($this, $text, 'text');
    }

    /**
     * Sends a binary message and returns when the application has handled it.
     */
    public function sayBinary(string $bytes): void
    {
        $this->tester->message($this, $bytes, 'binary');
    }

    /**
     * Closes the connection.
     */
    public function hangUp(int $code = 1000, string $reason = ''): void
    {
        $this->tester->close($this, $code, $reason);
    }

    /**
     * Returns the messages that have arrived since the last call.
     *
     * @return list<string>
     */
    public function received(): array
    {
        [$received, $this->inbox] = [$this->inbox, []];
        return $received;
    }

    /**
     * @internal
     */
    public function deliver(string $message): void
    {
        if ($this->closeCode === null) {
            $this->inbox[] = $message;
        }
    }
}
