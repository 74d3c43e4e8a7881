<?php

declare(strict_types=1);

namespace Veche;

use Veche\Exception\VecheException;
use Veche\Result\ClientInfo;
use Veche\Result\ConnectionInfo;
use Veche\Result\History;
use Veche\Result\Node;
use Veche\Result\PresenceStats;
use Veche\Result\Published;
use Veche\Result\Reply;
use Veche\Result\UserStatus;

/**
 * All calls of Veche's API. When a method returns, every worker has carried out the call.
 *
 * Times are in seconds since 1970 unless their name says otherwise.
 */
interface ClientInterface extends Publisher
{
    /**
     * Publishes one message to several channels.
     *
     * @param list<string> $channels Up to 1,024.
     * @return list<Published> In the order of the channels.
     * @throws VecheException
     */
    public function broadcast(array $channels, mixed $data, ?PublishOptions $options = null): array;

    /**
     * Closes connections of a user, by default all of them with code 3503.
     *
     * ```php
     * $veche->disconnect('ann', 4001, 'logged out');
     * ```
     *
     * @param int|null $code Close code from 3000 to 4999.
     * @param string|null $client Only the connection with this id.
     * @param string|null $session Only the connection with this session.
     * @param list<string> $except Ids of connections that stay.
     * @return int|null The number of closed connections; null where `client`, `session` or `except` is given.
     * @throws VecheException
     */
    public function disconnect(
        string $user,
        ?int $code = null,
        string $reason = '',
        ?string $client = null,
        ?string $session = null,
        array $except = [],
    ): ?int;

    /**
     * Subscribes the current connections of a user to a channel.
     *
     * @param mixed $info What others see of the subscription.
     * @param mixed $data What the client receives with the subscription.
     * @param Position|null $recoverSince The position from which missed publications are recovered.
     * @param int|null $expireAt When the subscription ends.
     * @param array<string, bool> $override Options other than the namespace's: `presence`, `join_leave`,
     *     `force_push_join_leave`, `force_positioning`, `force_recovery`.
     * @throws VecheException
     */
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
    ): void;

    /**
     * Unsubscribes connections of a user from a channel.
     *
     * @throws VecheException
     */
    public function unsubscribe(
        string $user,
        string $channel,
        ?string $client = null,
        ?string $session = null,
    ): void;

    /**
     * Changes the time at which connections of a user expire.
     *
     * @param int|null $expireAt The new end; 0 for none.
     * @param bool $expired End them now, with code 3005.
     * @param mixed $info What others see of the connections from now on.
     * @throws VecheException
     */
    public function refresh(
        string $user,
        ?int $expireAt = null,
        bool $expired = false,
        mixed $info = null,
        ?string $client = null,
        ?string $session = null,
    ): void;

    /**
     * Returns whether a user is connected.
     *
     * ```php
     * $status = $veche->userStatus('ann');
     * echo $status->online ? 'online' : 'last seen ' . date('c', intdiv($status->lastSeen ?? 0, 1000));
     * ```
     *
     * @throws VecheException
     */
    public function userStatus(string $user): UserStatus;

    /**
     * Closes all connections of a user with code 3507 and refuses new ones.
     *
     * @param int|null $expireAt When the ban ends.
     * @return int How many connections were closed.
     * @throws VecheException
     */
    public function blockUser(string $user, ?int $expireAt = null): int;

    /**
     * Lets a blocked user connect again.
     *
     * @throws VecheException
     */
    public function unblockUser(string $user): void;

    /**
     * Makes the token with this `jti` invalid. Open connections stay.
     *
     * @param int|null $expireAt When the token would have expired, so that the server can forget it.
     * @throws VecheException
     */
    public function revokeToken(string $uid, ?int $expireAt = null): void;

    /**
     * Makes all tokens of a user invalid that were issued before a time.
     *
     * @param int|null $issuedBefore In seconds since 1970; by default the time of the call.
     * @throws VecheException
     */
    public function invalidateUserTokens(string $user, ?int $issuedBefore = null, ?int $expireAt = null): void;

    /**
     * Returns a page of a channel's history.
     *
     * ```php
     * $page = $veche->history('chat:1', limit: 50, reverse: true);    // the latest 50, newest first
     * foreach ($page->publications as $publication) {
     *     echo $publication->offset, ' ', json_encode($publication->data), "\n";
     * }
     * ```
     *
     * @param int $limit How many publications; 0: only the position; -1: all there are.
     * @param Position|null $since Only publications after this position, or before it with `reverse`.
     * @param bool $reverse The latest first.
     * @throws VecheException
     */
    public function history(
        string $channel,
        int $limit = 0,
        ?Position $since = null,
        bool $reverse = false,
    ): History;

    /**
     * Removes all publications of a channel's history. Its position stays.
     *
     * @throws VecheException
     */
    public function historyRemove(string $channel): void;

    /**
     * Returns the connections that are subscribed to a channel.
     *
     * @return array<string, ClientInfo> By the id of the connection.
     * @throws VecheException
     */
    public function presence(string $channel): array;

    /**
     * Returns how many connections and users are subscribed to a channel.
     *
     * @throws VecheException
     */
    public function presenceStats(string $channel): PresenceStats;

    /**
     * Returns the channels that have subscribers, each with the number of its connections.
     *
     * @param string|null $pattern Such as `room:*`; `*` is any text, `?` any character.
     * @return array<string, int>
     * @throws VecheException
     */
    public function channels(?string $pattern = null): array;

    /**
     * Returns the connections of a user.
     *
     * @param string|null $appName Only connections whose client has this name.
     * @return array<string, ConnectionInfo> By the id of the connection.
     * @throws VecheException
     */
    public function connectionsOfUser(string $user, ?string $appName = null): array;

    /**
     * Returns the connections that are subscribed to a channel.
     *
     * @param string|null $appName Only connections whose client has this name.
     * @return array<string, ConnectionInfo> By the id of the connection.
     * @throws VecheException
     */
    public function connectionsOfChannel(string $channel, ?string $appName = null): array;

    /**
     * Returns the server processes, with their version and numbers of clients.
     *
     * @return list<Node>
     * @throws VecheException
     */
    public function info(): array;

    /**
     * Makes several calls in one request. They are carried out in order, and one that fails does not stop the others.
     *
     * ```php
     * [$subscribed, $published] = $veche->batch(
     *     Veche\Command::subscribe('ann', 'room:1'),
     *     Veche\Command::publish('room:1', 'ann is here'),
     * );
     * ```
     *
     * @return list<Reply> In the order of the commands.
     * @throws VecheException
     */
    public function batch(Command ...$commands): array;
}
