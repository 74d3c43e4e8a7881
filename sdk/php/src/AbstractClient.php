<?php

declare(strict_types=1);

namespace Veche;

use Veche\Exception\VecheException;
use Veche\Result\History;
use Veche\Result\PresenceStats;
use Veche\Result\Published;
use Veche\Result\UserStatus;

/**
 * Creates a {@see Command} from each method call of {@see ClientInterface}; the subclass executes it.
 */
abstract class AbstractClient implements ClientInterface
{
    /**
     * Executes a command and returns its decoded result.
     *
     * @throws VecheException
     */
    abstract public function run(Command $command): mixed;

    public function push(string|array $users, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::push($users, $data, $options));
    }

    public function publish(string $channel, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::publish($channel, $data, $options));
    }

    public function broadcast(array $channels, mixed $data, ?PublishOptions $options = null): array
    {
        return $this->run(Command::broadcast($channels, $data, $options));
    }

    public function disconnect(
        string $user,
        ?int $code = null,
        string $reason = '',
        ?string $client = null,
        ?string $session = null,
        array $except = [],
    ): ?int {
        return $this->run(Command::disconnect($user, $code, $reason, $client, $session, $except));
    }

    public function subscribe(
        string $user,
        string $channel,
        mixed $info = null,
        mixed $data = null,
        ?Position $recoverSince = null,
        ?int $expireAt = null,
        array $override = [],
        ?string $client = null,
        ?string $session = null,
    ): void {
        $this->run(Command::subscribe(
            $user,
            $channel,
            $info,
            $data,
            $recoverSince,
            $expireAt,
            $override,
            $client,
            $session,
        ));
    }

    public function unsubscribe(
        string $user,
        string $channel,
        ?string $client = null,
        ?string $session = null,
    ): void {
        $this->run(Command::unsubscribe($user, $channel, $client, $session));
    }

    public function refresh(
        string $user,
        ?int $expireAt = null,
        bool $expired = false,
        mixed $info = null,
        ?string $client = null,
        ?string $session = null,
    ): void {
        $this->run(Command::refresh($user, $expireAt, $expired, $info, $client, $session));
    }

    public function userStatus(string $user): UserStatus
    {
        return $this->run(Command::userStatus($user));
    }

    public function blockUser(string $user, ?int $expireAt = null): int
    {
        return $this->run(Command::blockUser($user, $expireAt));
    }

    public function unblockUser(string $user): void
    {
        $this->run(Command::unblockUser($user));
    }

    public function revokeToken(string $uid, ?int $expireAt = null): void
    {
        $this->run(Command::revokeToken($uid, $expireAt));
    }

    public function invalidateUserTokens(string $user, ?int $issuedBefore = null, ?int $expireAt = null): void
    {
        $this->run(Command::invalidateUserTokens($user, $issuedBefore, $expireAt));
    }

    public function history(
        string $channel,
        int $limit = 0,
        ?Position $since = null,
        bool $reverse = false,
    ): History {
        return $this->run(Command::history($channel, $limit, $since, $reverse));
    }

    public function historyRemove(string $channel): void
    {
        $this->run(Command::historyRemove($channel));
    }

    public function presence(string $channel): array
    {
        return $this->run(Command::presence($channel));
    }

    public function presenceStats(string $channel): PresenceStats
    {
        return $this->run(Command::presenceStats($channel));
    }

    public function channels(?string $pattern = null): array
    {
        return $this->run(Command::channels($pattern));
    }

    public function connectionsOfUser(string $user, ?string $appName = null): array
    {
        return $this->run(Command::connectionsOfUser($user, $appName));
    }

    public function connectionsOfChannel(string $channel, ?string $appName = null): array
    {
        return $this->run(Command::connectionsOfChannel($channel, $appName));
    }

    public function info(): array
    {
        return $this->run(Command::info());
    }

    public function batch(Command ...$commands): array
    {
        return $this->run(Command::batch(...$commands));
    }
}
