<?php

declare(strict_types=1);

namespace Veche;

use Closure;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;
use Veche\Exception\VecheException;
use Veche\Result\ClientInfo;
use Veche\Result\ConnectionInfo;
use Veche\Result\Fields;
use Veche\Result\History;
use Veche\Result\Node;
use Veche\Result\PresenceStats;
use Veche\Result\Published;
use Veche\Result\Reply;
use Veche\Result\UserStatus;

/**
 * A call of the API that has not been made yet. Its constructors are named like the methods of {@see ClientInterface},
 * which describes their parameters.
 *
 * ```php
 * [$subscribed, $published] = $veche->batch(
 *     Veche\Command::subscribe('ann', 'room:1'),
 *     Veche\Command::publish('room:1', 'ann is here'),
 * );
 * echo $published->get()->handed;
 * ```
 */
final class Command
{
    /** Maximum number of users or channels in one command. */
    public const TARGETS_MAX = 1024;

    private const PUBLISHING = ['push', 'publish', 'broadcast'];

    /**
     * @param string $method Name of the call, as in `/api/METHOD`.
     * @param array<string, mixed> $parameters Members of the object that is sent.
     * @param bool $isRepeatable Whether two executions have the same outcome as one.
     * @param Closure(Fields): mixed $decode
     * @param list<self> $commands The commands of a batch.
     */
    private function __construct(
        public readonly string $method,
        public readonly array $parameters,
        public readonly bool $isRepeatable,
        private readonly Closure $decode,
        public readonly array $commands = [],
    ) {
    }

    /**
     * @param string|list<string> $users
     */
    public static function push(string|array $users, mixed $data, ?PublishOptions $options = null): self
    {
        $target = is_string($users) ? ['user' => self::name('user', $users)] : ['users' => self::names('user', $users)];
        return self::publication('push', $target, $data, $options, Published::from(...));
    }

    public static function publish(string $channel, mixed $data, ?PublishOptions $options = null): self
    {
        $target = ['channel' => self::name('channel', $channel)];
        return self::publication('publish', $target, $data, $options, Published::from(...));
    }

    /**
     * @param list<string> $channels
     */
    public static function broadcast(array $channels, mixed $data, ?PublishOptions $options = null): self
    {
        $target = ['channels' => self::names('channel', $channels)];
        $decode = static fn (Fields $fields): array => array_values(
            $fields->map('responses', static fn (Fields $one): Published => Published::from($one->object('result'))),
        );
        return self::publication('broadcast', $target, $data, $options, $decode);
    }

    /**
     * @param list<string> $except
     */
    public static function disconnect(
        string $user,
        ?int $code = null,
        string $reason = '',
        ?string $client = null,
        ?string $session = null,
        array $except = [],
    ): self {
        if ($code !== null && ($code < 3000 || $code > 4999)) {
            throw new CallerException('a close code must be between 3000 and 4999');
        }
        if (strlen($reason) > 123) {
            throw new CallerException('a close reason may have at most 123 bytes');
        }
        if ($code === null && $reason !== '') {
            throw new CallerException('a close reason needs a code');
        }
        $parameters = self::connections($user, $client, $session) + [
            'disconnect' => $code === null ? null : ['code' => $code, 'reason' => $reason],
            'whitelist' => $except === [] ? null : array_values($except),
        ];
        // The response has no count if only some connections of the user are closed.
        $decode = static fn (Fields $fields): ?int => $fields->optionalInt('disconnected');
        return self::of('disconnect', $parameters, false, $decode);
    }

    /**
     * @param array<string, bool> $override
     */
    public static function subscribe(
        string $user,
        string $channel,
        mixed $info = null,
        mixed $data = null,
        ?Position $recoverSince = null,
        ?int $expireAt = null,
        array $override = [],
        ?string $client = null,
        ?string $session = null,
    ): self {
        $flags = array_map(static fn (bool $value): array => ['value' => $value], $override);
        $parameters = self::connections($user, $client, $session) + [
            'channel' => self::name('channel', $channel),
            'recover_since' => $recoverSince?->parameters(),
            'expire_at' => self::time($expireAt),
            'override' => $flags === [] ? null : (object) $flags,
        ];
        $parameters += self::value('info', $info) + self::value('data', $data);
        return self::of('subscribe', $parameters, false);
    }

    public static function unsubscribe(
        string $user,
        string $channel,
        ?string $client = null,
        ?string $session = null,
    ): self {
        $parameters = self::connections($user, $client, $session) + ['channel' => self::name('channel', $channel)];
        return self::of('unsubscribe', $parameters, false);
    }

