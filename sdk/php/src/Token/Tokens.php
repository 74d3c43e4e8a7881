<?php

declare(strict_types=1);

namespace Veche\Token;

use Veche\Exception\CallerException;

/**
 * Makes the tokens with which clients connect and subscribe.
 *
 * ```php
 * $tokens = new Veche\Token\Tokens(Veche\Token\Key::secret($secret), ttl: 600);
 * $connection = $tokens->connection('ann');
 * $subscription = $tokens->subscription('ann', 'chat:$42');
 * ```
 */
final class Tokens
{
    /**
     * @param int $ttl Lifetime of tokens in seconds.
     * @param string|null $issuer `iss`; required if `[jwt]` sets `issuer`.
     * @param string|list<string>|null $audience `aud`; required if `[jwt]` sets `audience`.
     * @throws CallerException
     */
    public function __construct(
        private readonly Key $key,
        private readonly int $ttl = 600,
        private readonly ?string $issuer = null,
        private readonly string|array|null $audience = null,
    ) {
        if ($ttl < 1) {
            throw new CallerException('ttl must be at least 1 second');
        }
    }

    /**
     * Returns a connection token.
     *
     * @param string $user Name of the user; empty for an anonymous client.
     * @param int|null $expireAt When the connection ends, in seconds since 1970; 0: never; by
     *     default with the token.
     * @param mixed $info What other clients see of this one.
     * @param mixed $meta What only the back end's hooks see.
     * @param list<string> $channels Channels that the connection is subscribed to by the server.
     * @param array<string, array<string, mixed>> $subs Further such channels with options: `info`, `data`, `override`,
     *     `expire_at`.
     * @param string|null $id `jti`, by which the token can be revoked.
     * @param array<string, mixed> $claims Further claims, which replace those of the same name.
     * @throws CallerException
     */
    public function connection(
        string $user,
        ?int $expireAt = null,
        mixed $info = null,
        mixed $meta = null,
        array $channels = [],
        array $subs = [],
        ?string $id = null,
        array $claims = [],
    ): string {
        if (isset($claims['channel'])) {
            throw new CallerException('a token with a channel is a subscription token');
        }
        $subs = array_map(static fn (array $options): object => (object) $options, $subs);
        return $this->sign($claims, $user, $id, [
            'expire_at' => $expireAt,
            'info' => $info,
            'meta' => $meta,
            'channels' => $channels === [] ? null : array_values($channels),
            'subs' => $subs === [] ? null : (object) $subs,
        ]);
    }

    /**
     * Returns a subscription token.
     *
     * @param string $user The user of the connection; empty for an anonymous client.
     * @param string $channel The channel that the client may subscribe to.
     * @param int|null $expireAt When the subscription ends, in seconds since 1970; 0: never;
     *     null: when the token expires.
     * @param mixed $info What other clients see of the subscription.
     * @param mixed $data What the client receives as it subscribes.
     * @param string|null $client Id of the only connection that may use the token.
     * @param array<string, bool> $override Options other than the namespace's, such as `['presence' => false]`.
     * @param string|null $id `jti`, by which the token can be revoked.
     * @param array<string, mixed> $claims Further claims, which replace those of the same name.
     * @throws CallerException
     */
    public function subscription(
        string $user,
        string $channel,
        ?int $expireAt = null,
        mixed $info = null,
        mixed $data = null,
        ?string $client = null,
        array $override = [],
        ?string $id = null,
        array $claims = [],
    ): string {
        if ($channel === '') {
            throw new CallerException('channel is empty');
        }
        $flags = array_map(static fn (bool $value): array => ['value' => $value], $override);
        return $this->sign($claims, $user, $id, [
            'channel' => $channel,
            'expire_at' => $expireAt,
            'info' => $info,
            'data' => $data,
            'client' => $client,
            'override' => $flags === [] ? null : (object) $flags,
        ]);
    }

    /**
     * @param array<string, mixed> $claims
     * @param array<string, mixed> $own
     */
    private function sign(array $claims, string $user, ?string $id, array $own): string
    {
        $now = time();
        $own += [
            'sub' => $user === '' ? null : $user,
            'iat' => $now,
            'exp' => $now + $this->ttl,
            'iss' => $this->issuer,
            'aud' => $this->audience,
            'jti' => $id,
        ];
        return $this->key->sign($claims + array_filter($own, static fn (mixed $value): bool => $value !== null));
    }
}
