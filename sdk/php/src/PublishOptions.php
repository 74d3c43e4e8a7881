<?php

declare(strict_types=1);

namespace Veche;

use Veche\Exception\CallerException;

/**
 * Options of a publication.
 *
 * ```php
 * $veche->publish('orders:7', $order, new Veche\PublishOptions(idempotencyKey: "order-$id"));
 * ```
 */
final class PublishOptions
{
    /**
     * @param string|null $idempotencyKey A second publication with this key within five minutes is
     *     skipped and gets the answer of the first one, so the call may be repeated after a lost
     *     answer. 1 to 128 bytes.
     * @param int|null $version Version of the published state. A publication that is not newer than
     *     the latest one of the channel is skipped.
     * @param string|null $versionEpoch Versions of different epochs are not compared. 1 to 128 bytes.
     * @param bool $skipHistory Send the publication to current subscribers without storing it.
     * @param bool $delta Let clients that request deltas receive only the difference.
     * @param array<string, string> $tags Metadata that clients can filter by. At most 32.
     * @throws CallerException if the options contradict each other or are out of range
     */
    public function __construct(
        public readonly ?string $idempotencyKey = null,
        public readonly ?int $version = null,
        public readonly ?string $versionEpoch = null,
        public readonly bool $skipHistory = false,
        public readonly bool $delta = false,
        public readonly array $tags = [],
    ) {
        self::checkTerm('idempotencyKey', $idempotencyKey);
        self::checkTerm('versionEpoch', $versionEpoch);
        $problem = match (true) {
            $version !== null && $version < 0 => 'version is negative',
            $version !== null && $skipHistory => "version and skipHistory can't be combined",
            $version === null && $versionEpoch !== null => 'versionEpoch needs version',
            count($tags) > 32 => 'a publication may have at most 32 tags',
            default => null,
        };
        foreach ($tags as $name => $value) {
            if (!is_string($value)) {
                $problem ??= "tag \"$name\" is not a string";
            }
        }
        if ($problem !== null) {
            throw new CallerException($problem);
        }
    }

    /**
     * Returns the options as parameters of a call.
     *
     * @internal
     * @return array<string, mixed>
     */
    public function parameters(): array
    {
        return array_filter([
            'idempotency_key' => $this->idempotencyKey,
            'version' => $this->version,
            'version_epoch' => $this->versionEpoch,
            'skip_history' => $this->skipHistory ?: null,
            'delta' => $this->delta ?: null,
            'tags' => $this->tags === [] ? null : (object) $this->tags,
        ], fn (mixed $value): bool => $value !== null);
    }

    private static function checkTerm(string $name, ?string $term): void
    {
        if ($term !== null && ($term === '' || strlen($term) > 128)) {
            throw new CallerException("$name must have 1 to 128 bytes");
        }
    }
}