    public static function refresh(
        string $user,
        ?int $expireAt = null,
        bool $expired = false,
        mixed $info = null,
        ?string $client = null,
        ?string $session = null,
    ): self {
        $parameters = self::connections($user, $client, $session) + [
            'expired' => $expired ?: null,
            'expire_at' => self::time($expireAt),
            'info' => $info,
        ];
        return self::of('refresh', $parameters, !$expired);
    }

    public static function userStatus(string $user): self
    {
        return self::of('user_status', ['user' => self::name('user', $user)], true, UserStatus::from(...));
    }

    public static function blockUser(string $user, ?int $expireAt = null): self
    {
        $parameters = ['user' => self::name('user', $user), 'expire_at' => self::time($expireAt)];
        $decode = static fn (Fields $fields): int => $fields->int('disconnected');
        return self::of('block_user', $parameters, true, $decode);
    }

    public static function unblockUser(string $user): self
    {
        return self::of('unblock_user', ['user' => self::name('user', $user)], true);
    }

    public static function revokeToken(string $uid, ?int $expireAt = null): self
    {
        $parameters = ['uid' => self::name('uid', $uid, 255), 'expire_at' => self::time($expireAt)];
        return self::of('revoke_token', $parameters, true);
    }

    public static function invalidateUserTokens(string $user, ?int $issuedBefore = null, ?int $expireAt = null): self
    {
        $parameters = [
            'user' => self::name('user', $user),
            'issued_before' => self::time($issuedBefore),
            'expire_at' => self::time($expireAt),
        ];
        // Without a time the server uses the time of the call, so a repetition could invalidate
        // more tokens.
        return self::of('invalidate_user_tokens', $parameters, $issuedBefore !== null);
    }

    public static function history(
        string $channel,
        int $limit = 0,
        ?Position $since = null,
        bool $reverse = false,
    ): self {
        $parameters = [
            'channel' => self::name('channel', $channel),
            'limit' => max($limit, -1),
            'since' => $since?->parameters(),
            'reverse' => $reverse ?: null,
        ];
        return self::of('history', $parameters, true, History::from(...));
    }

    public static function historyRemove(string $channel): self
    {
        return self::of('history_remove', ['channel' => self::name('channel', $channel)], false);
    }

    public static function presence(string $channel): self
    {
        $decode = static fn (Fields $fields): array => $fields->map('presence', ClientInfo::from(...));
        return self::of('presence', ['channel' => self::name('channel', $channel)], true, $decode);
    }

    public static function presenceStats(string $channel): self
    {
        $parameters = ['channel' => self::name('channel', $channel)];
        return self::of('presence_stats', $parameters, true, PresenceStats::from(...));
    }

    public static function channels(?string $pattern = null): self
    {
        $clients = static fn (Fields $one): int => $one->int('num_clients');
        $decode = static fn (Fields $fields): array => $fields->map('channels', $clients);
        return self::of('channels', ['pattern' => $pattern], true, $decode);
    }

    public static function connectionsOfUser(string $user, ?string $appName = null): self
    {
        return self::listing(['user' => self::name('user', $user), 'name' => $appName]);
    }

    public static function connectionsOfChannel(string $channel, ?string $appName = null): self
    {
        return self::listing(['channel' => self::name('channel', $channel), 'name' => $appName]);
    }

    public static function info(): self
    {
        $decode = static fn (Fields $fields): array => array_values($fields->map('nodes', Node::from(...)));
        return self::of('info', [], true, $decode);
    }

    /**
     * Combines up to 1,000 commands in one call.
     */
    public static function batch(self ...$commands): self
    {
        if ($commands === [] || count($commands) > 1000) {
            throw new CallerException('a batch must have 1 to 1000 commands');
        }
        $commands = array_values($commands);
        $objects = array_map(static fn (self $one): string => "{\"$one->method\":{$one->body()}}", $commands);
        $decode = static function (Fields $fields) use ($commands): array {
            $replies = array_values($fields->map('replies', static fn (Fields $reply): Fields => $reply));
            if (count($replies) !== count($commands)) {
                throw new ServerException('unexpected answer: there must be one reply for each command', 0, true);
            }
            return array_map(static fn (self $one, Fields $reply): Reply => $one->reply($reply), $commands, $replies);
        };
        $isRepeatable = array_filter($commands, static fn (self $one): bool => !$one->isRepeatable) === [];
        $parameters = ['commands' => new Json('[' . implode(',', $objects) . ']')];
        return new self('batch', $parameters, $isRepeatable, $decode, $commands);
    }

    /**
     * Returns the command with an idempotency key, unless it has one or publishes nothing.
     *
     * @internal
     */
    public function withIdempotencyKey(string $key): self
    {
        if ($this->isRepeatable || !$this->publishes()) {
            return $this;
        }
        return new self($this->method, $this->parameters + ['idempotency_key' => $key], true, $this->decode);
    }

