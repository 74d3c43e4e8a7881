<?php

declare(strict_types=1);

namespace Veche\Hook;

use Veche\Binary;
use Veche\Worker\Frame;

/**
 * A command of a client of Centrifugo's protocol that the application decides on.
 *
 * ```php
 * $app->subscribe(fn (Veche\Hook\Event $event) => $event->channel === "inbox:{$event->client->user}"
 *     ? new Veche\Hook\Grant()
 *     : new Veche\Hook\Refusal(103, 'permission denied'));
 * ```
 */
final class Event
{
    /**
     * @param string $name `connect`, `refresh`, `subscribe`, `sub_refresh`, `publish`, `rpc`, `client_message` or
     *     `disconnect`.
     * @param string|null $channel The channel of `subscribe`, `sub_refresh` and `publish`.
     * @param string|null $method The method of `rpc`.
     * @param string|null $token The token that came with the command.
     * @param list<string> $channels Of `connect`: the server-side subscriptions that a reconnecting client had.
     * @param mixed $data Decoded JSON with objects as arrays, or text, or a {@see Binary}.
     * @param int|null $code Of `disconnect`: the close code.
     * @param string|null $reason Of `disconnect`: the reason.
     */
    public function __construct(
        public readonly string $name,
        public readonly Caller $client,
        public readonly ?string $channel = null,
        public readonly ?string $method = null,
        public readonly ?string $token = null,
        public readonly array $channels = [],
        public readonly mixed $data = null,
        public readonly ?int $code = null,
        public readonly ?string $reason = null,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Frame $frame): self
    {
        $head = $frame->head;
        $client = $head['client'] ?? [];
        $meta = $frame->part($client['meta'] ?? null);
        $caller = new Caller(
            $client['id'] ?? '',
            $head['user'] ?? null,
            $client['transport'] ?? '',
            $client['protocol'] ?? '',
            $client['name'] ?? '',
            $client['version'] ?? '',
            $client['remote'] ?? '',
            $client['headers'] ?? [],
            $meta === null ? null : json_decode($meta, true),
        );
        $data = $frame->part($head['data'] ?? null);
        return new self(
            $head['event'],
            $caller,
            $head['channel'] ?? null,
            $head['method'] ?? null,
            $head['token'] ?? null,
            $head['channels'] ?? [],
            match (true) {
                $data === null => null,
                ($head['data_kind'] ?? 'json') === 'json' => json_decode($data, true),
                $head['data_kind'] === 'binary' => new Binary($data),
                default => $data,
            },
            $head['code'] ?? null,
            $head['reason'] ?? null,
        );
    }
}
