<?php

declare(strict_types=1);

namespace Veche\Worker;

use Veche\Exception\ServerException;

/**
 * Splits a stream of bytes into frames, however the bytes arrive. It does no I/O.
 *
 * @internal
 */
final class FrameDecoder
{
    private string $buffer = '';
    private int $start = 0;

    public function __construct(
        private readonly int $headBytesMax = 1 << 20,
        private readonly int $payloadBytesMax = 16 << 20,
    ) {
    }

    public function feed(string $bytes): void
    {
        if ($this->start === strlen($this->buffer)) {
            $this->buffer = $bytes;
        } elseif ($this->start > 0) {
            $this->buffer = substr($this->buffer, $this->start) . $bytes;
        } else {
            $this->buffer .= $bytes;
        }
        $this->start = 0;
    }

    /**
     * Returns the next complete frame; null if more bytes are needed.
     *
     * @throws ServerException if the bytes are not a stream of frames
     */
    public function next(): ?Frame
    {
        $available = strlen($this->buffer) - $this->start;
        if ($available < 4) {
            return null;
        }
        if ($available < Frame::PREFIX_BYTES) {
            $head = unpack('V', $this->buffer, $this->start)[1];
            $payload = 0;
        } else {
            [1 => $head, 2 => $payload] = unpack('V2', $this->buffer, $this->start);
        }
        if ($head === 0 || $head > $this->headBytesMax) {
            $why = $head === 0 ? 'a frame has no head' : "the head of a frame is too long: $head bytes";
            throw new ServerException($why);
        }
        if ($payload > $this->payloadBytesMax) {
            throw new ServerException("the payload of a frame is too long: $payload bytes");
        }
        if ($available < Frame::PREFIX_BYTES + $head + $payload) {
            return null;
        }
        $at = $this->start + Frame::PREFIX_BYTES;
        $this->start = $at + $head + $payload;
        return Frame::read(substr($this->buffer, $at, $head), substr($this->buffer, $at + $head, $payload));
    }

    /**
     * Returns whether a frame has begun and not ended.
     */
    public function isWithinFrame(): bool
    {
        return strlen($this->buffer) > $this->start;
    }
}