    /**
     * Returns whether the command publishes and does nothing else.
     */
    public function publishes(): bool
    {
        return in_array($this->method, self::PUBLISHING, true);
    }

    /**
     * Encodes the parameters as a JSON object, followed by further members.
     *
     * @internal
     * @param array<string, mixed> $more
     */
    public function body(array $more = []): string
    {
        $members = [];
        foreach ($this->parameters + $more as $name => $value) {
            $members[] = "\"$name\":" . Json::encode($value);
        }
        return '{' . implode(',', $members) . '}';
    }

    /**
     * Decodes the result.
     *
     * @internal
     */
    public function result(Fields $result): mixed
    {
        return ($this->decode)($result);
    }

    /**
     * Decodes a response, `{"result":…}` or `{"error":…}`; the result of a batch is the list of its replies.
     *
     * @internal
     * @throws VecheException
     */
    public function answered(string $json): mixed
    {
        $answer = Fields::decode($json) ?? throw new ServerException('unexpected answer: not a JSON object', 0, true);
        if ($answer->has('error')) {
            $error = $answer->object('error');
            throw ErrorCode::exception($error->int('code'), $error->string('message'), $this->publishes());
        }
        return $this->result($answer->object('result'));
    }

    private function reply(Fields $reply): Reply
    {
        if ($reply->has('error')) {
            $error = $reply->object('error');
            $code = $error->int('code');
            return new Reply(null, ErrorCode::exception($code, $error->string('message'), $this->publishes()));
        }
        return new Reply($this->result($reply->object($this->method)));
    }

    /**
     * @param array<string, mixed> $target
     * @param Closure(Fields): mixed $decode
     */
    private static function publication(
        string $method,
        array $target,
        mixed $data,
        ?PublishOptions $options,
        Closure $decode,
    ): self {
        $options ??= new PublishOptions();
        $payload = $data instanceof Binary ? ['binary' => base64_encode($data->bytes)] : ['data' => $data];
        if (is_string($data)) {
            // If the text is invalid, encoding it here makes this method throw instead of the later call.
            Json::encode($data);
        }
        $isRepeatable = $options->idempotencyKey !== null;
        return new self($method, $target + $payload + $options->parameters(), $isRepeatable, $decode);
    }

    /**
     * @param array<string, mixed> $parameters
     */
    private static function listing(array $parameters): self
    {
        $decode = static fn (Fields $fields): array => $fields->map('connections', ConnectionInfo::from(...));
        return self::of('connections', $parameters, true, $decode);
    }

    /**
     * @param array<string, mixed> $parameters Parameters that are null are omitted.
     * @param (Closure(Fields): mixed)|null $decode
     */
    private static function of(string $method, array $parameters, bool $isRepeatable, ?Closure $decode = null): self
    {
        $parameters = array_filter($parameters, static fn (mixed $value): bool => $value !== null);
        return new self($method, $parameters, $isRepeatable, $decode ?? static fn (): mixed => null);
    }

    /**
     * @return array<string, mixed>
     */
    private static function connections(string $user, ?string $client, ?string $session): array
    {
        // Anonymous clients have no user and are named by their id.
        if ($user === '' && $client === null && $session === null) {
            throw new CallerException('user is empty');
        }
        return ['user' => $user, 'client' => $client, 'session' => $session];
    }

    /**
     * @return array<string, mixed>
     */
    private static function value(string $name, mixed $value): array
    {
        return $value instanceof Binary ? ["b64$name" => base64_encode($value->bytes)] : [$name => $value];
    }

    private static function time(?int $seconds): ?int
    {
        return $seconds === null || $seconds >= 0 ? $seconds : throw new CallerException('a time is negative');
    }

    private static function name(string $kind, string $name, int $bytesMax = 254): string
    {
        $problem = match (true) {
            $name === '' => "$kind is empty",
            $kind !== 'channel' && strlen($name) > $bytesMax => "$kind has more than $bytesMax bytes",
            $kind !== 'uid' && preg_match('/[\x00-\x1f\x7f]/', $name) === 1 => "$kind has control characters",
            preg_match('//u', $name) !== 1 => "$kind is not UTF-8",
            default => null,
        };
        return $problem === null ? $name : throw new CallerException($problem);
    }

    /**
     * @param array<array-key, mixed> $names
     * @return list<string>
     */
    private static function names(string $kind, array $names): array
    {
        if ($names === [] || count($names) > self::TARGETS_MAX) {
            throw new CallerException("a command must name 1 to 1024 {$kind}s");
        }
        $checked = [];
        foreach ($names as $name) {
            $isText = is_string($name) || is_int($name);
            $checked[] = $isText
                ? self::name($kind, (string) $name)
                : throw new CallerException("$kind must be a string");
        }
        return $checked;
    }
}
