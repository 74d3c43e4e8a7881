<?php

declare(strict_types=1);

namespace Veche\Result;

use Veche\Binary;
use Veche\Exception\ServerException;

/**
 * A publication in a channel's history.
 */
final class Publication
{
    /**
     * @param int $offset Place in the history.
     * @param int $time When it was published, in milliseconds since 1970.
     * @param mixed $data Text, or decoded JSON with objects as arrays, or a {@see Binary}.
     * @param array<string, string> $tags
     * @param ClientInfo|null $publisher The client that published it; null for back ends.
     */
    public function __construct(
        public readonly int $offset,
        public readonly int $time,
        public readonly mixed $data,
        public readonly array $tags = [],
        public readonly ?ClientInfo $publisher = null,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        $data = $fields->value('data');
        if ($fields->has('base64')) {
            $bytes = base64_decode($fields->string('base64'), true);
            $data = new Binary(is_string($bytes) ? $bytes : throw new ServerException('unexpected answer: bad base64'));
        }
        return new self(
            $fields->int('offset'),
            $fields->int('time'),
            $data,
            $fields->has('tags') ? $fields->array('tags') : [],
            $fields->has('info') ? ClientInfo::from($fields->object('info')) : null,
        );
    }
}
