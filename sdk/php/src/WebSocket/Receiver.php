<?php

declare(strict_types=1);

namespace Veche\WebSocket;

use Veche\Exception\ProtocolException;

/**
 * Decodes the bytes from a server into messages and control frames (RFC 6455, section 5). It does no I/O.
 *
 * ```php
 * $receiver = new Receiver();
 * $receiver->feed($bytes);
 * while (($event = $receiver->next()) !== null) {
 *     // …
 * }
 * ```
 *
 * @internal
 */
final class Receiver
{
    private const CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014];

    private string $buffer = '';
    private int $start = 0;
    /** Kind of the message whose fragments are arriving. */
    private ?Opcode $open = null;
    private ?Utf8 $text = null;
    /** Number of bytes of the current frame that were already passed to `$text`. */
    private int $validated = 0;
    private string $message = '';
    private int $fragments = 0;
    private bool $isOver = false;
    private ?ProtocolException $failure = null;

    /**
     * @param int $messageBytesMax Maximum length of a message in bytes.
     * @param int $fragmentsMax Maximum number of frames of one message.
     */
    public function __construct(private readonly int $messageBytesMax, private readonly int $fragmentsMax)
    {
    }

    /**
     * Accepts received bytes.
     */
    public function feed(string $bytes): void
    {
        if ($this->start > 0) {
            $this->buffer = substr($this->buffer, $this->start);
            $this->start = 0;
        }
        $this->buffer .= $bytes;
    }

    /**
     * Returns the next message or control frame; null: more bytes are needed, or a Close was received.
     *
     * @throws ProtocolException with the close code; all later calls throw it again
     */
    public function next(): ?Event
    {
        if ($this->failure !== null) {
            throw $this->failure;
        }
        while (!$this->isOver && ($frame = $this->frame()) !== null) {
            $event = $this->event(...$frame);
            if ($event !== null) {
                return $event;
            }
        }
        return null;
    }

    /**
     * Returns whether a message or a frame has begun and not ended.
     */
    public function isMidway(): bool
    {
        return !$this->isOver && ($this->open !== null || strlen($this->buffer) > $this->start);
    }

    /**
     * @return array{Opcode, bool, string}|null
     */
    private function frame(): ?array
    {
        $available = strlen($this->buffer) - $this->start;
        if ($available < 2) {
            return null;
        }
        $first = ord($this->buffer[$this->start]);
        $isFinal = ($first & 0x80) !== 0;
        $opcode = Opcode::tryFrom($first & 0x0f);
        $this->check(($first & 0x70) === 0, 1002, 'reserved bit set');
        $this->check($opcode !== null, 1002, 'reserved opcode');
        $this->check($isFinal || !$opcode->isControl(), 1002, 'fragmented control frame');
        $this->order($opcode);
        $second = ord($this->buffer[$this->start + 1]);
        $this->check(($second & 0x80) === 0, 1002, 'masked frame from a server');
        $this->check($second <= 125 || !$opcode->isControl(), 1002, 'control frame over 125 bytes');
        [$head, $length] = $this->length($second, $available);
        if ($head === 0) {
            return null;
        }
        if (!$opcode->isControl()) {
            $total = strlen($this->message) + $length;
            $this->check($length >= 0 && $total <= $this->messageBytesMax, 1009, 'message too big');
            $this->check($this->fragments < $this->fragmentsMax, 1009, 'too many fragments');
            $this->validate($opcode, $head, min($length, $available - $head));
        }
        if ($available < $head + $length) {
            return null;
        }
        if (!$opcode->isControl()) {
            $this->validated = 0;
        }
        $payload = substr($this->buffer, $this->start + $head, $length);
        $this->start += $head + $length;
        return [$opcode, $isFinal, $payload];
    }

    /**
     * Validates the received part of a text, so that an invalid text is refused without waiting for
     * its end.
     */
    private function validate(Opcode $opcode, int $head, int $arrived): void
    {
        if ($this->open === null && $this->validated === 0) {
            $this->text = $opcode === Opcode::Text ? new Utf8() : null;
        }
        if ($this->text !== null && $arrived > $this->validated) {
            $at = $this->start + $head + $this->validated;
            $part = substr($this->buffer, $at, $arrived - $this->validated);
            $this->check($this->text->feed($part), 1007, 'invalid UTF-8');
        }
        $this->validated = $arrived;
    }

    /**
     * Checks that a data frame is permitted in the current state (RFC 6455, section 5.4).
     */
    private function order(Opcode $opcode): void
    {
        if ($opcode === Opcode::Continuation) {
            $this->check($this->open !== null, 1002, 'continuation without a message');
        } elseif (!$opcode->isControl()) {
            $this->check($this->open === null, 1002, 'new message inside a fragmented one');
        }
    }

    /**
     * Returns the length of the head in bytes (0 if the head is not complete) and the length of the
     * payload.
     *
     * @return array{int, int}
     */
    private function length(int $second, int $available): array
    {
        if ($second < 126) {
            return [2, $second];
        }
        $size = $second === 126 ? 2 : 8;
        if ($available < 2 + $size) {
            return [0, 0];
        }
        $length = unpack($size === 2 ? 'n' : 'J', $this->buffer, $this->start + 2)[1];
        $isShortest = $length < 0 || $length >= ($size === 2 ? 126 : 65536);
        // The most significant bit of the length is 0 (RFC 6455, section 5.2).
        $this->check($isShortest && $length >= 0, 1002, 'malformed payload length');
        return [2 + $size, $length];
    }

    private function event(Opcode $opcode, bool $isFinal, string $payload): ?Event
    {
        if ($opcode === Opcode::Close) {
            return $this->close($payload);
        }
        if ($opcode->isControl()) {
            return new Event($opcode, $payload);
        }
        $this->open ??= $opcode;
        $this->fragments += 1;
        $this->message .= $payload;
        if (!$isFinal) {
            return null;
        }
        $this->check($this->text?->isComplete() ?? true, 1007, 'invalid UTF-8');
        $event = new Event($this->open, $this->message);
        $this->open = null;
        $this->message = '';
        $this->fragments = 0;
        return $event;
    }

    private function close(string $payload): Event
    {
        $this->isOver = true;
        if ($payload === '') {
            return new Event(Opcode::Close, '', 1005);
        }
        $this->check(strlen($payload) >= 2, 1002, 'close frame of one byte');
        $code = unpack('n', $payload)[1];
        $isAllowed = in_array($code, self::CODES, true) || ($code >= 3000 && $code <= 4999);
        $this->check($isAllowed, 1002, 'invalid close code');
        $reason = substr($payload, 2);
        $this->check(preg_match('//u', $reason) === 1, 1007, 'invalid UTF-8');
        return new Event(Opcode::Close, $reason, $code);
    }

    private function check(bool $holds, int $code, string $why): void
    {
        if (!$holds) {
            throw $this->failure = new ProtocolException("the server broke RFC 6455: $why", $code, true);
        }
    }
}
