<?php

declare(strict_types=1);

namespace Veche\Hook;

use Veche\Binary;
use Veche\Json;
use Veche\Worker\Effects;

/**
 * Permits a command, with data added by the application. The members that apply depend on the command.
 *
 * ```php
 * $app->connect(fn (Veche\Hook\Event $event) => new Veche\Hook\Grant(user: 'ann', channels: ['news']));
 * $app->rpc(fn (Veche\Hook\Event $event) => new Veche\Hook\Grant(data: array_sum($event->data)));
 * ```
 */
final class Grant implements Decision
{
    /**
     * @param string|null $user Of `connect`: the user.
     * @param int|null $expireAt When the connection or subscription ends, in seconds since 1970.
     * @param bool $isExpired Of `refresh` and `sub_refresh`: the connection or subscription has
     *     ended.
     * @param mixed $info What other clients see: JSON, or a {@see Binary}.
     * @param mixed $data The data of the reply; of `publish`, the data to publish instead of the
     *     client's.
     * @param list<string> $channels Of `connect`: channels that the client is subscribed to.
     * @param mixed $meta Of `connect`: data that each later event of the connection includes.
     * @param bool $skipHistory Of `publish`: the publication is not stored in the history.
     */
    public function __construct(
        public readonly ?string $user = null,
        public readonly ?int $expireAt = null,
        public readonly bool $isExpired = false,
        public readonly mixed $info = null,
        public readonly mixed $data = null,
        public readonly array $channels = [],
        public readonly mixed $meta = null,
        public readonly bool $skipHistory = false,
    ) {
    }

    public function reply(Effects $effects): array
    {
        $subscriptions = array_map(static fn (string $name): array => ['channel' => $name], $this->channels);
        $result = array_filter([
            'user' => $this->user,
            'expire_at' => $this->expireAt,
            'expired' => $this->isExpired ?: null,
            'skip_history' => $this->skipHistory ?: null,
            'subscriptions' => $subscriptions ?: null,
        ], static fn (mixed $one): bool => $one !== null);
        foreach (['info' => $this->info, 'data' => $this->data, 'meta' => $this->meta] as $name => $value) {
            if ($value instanceof Binary && $name !== 'meta') {
                $result += [$name => $effects->keep($value->bytes), "{$name}_kind" => 'binary'];
            } elseif ($value !== null) {
                $result[$name] = $effects->keep(Json::encode($value));
            }
        }
        return ['result' => (object) $result];
    }
}
