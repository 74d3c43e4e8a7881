<?php

/*
 * The PHP SDK of Veche in one file, for projects without Composer:
 *
 *     require 'veche.php';
 *     $veche = new Veche\Client('http://127.0.0.1:8081', key: 'demo');
 *     $veche->push('tester01', 'hello');
 *
 * Generated from sdk/php/src by sdk/php/build/single.php; changes belong there. MIT or Apache-2.0.
 */

declare(strict_types=1);

namespace Veche;

use Veche\Worker\Engine;
use Veche\Worker\Runner;

/**
 * Lets a handler wait while its worker handles other events.
 *
 * ```php
 * $app->message(function (Veche\Connection $conn, string $data): void {
 *     Veche\sleep(0.5);
 *     $conn->send($data);
 * });
 * ```
 */
function sleep(float $seconds): void
{
    Engine::current()->sleepUntil(Runner::now() + $seconds);
}

namespace Veche;

use Veche\Exception\VecheException;
use Veche\Result\Published;

/**
 * Sends messages to users and channels: over HTTP ({@see Client}), over the line port ({@see LineClient}), or nowhere,
 * in tests ({@see Testing\FakeClient}).
 *
 * Depend on this interface where your code only pushes.
 *
 * ```php
 * final class OrderShipped
 * {
 *     public function __construct(private readonly Veche\Publisher $veche)
 *     {
 *     }
 *
 *     public function __invoke(Order $order): void
 *     {
 *         $this->veche->push($order->user, ['shipped' => $order->id]);
 *     }
 * }
 * ```
 */
interface Publisher
{
    /**
     * Pushes a message to all connections of a user, or of several users.
     *
     * ```php
     * $veche->push('ann', 'hello');                    // the text message: hello
     * $veche->push(['ann', 'bob'], ['order' => 42]);   // {"order":42}
     * ```
     *
     * @param string|list<string> $users One name, or up to 1,024.
     * @param mixed $data A string is sent as its text, a {@see Binary} as a binary message, a {@see Json} as it is, and
     *     anything else as JSON.
     * @throws VecheException
     */
    public function push(string|array $users, mixed $data, ?PublishOptions $options = null): Published;

    /**
     * Publishes a message to all subscribers of a channel.
     *
     * ```php
     * $published = $veche->publish('chat:1', ['from' => 'bob', 'text' => 'hi']);
     * echo $published->position;     // its position in the channel's history, if the channel has one
     * ```
     *
     * @throws VecheException
     */
    public function publish(string $channel, mixed $data, ?PublishOptions $options = null): Published;
}

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

namespace Veche;

use Closure;
use Throwable;
use Veche\Exception\CallerException;
use Veche\Exception\VecheException;
use Veche\Hook\Decision;
use Veche\Hook\Event;
use Veche\Hook\Grant;
use Veche\Pool\Http;
use Veche\Pool\Mysql;
use Veche\Pool\Redis;
use Veche\Worker\Engine;
use Veche\Worker\Handling;
use Veche\Worker\RequestRunner;
use Veche\Worker\Runner;
use Veche\Worker\WorkerClient;

/**
 * An application behind Veche: handlers of events on connections. Veche holds the connections and starts this program
 * as a worker.
 *
 * ```php
 * $app = Veche\App::create();
 * $app->message(fn (Veche\Connection $conn, string $data) => $conn->send($data));
 * $app->run();
 * ```
 *
 * With `concurrency` above 1 a worker handles several events at once, each in a Fiber: `Veche\sleep` and calls of
 * {@see client()} let other handlers run. Events of one connection are handled one after the other.
 */
final class App
{
    /** @var (Closure(self): void)|null If set, {@see run()} passes the application to this function. */
    private static ?Closure $taker = null;

    /** @var array<string, Closure> */
    private array $handlers = [];
    private ?ClientInterface $client = null;
    /** @var array{string, string|null}|null Address and key of the HTTP API; null in a worker, which uses its socket. */
    private ?array $api = null;
    /**
     * @var array<string, mixed>|null Null in a worker, which gets its options in Veche's welcome frame.
     */
    private ?array $options = null;

    private function __construct(private readonly int $concurrency)
    {
    }

    /**
     * Returns an application without handlers.
     *
     * @param int $concurrency Events that a worker handles at once.
     * @throws CallerException
     */
    public static function create(int $concurrency = 1): self
    {
        Runner::watchEnd();
        return $concurrency >= 1 ? new self($concurrency) : throw new CallerException('concurrency must be at least 1');
    }

    /**
     * Registers a handler that runs before the first event.
     *
     * @param callable(App): void $handler
     */
    public function start(callable $handler): self
    {
        return $this->on('start', function (Handling $handling) use ($handler): array {
            $handler($this);
            return [];
        });
    }

    /**
     * Registers a handler that runs before the worker ends.
     *
     * @param callable(App): void $handler
     */
    public function stop(callable $handler): self
    {
        return $this->on('stop', function (Handling $handling) use ($handler): array {
            $handler($this);
            return [];
        });
    }

    /**
     * Registers the handler of handshakes. Returning nothing accepts the client; false, or a {@see Response}, refuses
     * it.
     *
     * ```php
     * $app->open(function (Veche\Connection $conn) {
     *     $conn->identify($conn->request->query('user') ?? 'guest');
     *     $conn->subscribe('room:' . $conn->request->parameter('room'));
     * });
     * ```
     *
     * @param callable(Connection): (Response|bool|null|void) $handler
     */
    public function open(callable $handler): self
    {
        return $this->on('open', function (Handling $handling) use ($handler): array {
            $head = $handling->frame->head;
            $request = Request::from($head['request'], user: $head['user'] ?? null);
            $connection = self::own($handling, $request);
            $result = $handler($connection);
            $refusal = $result === false ? new Response(403) : $result;
            if ($refusal instanceof Response) {
                return ['reply' => self::responded($refusal, $handling)];
            }
            $reply = $connection->reply();
            return $reply === [] ? [] : ['reply' => $reply];
        });
    }

    /**
     * Registers the handler of messages.
     *
     * @param callable(Connection, string, bool): mixed $handler Gets the connection, the message, and whether it is
     *     binary. The result is ignored.
     */
    public function message(callable $handler): self
    {
        return $this->on('message', function (Handling $handling) use ($handler): void {
            $frame = $handling->frame;
            $head = $frame->head;
            $part = $head['data'] ?? 0;
            $isWhole = $part === 0 && !isset($head['parts']);
            $data = $isWhole ? $frame->payload : (string) $frame->part($part);
            $handler(self::own($handling), $data, ($head['data_kind'] ?? 'text') === 'binary');
        });
    }

    /**
     * Registers the handler of closed connections.
     *
     * @param callable(Connection, int, string): mixed $handler Gets the connection, the close code and the reason.
     */
    public function close(callable $handler): self
    {
        return $this->on('close', function (Handling $handling) use ($handler): void {
            $head = $handling->frame->head;
            $handler(self::own($handling), $head['code'] ?? 1005, $head['reason'] ?? '');
        });
    }

    /**
     * Registers the handler of HTTP requests, which returns a {@see Response}, or a string that is sent as text.
     *
     * @param callable(Request): (Response|string) $handler
     */
    public function request(callable $handler): self
    {
        return $this->on('request', function (Handling $handling) use ($handler): array {
            $head = $handling->frame->head;
            $body = (string) $handling->frame->part($head['data'] ?? 0);
            $result = $handler(Request::from($head['request'], $body, $head['user'] ?? null));
            $response = is_string($result)
                ? new Response(200, $result, ['Content-Type' => 'text/plain; charset=utf-8'])
                : $result;
            if (!$response instanceof Response) {
                throw new CallerException('a request handler must return a Response or a string');
            }
            if ($response->stream !== null) {
                self::streamed($response, $handling);
                return [];
            }
            return ['reply' => self::responded($response, $handling)];
        });
    }

    /**
     * Registers the handler that accepts or refuses clients of Centrifugo's protocol that connect without a token.
     *
     * @param callable(Event): (Decision|null|void) $handler Returning nothing accepts the client.
     */
    public function connect(callable $handler): self
    {
        return $this->hook('connect', $handler);
    }

    /**
     * Registers the handler that prolongs or ends connections when they expire.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function refresh(callable $handler): self
    {
        return $this->hook('refresh', $handler);
    }

    /**
     * Registers the handler that grants or refuses subscriptions.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function subscribe(callable $handler): self
    {
        return $this->hook('subscribe', $handler);
    }

    /**
     * Registers the handler that prolongs or ends subscriptions when they expire.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function subRefresh(callable $handler): self
    {
        return $this->hook('sub_refresh', $handler);
    }

    /**
     * Registers the handler that grants, changes or refuses publications of clients.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function publish(callable $handler): self
    {
        return $this->hook('publish', $handler);
    }

    /**
     * Registers the handler of clients' RPC calls. It returns the result of a call as the data of a {@see Grant}.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function rpc(callable $handler): self
    {
        return $this->hook('rpc', $handler);
    }

    /**
     * Registers the handler of clients' messages that expect no answer.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function clientMessage(callable $handler): self
    {
        return $this->hook('client_message', $handler);
    }

    /**
     * Registers the handler of clients of Centrifugo's protocol that have disconnected.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function disconnect(callable $handler): self
    {
        return $this->hook('disconnect', $handler);
    }

    /**
     * Returns a client for calls of the API in handlers, such as pushes and presence. In a worker the client needs no
     * key; under php-fpm it uses the address and the key in the application's configuration.
     *
     * ```php
     * $app->message(fn (Veche\Connection $conn, string $data) => $app->client()->publish('room:1', $data));
     * ```
     */
    public function client(): ClientInterface
    {
        return $this->client ??= $this->api === null ? new WorkerClient() : new Client(...$this->api);
    }

    /**
     * Makes {@see client()} return another client, such as a {@see Testing\FakeClient}.
     */
    public function useClient(ClientInterface $client): void
    {
        $this->client = $client;
    }

    /**
     * Returns a connection of this server by its id. Messages to a connection that has ended are dropped.
     *
     * ```php
     * $app->connection($id)->send('you are next');
     * ```
     */
    public function connection(string $id): Connection
    {
        return new Connection(Engine::current()->effects(), $id, isOwn: false);
    }

    /**
     * Returns ids of a user's connections, for {@see connection()}.
     *
     * @param int $limit At most 10,000.
     * @return list<string>
     */
    public function connectionsOf(string $user, int $limit = 1000): array
    {
        $head = Engine::current()->call('connections', ['user' => $user, 'limit' => $limit])->head;
        return $head['connections'] ?? [];
    }

    /**
     * Returns a MySQL or MariaDB database over Veche's pool of connections. Available only in workers.
     *
     * @param string $name Name of the pool.
     */
    public function mysql(string $name): Mysql
    {
        return new Mysql($name);
    }

    /**
     * Returns a Redis database over Veche's connections. Available only in workers.
     *
     * @param string $name Name of the pool.
     */
    public function redis(string $name): Redis
    {
        return new Redis($name);
    }

    /**
     * Returns a client for HTTP requests to other servers. Available only in workers.
     */
    public function http(): Http
    {
        return new Http();
    }

    /**
     * Writes to the server's log. Standard output is written there too, without a level.
     *
     * @param string $level `debug`, `info`, `warn` or `error`.
     */
    public function log(string $text, string $level = 'info'): void
    {
        Engine::current()->effects()->add(['effect' => 'log', 'level' => $level, 'text' => $text]);
    }

    /**
     * Pushes to all connections of a user, without waiting for a result. Use {@see client()} to get one.
     */
    public function pushTo(string $user, mixed $data): void
    {
        $effects = Engine::current()->effects();
        $effects->add(['effect' => 'push', 'user' => $user] + $effects->data($data));
    }

    /**
     * Publishes to all subscribers of a channel, without waiting for a result. Use {@see client()} to get one.
     */
    public function publishTo(string $channel, mixed $data): void
    {
        $effects = Engine::current()->effects();
        $effects->add(['effect' => 'publish', 'channel' => $channel] + $effects->data($data));
    }

    /**
     * Returns the application's options from its configuration.
     *
     * ```php
     * $app->start(fn (Veche\App $app) => $db->connect($app->options()['dsn']));
     * ```
     *
     * @return array<string, mixed>
     */
    public function options(): array
    {
        return $this->options ?? Engine::current()->welcome()['options'] ?? [];
    }

    /**
     * Handles events: as a worker until Veche stops it; under php-fpm only the event of the current request.
     *
     * Under php-fpm each event occupies one process while it is handled: `start` handlers run
     * before each event and `stop` handlers after it, and {@see client()} calls the API over HTTP.
     * As many events are handled at once as php-fpm has processes.
     *
     * @throws CallerException if the program was not started by Veche
     */
    public function run(): void
    {
        if (self::$taker !== null) {
            (self::$taker)($this);
            return;
        }
        if (RequestRunner::isMeant($_SERVER)) {
            $this->serve($_SERVER, (string) file_get_contents('php://input'));
            return;
        }
        $descriptor = getenv('VECHE_FD');
        if (!is_string($descriptor) || preg_match('/^\d{1,4}$/', $descriptor) !== 1) {
            throw new CallerException('only Veche can start this program: set it as the command of an [[app]]');
        }
        $stream = fopen("php://fd/$descriptor", 'r+');
        if ($stream === false) {
            throw new CallerException("descriptor $descriptor is not open");
        }
        (new Runner($stream, $this->engine()))->run();
    }

    /**
     * Handles one event outside of a worker: takes its frame, and returns the resulting frames up to the answer.
     *
     * Intended for transports that deliver each event in a separate request. Calls of {@see client()} then
     * need {@see useClient()}, and other calls fail.
     *
     * @throws VecheException if `$frame` is not the frame of an event
     */
    public function handle(string $frame): string
    {
        return (new RequestRunner($this->engineOfOneEvent()))->handle($frame);
    }

    /**
     * Makes {@see run()} pass applications to a function instead of running them; null restores the
     * default.
     *
     * @internal
     * @param (Closure(self): void)|null $taker
     */
    public static function handOver(?Closure $taker): void
    {
        self::$taker = $taker;
    }

    /**
     * Returns the application as a state machine, which gets received bytes and returns the bytes to send.
     *
     * @internal
     */
    public function engine(): Engine
    {
        return new Engine(
            array_keys($this->handlers),
            $this->concurrency,
            fn (Handling $handling): array => $this->handlers[$handling->event]($handling) ?? [],
        );
    }

    /**
     * @param array<string, mixed> $server
     */
    private function serve(array $server, string $body): void
    {
        $options = json_decode((string) ($server['VECHE_OPTIONS'] ?? '{}'), true);
        $this->options = is_array($options) ? $options : [];
        if (isset($server['VECHE_API_URL'])) {
            $this->api = [$server['VECHE_API_URL'], $server['VECHE_API_KEY'] ?? null];
        }
        (new RequestRunner($this->engineOfOneEvent()))->run($server, $body);
    }

    /**
     * Returns a state machine for a single event. It sends no hello, so it accepts any event.
     */
    private function engineOfOneEvent(): Engine
    {
        return new Engine(null, 1, function (Handling $handling): array {
            if (isset($this->handlers['start'])) {
                $this->handlers['start']($handling);
            }
            $members = isset($this->handlers[$handling->event])
                ? $this->handlers[$handling->event]($handling)
                : self::unhandled($handling->event);
            if (isset($this->handlers['stop'])) {
                $this->handlers['stop']($handling);
            }
            return $members ?? [];
        }, canCall: false);
    }

    /**
     * @return array<string, mixed>
     */
    private static function unhandled(string $event): array
    {
        return match ($event) {
            'open', 'message', 'close', 'client_message', 'disconnect' => [],
            'request' => ['reply' => ['status' => 404]],
            default => throw new CallerException("there is no handler of \"$event\""),
        };
    }

    private function on(string $event, Closure $handler): self
    {
        if (isset($this->handlers[$event])) {
            throw new CallerException("the event \"$event\" already has a handler");
        }
        $this->handlers[$event] = $handler;
        return $this;
    }

    private function hook(string $event, callable $handler): self
    {
        return $this->on($event, static function (Handling $handling) use ($event, $handler): array {
            $decision = $handler(Event::from($handling->frame));
            $isAnswered = !in_array($event, ['client_message', 'disconnect'], true);
            if ($decision === null) {
                return $isAnswered ? ['reply' => (new Grant())->reply($handling)] : [];
            }
            if (!$decision instanceof Decision) {
                throw new CallerException('a command handler must return a Grant, a Refusal or a Disconnection');
            }
            return ['reply' => $decision->reply($handling)];
        });
    }

    private static function own(Handling $handling, ?Request $request = null): Connection
    {
        $head = $handling->frame->head;
        return new Connection(
            $handling,
            $head['connection'],
            $head['user'] ?? null,
            $head['attributes'] ?? [],
            $request,
        );
    }

    private static function streamed(Response $response, Handling $handling): void
    {
        $begin = ['effect' => 'begin', 'status' => $response->status];
        $headers = $response->headerList();
        $handling->add($begin + ($headers === [] ? [] : ['headers' => $headers]));
        try {
            foreach ($response->stream ?? [] as $part) {
                if ($part === '') {
                    continue;
                }
                if (Engine::current()->canCall) {
                    Engine::current()->call('part', [], $part);
                } else {
                    $handling->add(['effect' => 'part', 'data' => $handling->keep($part)]);
                }
            }
        } catch (Throwable $error) {
            // The parts already sent can't be withdrawn, so the response is cut off, which the client notices.
            $handling->add(['effect' => 'end', 'complete' => false]);
            $handling->add(['effect' => 'log', 'level' => 'error', 'text' => Engine::described($error)]);
            return;
        }
        $handling->add(['effect' => 'end']);
    }

    /**
     * @return array<string, mixed>
     */
    private static function responded(Response $response, Handling $handling): array
    {
        $headers = $response->headerList();
        return ['status' => $response->status]
            + ($headers === [] ? [] : ['headers' => $headers])
            + ($response->file === null ? [] : ['file' => $response->file])
            + ($response->body === '' ? [] : ['body' => $handling->keep($response->body)]);
    }
}

namespace Veche;

/**
 * Bytes that clients receive as a binary message.
 *
 * ```php
 * $veche->push('ann', new Veche\Binary(file_get_contents('picture.png')));
 * ```
 */
final class Binary
{
    public function __construct(public readonly string $bytes)
    {
    }
}

namespace Veche;

use Psr\Log\LoggerInterface;
use Veche\Exception\AuthenticationException;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\RateLimitException;
use Veche\Exception\ServerException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Http\CurlTransport;
use Veche\Http\Response;
use Veche\Http\StreamTransport;
use Veche\Http\Transport;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Result\Fields;

/**
 * Calls Veche's API over HTTP, on a connection that is kept between calls.
 *
 * ```php
 * $veche = new Veche\Client('http://127.0.0.1:8081', key: 'demo');
 * $handed = $veche->push('tester01', 'hello')->handed;
 * ```
 *
 * A failed call is repeated only if that is safe: nothing was sent, or the server reported that
 * nothing was done (it is stopping, or short of memory), or a repetition changes nothing, as with
 * `history`. Publications with an idempotency key can be repeated too; `generateKeys` gives each
 * publication its own key.
 */
final class Client extends AbstractClient
{
    private const FIRST_PAUSE_S = 0.05;

    private readonly Transport $transport;
    private readonly string $base;

    /**
     * @param string $url Address of the internal listener; a path `/api` behind it is accepted.
     * @param string|null $key One of the keys under `[api]`.
     * @param float $timeout Seconds for one call with its repetitions.
     * @param float $connectTimeout Seconds for opening a connection.
     * @param int $retries Maximum number of repetitions of a call.
     * @param bool $generateKeys Give publications an idempotency key, so that they can be repeated.
     * @param string|null $caFile Certificates to trust for https instead of the system's.
     * @param LoggerInterface|null $logger Receives a warning for each repetition.
     * @param Transport|null $transport By default {@see CurlTransport} where ext-curl is loaded, else
     *     {@see StreamTransport}.
     * @throws CallerException
     */
    public function __construct(
        string $url,
        private readonly ?string $key = null,
        private readonly float $timeout = 5.0,
        float $connectTimeout = 2.0,
        private readonly int $retries = 2,
        private readonly bool $generateKeys = false,
        ?string $caFile = null,
        private readonly ?LoggerInterface $logger = null,
        ?Transport $transport = null,
    ) {
        $address = Address::parse($url, ['http', 'https']);
        if ($key !== null && preg_match('/^[\x21-\x7e]+$/', $key) !== 1) {
            throw new CallerException('an API key must consist of printable ASCII characters without spaces');
        }
        if ($timeout <= 0 || $connectTimeout <= 0 || $retries < 0) {
            throw new CallerException('timeouts must be positive, and retries must be at least 0');
        }
        $this->base = preg_replace('#(?:/api)?/*$#', '', $address->target) . '/api/';
        $this->transport = $transport ?? (extension_loaded('curl')
            ? new CurlTransport($url, $connectTimeout, $caFile)
            : new StreamTransport($url, $connectTimeout, $caFile));
    }

    public function run(Command $command): mixed
    {
        if ($this->generateKeys && $command->publishes()) {
            $command = $command->withIdempotencyKey(bin2hex(random_bytes(16)));
        }
        $body = $command->body();
        $deadline = Deadline::in($this->timeout);
        for ($attempt = 1;; $attempt++) {
            try {
                return $this->attempt($command, $body, $deadline);
            } catch (VecheException $error) {
                $pause = self::pause($error, $command, $attempt);
                if ($attempt > $this->retries || $pause === null || $pause >= $deadline->remaining()) {
                    throw $error;
                }
                $this->logger?->warning('Veche: {method} is repeated: {error}', [
                    'method' => $command->method,
                    'error' => $error->getMessage(),
                    'exception' => $error,
                ]);
                usleep((int) ($pause * 1e6));
            }
        }
    }

    private function attempt(Command $command, string $body, Deadline $deadline): mixed
    {
        $headers = ['Content-Type' => 'application/json', 'User-Agent' => 'veche-php'];
        if ($this->key !== null) {
            $headers['X-API-Key'] = $this->key;
        }
        $path = $this->base . $command->method;
        $response = $this->transport->post($path, $headers, $body, max(0.001, $deadline->remaining()));
        $answer = Fields::decode($response->body);
        if ($answer?->has('error')) {
            $error = $answer->object('error');
            throw self::error($response, $error->int('code'), $error->string('message'), $command);
        }
        if ($response->status !== 200 || $answer === null) {
            throw self::error($response, 0, "unexpected answer with status $response->status", $command);
        }
        return $command->result($command->method === 'batch' ? $answer : $answer->object('result'));
    }

    /**
     * Returns the seconds to wait before the call is repeated; null if it must not be repeated.
     */
    private static function pause(VecheException $error, Command $command, int $attempt): ?float
    {
        $isRefused = $error instanceof UnavailableException || $error instanceof RateLimitException;
        $isTransient = $isRefused || $error instanceof NetworkException;
        if (!$isTransient || ($error->mayHaveRun && !$command->isRepeatable)) {
            return null;
        }
        $asked = $isRefused ? $error->retryAfter : null;
        // Pauses are random, so that clients that failed at the same time do not retry at the same time.
        return $asked ?? self::FIRST_PAUSE_S * 2 ** ($attempt - 1) * (0.5 + mt_rand() / mt_getrandmax());
    }

    private static function error(Response $response, int $code, string $message, Command $command): VecheException
    {
        $status = $response->status;
        $shown = $code > 0 ? $code : $status;
        $seconds = $response->headers['retry-after'] ?? '';
        $retryAfter = preg_match('/^\d{1,6}$/', $seconds) === 1 ? (float) $seconds : null;
        return match (true) {
            $status === 401 => new AuthenticationException($message, $shown),
            $status === 429 => new RateLimitException($message, $shown, $retryAfter),
            $status === 503 => new UnavailableException($message, $shown, $retryAfter),
            $code > 0 => ErrorCode::exception($code, $message, $command->publishes()),
            $status === 404 => new CallerException("$message: is this the address of the internal listener?", $shown),
            $status >= 400 && $status < 500 => new CallerException($message, $shown),
            default => new ServerException($message, $shown, true),
        };
    }
}

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

namespace Veche;

use Veche\Exception\CallerException;
use Veche\Worker\Effects;
use Veche\Worker\Engine;

/**
 * A WebSocket connection, as a handler sees it. Veche holds the connection, and carries out calls of the methods
 * below when the handler returns or waits.
 */
final class Connection
{
    private ?string $protocol = null;
    private ?string $named = null;

    /**
     * @param string $id Id of the connection, which other handlers pass to {@see App::connection()}.
     * @param string|null $user The user, where the route or the `open` handler has named one.
     * @param array<string, bool|int|float|string> $attributes
     * @param Request|null $request The handshake, in an `open` handler.
     * @internal Handlers are given connections.
     */
    public function __construct(
        private Effects $effects,
        public readonly string $id,
        public readonly ?string $user = null,
        private array $attributes = [],
        public readonly ?Request $request = null,
        private bool $isOwn = true,
    ) {
    }

    /**
     * Sends a text message.
     */
    public function send(string $text): void
    {
        $this->message('', $text);
    }

    /**
     * Sends a binary message.
     */
    public function sendBinary(string $bytes): void
    {
        $this->message('"data_kind":"binary",', $bytes);
    }

    /**
     * Closes the connection.
     *
     * @param int $code 1000, or from 3000 to 4999.
     * @param string $reason At most 123 bytes.
     */
    public function close(int $code = 1000, string $reason = ''): void
    {
        $this->effect('close', ['code' => $code] + ($reason === '' ? [] : ['reason' => $reason]));
    }

    /**
     * Subscribes the connection to a channel.
     */
    public function subscribe(string $channel): void
    {
        $this->effect('subscribe', ['channel' => $channel]);
    }

    /**
     * Subscribes the connection to a channel, and returns when the subscription is in effect.
     *
     * ```php
     * $joined = $conn->join('orders', since: $conn->request->query('since'));
     * if ($joined->recovered !== true) {
     *     $conn->send(json_encode(['orders' => orders(), 'position' => $joined->position]));
     * }
     * ```
     *
     * @param string|null $since Position up to which the client knows the channel, as `EPOCH:OFFSET`.
     * @throws CallerException if Veche refuses
     */
    public function join(string $channel, ?string $since = null): Joined
    {
        $head = $this->call('subscribe', ['channel' => $channel, 'since' => $since]);
        return new Joined($head['position'] ?? null, $head['recovered'] ?? null);
    }

    /**
     * Replaces the token that opened the connection by another one.
     *
     * @return int|null Seconds until the token expires; null if it does not expire.
     * @throws CallerException if the token is not valid
     */
    public function renew(string $token): ?int
    {
        return $this->call('renew', ['token' => $token])['expires_in'] ?? null;
    }

    /**
     * Returns whether the connection is open.
     */
    public function isOpen(): bool
    {
        return $this->call('connection', [])['open'] ?? false;
    }

    /**
     * Unsubscribes the connection from a channel.
     */
    public function unsubscribe(string $channel): void
    {
        $this->effect('unsubscribe', ['channel' => $channel]);
    }

    /**
     * Returns an attribute of the connection.
     */
    public function get(string $name): bool|int|float|string|null
    {
        return $this->attributes[$name] ?? null;
    }

    /**
     * Sets an attribute of the connection; null removes it. Veche keeps attributes, so they outlive this process.
     *
     * ```php
     * $conn->set('visits', ($conn->get('visits') ?? 0) + 1);
     * ```
     */
    public function set(string $name, bool|int|float|string|null $value): void
    {
        if ($value === null) {
            unset($this->attributes[$name]);
        } else {
            $this->attributes[$name] = $value;
        }
        $this->effect('attributes', ['set' => (object) [$name => $value]]);
    }

    /**
     * Names the user of the connection. Only in an `open` handler.
     *
     * @throws CallerException
     */
    public function identify(string $user): void
    {
        $this->inOpen();
        $this->named = $user;
    }

    /**
     * Chooses one of the subprotocols that the client offers. Only in an `open` handler.
     *
     * @throws CallerException
     */
    public function chooseProtocol(string $protocol): void
    {
        $this->inOpen();
        $this->protocol = $protocol;
    }

    /**
     * Returns the reply to an open event.
     *
     * @internal
     * @return array<string, string>
     */
    public function reply(): array
    {
        $reply = ['user' => $this->named, 'protocol' => $this->protocol];
        return array_filter($reply, static fn (?string $one): bool => $one !== null);
    }

    private function inOpen(): void
    {
        if ($this->request === null) {
            throw new CallerException('this call is only possible in an open handler');
        }
    }

    /**
     * @param array<string, mixed> $head
     * @return array<string, mixed>
     */
    private function call(string $call, array $head): array
    {
        return Engine::current()->call($call, ['connection' => $this->isOwn ? null : $this->id] + $head)->head;
    }

    /**
     * @param array<string, mixed> $head
     */
    private function effect(string $effect, array $head): void
    {
        $whose = $this->isOwn ? ['effect' => $effect] : ['effect' => $effect, 'connection' => $this->id];
        $this->effects->add($whose + $head);
    }

    /**
     * Sends a message. This is the most frequent effect, so its JSON is written directly.
     */
    private function message(string $kind, string $data): void
    {
        $part = $this->effects->keep($data);
        if ($part === 0 && $kind === '' && $this->isOwn) {
            $this->effects->add('{"effect":"send","data":0}');
            return;
        }
        $whose = $this->isOwn ? '' : '"connection":' . Json::encode($this->id) . ',';
        $this->effects->add('{"effect":"send",' . $whose . $kind . '"data":' . $part . '}');
    }
}

namespace Veche;

use Veche\Exception\AuthenticationException;
use Veche\Exception\CallerException;
use Veche\Exception\RateLimitException;
use Veche\Exception\ServerException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;

/**
 * Error codes of Veche's API, as `getCode()` of an exception returns them.
 */
final class ErrorCode
{
    /** The server failed. */
    public const INTERNAL = 100;

    /** The API key is missing or wrong. */
    public const UNAUTHORIZED = 101;

    /** No `[[namespace]]` matches the channel, and `unknown_namespace` is `"error"`. */
    public const UNKNOWN_CHANNEL = 102;

    /** The server has no call with this name. */
    public const METHOD_NOT_FOUND = 104;

    /** The answer has too many elements, or a list on the server is full. */
    public const LIMIT_EXCEEDED = 106;

    /** An argument is invalid; the message names it. */
    public const BAD_REQUEST = 107;

    /** The channel has no history or no presence. */
    public const NOT_AVAILABLE = 108;

    /** The rate limit of the API key is exceeded. */
    public const TOO_MANY_REQUESTS = 111;

    /** The position belongs to another epoch of the channel. */
    public const UNRECOVERABLE_POSITION = 112;

    private function __construct()
    {
    }

    /**
     * Returns the exception for an error in an answer.
     *
     * @internal
     * @param bool $isPublication Error 106 of a publication means that the server is short of memory.
     */
    public static function exception(int $code, string $message, bool $isPublication): VecheException
    {
        return match (true) {
            $code === self::UNAUTHORIZED => new AuthenticationException($message, $code),
            $code === self::TOO_MANY_REQUESTS => new RateLimitException($message, $code),
            $code === self::LIMIT_EXCEEDED && $isPublication => new UnavailableException($message, $code),
            $code === self::INTERNAL => new ServerException($message, $code, true),
            default => new CallerException($message, $code),
        };
    }
}

namespace Veche\Exception;

use RuntimeException;
use Throwable;
use Veche\Fault;

/**
 * Base class of all exceptions that this package throws.
 *
 * `getCode()` is the error code of Veche's API or of MySQL, the HTTP status where there is no such code, or 0.
 */
abstract class VecheException extends RuntimeException
{
    /**
     * @param bool $mayHaveRun Whether the server may have executed the call, for example because the
     *     connection broke before the answer came. If false, nothing of the call was done.
     * @param string|null $codeName The server's error code if it is a name, such as `WRONGTYPE` of
     *     Redis.
     */
    public function __construct(
        string $message,
        int $code = 0,
        public readonly bool $mayHaveRun = false,
        ?Throwable $previous = null,
        public readonly ?string $codeName = null,
    ) {
        parent::__construct($message, $code, $previous);
    }

    /**
     * Returns which side has to change something.
     */
    abstract public function fault(): Fault;

    /**
     * Returns whether nothing of the call was done and the same call may succeed later, so that trying again is safe.
     */
    public function retryable(): bool
    {
        return false;
    }
}

namespace Veche\Exception;

use Veche\Fault;

/**
 * The call is wrong: an argument out of range, an unknown channel, a feature that the namespace does not have.
 *
 * Nothing was done. The code is one of {@see \Veche\ErrorCode}, or 0 if the call was refused before it was sent.
 */
class CallerException extends VecheException
{
    public function fault(): Fault
    {
        return Fault::Caller;
    }
}

namespace Veche\Exception;

/**
 * The API key is missing or wrong.
 */
class AuthenticationException extends CallerException
{
}

namespace Veche\Exception;

use Veche\Fault;

/**
 * A WebSocket connection has ended. `getCode()` is the close code, `reason` the text that the peer
 * sent with it.
 *
 * The code is 1006 where the connection ended without a Close frame, and 1005 where the frame had no code.
 */
class ClosedException extends VecheException
{
    public function __construct(int $code, public readonly string $reason = '')
    {
        $words = $reason === '' ? '' : ": $reason";
        parent::__construct("the WebSocket was closed with code $code$words", $code, true);
    }

    public function fault(): Fault
    {
        return match (true) {
            $this->code === 1006 => Fault::Network,
            in_array($this->code, [1000, 1001, 1005, 1011, 1012, 1013, 1014], true) => Fault::Server,
            default => Fault::Caller,
        };
    }
}

namespace Veche\Exception;

use Veche\Fault;

/**
 * The server could not be reached, or the connection broke.
 *
 * `mayHaveRun` is true if the server may have executed the call.
 */
class NetworkException extends VecheException
{
    public function fault(): Fault
    {
        return Fault::Network;
    }

    public function retryable(): bool
    {
        return !$this->mayHaveRun;
    }
}

namespace Veche\Exception;

use Veche\Fault;

/**
 * The server failed, or answered with something that this package does not understand.
 */
class ServerException extends VecheException
{
    public function fault(): Fault
    {
        return Fault::Server;
    }
}

namespace Veche\Exception;

/**
 * A WebSocket peer broke RFC 6455. The code is the close code that was sent to the peer.
 */
class ProtocolException extends ServerException
{
}

namespace Veche\Exception;

use Throwable;

/**
 * The key publishes more than `publish_rate` allows, or too many wrong keys have come from the caller's address.
 * Nothing was done.
 */
class RateLimitException extends CallerException
{
    /**
     * @param float|null $retryAfter Seconds after which the server accepts such calls again, if known.
     */
    public function __construct(
        string $message,
        int $code = 0,
        public readonly ?float $retryAfter = null,
        ?Throwable $previous = null,
    ) {
        parent::__construct($message, $code, false, $previous);
    }

    public function retryable(): bool
    {
        return true;
    }
}

namespace Veche\Exception;

/**
 * No response arrived within the time limit. `mayHaveRun` is true if the server may have executed the
 * call.
 */
class TimeoutException extends NetworkException
{
}

namespace Veche\Exception;

use Throwable;

/**
 * The server is starting, stopping, or short of memory, or a database refuses a call that may succeed later, such as
 * after a deadlock. Nothing was done, so the call can be made again.
 */
class UnavailableException extends ServerException
{
    /**
     * @param float|null $retryAfter Seconds after which to try again, if known.
     */
    public function __construct(
        string $message,
        int $code = 0,
        public readonly ?float $retryAfter = null,
        ?Throwable $previous = null,
        ?string $codeName = null,
    ) {
        parent::__construct($message, $code, false, $previous, $codeName);
    }

    public function retryable(): bool
    {
        return true;
    }
}

namespace Veche;

/**
 * Says which side has to change something before a failed call can succeed.
 *
 * ```php
 * try {
 *     $veche->push('ann', 'hello');
 * } catch (Veche\Exception\VecheException $error) {
 *     if ($error->fault() === Veche\Fault::Caller) {
 *         throw $error;                // a bug or a wrong key: trying again does not help
 *     }
 *     $queue->later('push', 'ann');    // the network or the server: try again later
 * }
 * ```
 */
enum Fault
{
    /** The call is wrong: an argument or the key is invalid, or the key makes too many calls. */
    case Caller;

    /** The connection to the server was refused, broke off, or was too slow. */
    case Network;

    /** The server failed, is stopping, or answered with something unexpected. */
    case Server;
}

namespace Veche\Hook;

/**
 * The client of Centrifugo's protocol that an event is about.
 */
final class Caller
{
    /**
     * @param string $id Id of the client.
     * @param string|null $user The user; null before it is known, and for anonymous clients.
     * @param string $transport Such as `websocket`.
     * @param string $protocol `json` or `protobuf`.
     * @param string $name Name that the client's SDK gave.
     * @param string $version Version that the client's SDK gave.
     * @param string $remote Address of the client.
     * @param list<array{string, string}> $headers Headers that the route passes on, with names in lower case.
     * @param mixed $meta Data of the application about the connection.
     */
    public function __construct(
        public readonly string $id,
        public readonly ?string $user,
        public readonly string $transport,
        public readonly string $protocol,
        public readonly string $name,
        public readonly string $version,
        public readonly string $remote,
        public readonly array $headers,
        public readonly mixed $meta,
    ) {
    }
}

namespace Veche\Hook;

use Veche\Worker\Effects;

/**
 * A handler's decision on a command: a {@see Grant}, a {@see Refusal}, or a {@see Disconnection}.
 */
interface Decision
{
    /**
     * Returns the reply to the server for this decision, and adds the reply's data to the effects.
     *
     * @internal
     * @return array<string, mixed>
     */
    public function reply(Effects $effects): array;
}

namespace Veche\Hook;

use Veche\Exception\CallerException;
use Veche\Worker\Effects;

/**
 * Answers a command by closing the connection of its client.
 *
 * ```php
 * $app->connect(fn (Veche\Hook\Event $event) => isBanned($event->client->remote)
 *     ? new Veche\Hook\Disconnection(4501, 'banned')
 *     : null);
 * ```
 */
final class Disconnection implements Decision
{
    /**
     * @param int $code From 3000 to 4999.
     * @throws CallerException
     */
    public function __construct(public readonly int $code, public readonly string $reason = '')
    {
        if ($code < 3000 || $code > 4999) {
            throw new CallerException('a close code must be between 3000 and 4999');
        }
    }

    public function reply(Effects $effects): array
    {
        return ['disconnect' => ['code' => $this->code, 'reason' => $this->reason]];
    }
}

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

namespace Veche\Hook;

use Veche\Exception\CallerException;
use Veche\Worker\Effects;

/**
 * Answers a command with an error. The connection stays.
 *
 * ```php
 * $app->subscribe(fn (Veche\Hook\Event $event) => new Veche\Hook\Refusal(403, 'members only'));
 * ```
 */
final class Refusal implements Decision
{
    /**
     * @param int $code From 1.
     * @param bool $isTemporary Whether the same command may succeed later.
     * @throws CallerException
     */
    public function __construct(
        public readonly int $code,
        public readonly string $message = '',
        public readonly bool $isTemporary = false,
    ) {
        if ($code < 1) {
            throw new CallerException('an error code must be at least 1');
        }
    }

    public function reply(Effects $effects): array
    {
        $error = ['code' => $this->code, 'message' => $this->message];
        return ['error' => $error + ($this->isTemporary ? ['temporary' => true] : [])];
    }
}

namespace Veche\Http;

use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;

/**
 * Makes HTTP requests to one server over a connection that is kept.
 *
 * An implementation of your own can route calls through the HTTP client of a framework.
 */
interface Transport
{
    /**
     * Makes one `POST` request. An implementation may repeat it only if no byte of it was sent before.
     *
     * @param string $path Such as `/api/push`.
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole request.
     * @throws NetworkException
     * @throws ServerException if the response is not HTTP
     */
    public function post(string $path, array $headers, string $body, float $timeout): Response;
}

namespace Veche\Http;

use CurlHandle;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Net\Address;

/**
 * HTTP by ext-curl, with one handle whose connection is kept.
 */
final class CurlTransport implements Transport
{
    private readonly string $base;
    private ?CurlHandle $handle = null;

    /**
     * @param string $url Such as `http://127.0.0.1:8081`; a path in it is ignored.
     * @param float $connectTimeout Seconds.
     * @param string|null $caFile Certificates to trust instead of the system's.
     */
    public function __construct(
        string $url,
        private readonly float $connectTimeout = 2.0,
        private readonly ?string $caFile = null,
        private readonly int $bodyBytesMax = 64 << 20,
    ) {
        if (!extension_loaded('curl')) {
            throw new CallerException('ext-curl is not loaded; use StreamTransport');
        }
        $address = Address::parse($url, ['http', 'https']);
        $this->base = "$address->scheme://$address";
    }

    public function post(string $path, array $headers, string $body, float $timeout): Response
    {
        $handle = $this->handle ??= curl_init();
        $answered = '';
        $received = [];
        $isWhole = false;
        $sent = 0;
        curl_reset($handle);
        curl_setopt_array($handle, [
            CURLOPT_URL => $this->base . $path,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_PROXY => '',
            CURLOPT_CONNECTTIMEOUT_MS => self::milliseconds(min($this->connectTimeout, $timeout)),
            CURLOPT_TIMEOUT_MS => self::milliseconds($timeout),
            CURLOPT_NOSIGNAL => true,
            CURLOPT_HTTPHEADER => self::lines($headers + ['Expect' => '']),
            // If a reused connection breaks, curl repeats a request whose body is a string. A body
            // from a callback can't be rewound, which prevents the repetition.
            CURLOPT_UPLOAD => true,
            CURLOPT_CUSTOMREQUEST => 'POST',
            CURLOPT_INFILESIZE => strlen($body),
            CURLOPT_READFUNCTION => static function ($handle, $file, int $length) use ($body, &$sent): string {
                $part = substr($body, $sent, $length);
                $sent += strlen($part);
                return $part;
            },
            CURLOPT_HEADERFUNCTION => static function ($handle, string $line) use (&$received, &$isWhole): int {
                $isWhole = $isWhole || trim($line) === '';
                [$name, $value] = explode(':', $line, 2) + [1 => null];
                if ($value !== null) {
                    $received[strtolower($name)] = trim($value);
                }
                return strlen($line);
            },
            CURLOPT_WRITEFUNCTION => function ($handle, string $part) use (&$answered): int {
                $answered .= $part;
                return strlen($answered) > $this->bodyBytesMax ? -1 : strlen($part);
            },
        ]);
        if ($this->caFile !== null) {
            curl_setopt($handle, CURLOPT_CAINFO, $this->caFile);
        }
        if (curl_exec($handle) === false) {
            throw $this->failure($handle, strlen($answered) > $this->bodyBytesMax);
        }
        if (!$isWhole) {
            // curl treats a truncated response head as complete.
            throw new NetworkException("$this->base: the connection ended before the end of the answer", 0, true);
        }
        return new Response(curl_getinfo($handle, CURLINFO_RESPONSE_CODE), $received, $answered);
    }

    /**
     * Closes the kept connection. The next request opens another one.
     */
    public function close(): void
    {
        $this->handle = null;
    }

    private function failure(CurlHandle $handle, bool $isTooLong): NetworkException|ServerException
    {
        $number = curl_errno($handle);
        $why = curl_error($handle);
        $wasSent = curl_getinfo($handle, CURLINFO_REQUEST_SIZE) > 0;
        $this->close();
        return match (true) {
            $isTooLong => new ServerException("the answer is longer than $this->bodyBytesMax bytes", 0, true),
            $number === CURLE_OPERATION_TIMEOUTED => new TimeoutException("$this->base: $why", 0, $wasSent),
            in_array($number, [CURLE_UNSUPPORTED_PROTOCOL, CURLE_WEIRD_SERVER_REPLY], true)
                => new ServerException("the answer is not HTTP: $why", 0, true),
            default => new NetworkException("$this->base: $why", 0, $wasSent),
        };
    }

    private static function milliseconds(float $seconds): int
    {
        return max(1, (int) ceil($seconds * 1000));
    }

    /**
     * @param array<string, string> $headers
     * @return list<string>
     */
    private static function lines(array $headers): array
    {
        return array_map(
            static fn (string $name, string $value): string => "$name: $value",
            array_keys($headers),
            $headers,
        );
    }
}

namespace Veche\Http;

/**
 * Status, headers and body of an answer.
 */
final class Response
{
    /**
     * @param array<string, string> $headers By name in lower case.
     */
    public function __construct(
        public readonly int $status,
        public readonly array $headers,
        public readonly string $body,
    ) {
    }
}

namespace Veche\Http;

use Closure;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;

/**
 * Reads one HTTP/1.x response.
 *
 * @internal
 */
final class ResponseReader
{
    private const HEAD_BYTES_MAX = 65536;
    private const INFORMATIONAL_MAX = 10;

    private string $buffer = '';
    private bool $isAtEnd = false;

    /**
     * @param Closure(): string $more Returns further bytes; an empty string at the end of the stream.
     */
    public function __construct(private readonly Closure $more, private readonly int $bodyBytesMax)
    {
    }

    /**
     * Returns the response, and whether the connection can be used for another request.
     *
     * @return array{Response, bool}
     * @throws NetworkException
     * @throws ServerException
     */
    public function read(): array
    {
        // Informational responses precede the final one.
        for ($i = 0; $i === 0 || ($status >= 100 && $status < 200); $i++) {
            if ($i > self::INFORMATIONAL_MAX) {
                throw self::bad('too many informational responses');
            }
            [$version, $status, $headers] = $this->head();
        }
        $isKept = $version === '1.1' && strtolower($headers['connection'] ?? '') !== 'close';
        if (in_array($status, [204, 304], true)) {
            return [new Response($status, $headers, ''), $isKept];
        }
        if (strtolower($headers['transfer-encoding'] ?? '') === 'chunked') {
            return [new Response($status, $headers, $this->chunks()), $isKept];
        }
        if (isset($headers['content-length'])) {
            $length = $headers['content-length'];
            if (preg_match('/^\d{1,15}$/', $length) !== 1) {
                throw self::bad('Content-Length is not a number');
            }
            return [new Response($status, $headers, $this->take((int) $length)), $isKept];
        }
        return [new Response($status, $headers, $this->rest()), false];
    }

    /**
     * @return array{string, int, array<string, string>}
     */
    private function head(): array
    {
        while (($end = strpos($this->buffer, "\r\n\r\n")) === false) {
            if (strlen($this->buffer) > self::HEAD_BYTES_MAX) {
                throw self::bad('the head is too long');
            }
            $this->fill();
        }
        $lines = explode("\r\n", substr($this->buffer, 0, $end));
        $this->buffer = substr($this->buffer, $end + 4);
        if (preg_match('#^HTTP/(1\.[01]) (\d{3})(?: |$)#', $lines[0], $parts) !== 1) {
            throw self::bad('no status line');
        }
        $headers = [];
        foreach (array_slice($lines, 1) as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => null];
            if ($value === null) {
                throw self::bad('a header without a colon');
            }
            $headers[strtolower($name)] = trim($value);
        }
        return [$parts[1], (int) $parts[2], $headers];
    }

    private function chunks(): string
    {
        $body = '';
        while (true) {
            $line = $this->line();
            if (preg_match('/^([0-9a-fA-F]{1,8})(?:;.*)?$/', $line, $parts) !== 1) {
                throw self::bad('a chunk without a length');
            }
            $length = (int) hexdec($parts[1]);
            if ($length === 0) {
                while ($this->line() !== '') {
                    continue;
                }
                return $body;
            }
            $this->limit(strlen($body) + $length);
            $body .= $this->take($length);
            if ($this->take(2) !== "\r\n") {
                throw self::bad('a chunk without an end');
            }
        }
    }

    private function line(): string
    {
        while (($end = strpos($this->buffer, "\r\n")) === false) {
            if (strlen($this->buffer) > self::HEAD_BYTES_MAX) {
                throw self::bad('a line is too long');
            }
            $this->fill();
        }
        $line = substr($this->buffer, 0, $end);
        $this->buffer = substr($this->buffer, $end + 2);
        return $line;
    }

    private function take(int $length): string
    {
        $this->limit($length);
        while (strlen($this->buffer) < $length) {
            $this->fill();
        }
        $taken = substr($this->buffer, 0, $length);
        $this->buffer = substr($this->buffer, $length);
        return $taken;
    }

    private function rest(): string
    {
        while (!$this->isAtEnd) {
            $more = ($this->more)();
            $this->isAtEnd = $more === '';
            $this->buffer .= $more;
            $this->limit(strlen($this->buffer));
        }
        return $this->buffer;
    }

    private function fill(): void
    {
        $more = ($this->more)();
        if ($more === '') {
            throw new NetworkException('the connection ended before the end of the answer', 0, true);
        }
        $this->buffer .= $more;
    }

    private function limit(int $bytes): void
    {
        if ($bytes > $this->bodyBytesMax) {
            throw new ServerException("the answer is longer than $this->bodyBytesMax bytes", 0, true);
        }
    }

    private static function bad(string $why): ServerException
    {
        return new ServerException("the answer is not HTTP: $why", 0, true);
    }
}

namespace Veche\Http;

use Veche\Exception\NetworkException;
use Veche\Exception\TimeoutException;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Net\Socket;

/**
 * HTTP over PHP's streams, for installations without ext-curl.
 */
final class StreamTransport implements Transport
{
    private readonly Address $address;
    private ?Socket $socket = null;

    /**
     * @param string $url Such as `http://127.0.0.1:8081`; a path in it is ignored.
     * @param float $connectTimeout Seconds.
     * @param string|null $caFile Certificates to trust instead of the system's.
     */
    public function __construct(
        string $url,
        private readonly float $connectTimeout = 2.0,
        private readonly ?string $caFile = null,
        private readonly int $bodyBytesMax = 64 << 20,
    ) {
        $this->address = Address::parse($url, ['http', 'https']);
    }

    public function post(string $path, array $headers, string $body, float $timeout): Response
    {
        $deadline = Deadline::in($timeout);
        $head = "POST $path HTTP/1.1\r\nHost: {$this->address->authority()}\r\n";
        foreach ($headers + ['Content-Length' => (string) strlen($body)] as $name => $value) {
            $head .= "$name: $value\r\n";
        }
        $request = "$head\r\n$body";
        try {
            $this->send($request, $deadline);
            $more = fn (): string => $this->socket?->read($deadline)
                ?? throw new TimeoutException("no answer from $this->address within $timeout s", 0, true);
            [$response, $isKept] = (new ResponseReader($more, $this->bodyBytesMax))->read();
        } catch (\Throwable $error) {
            $this->close();
            throw $error;
        }
        if (!$isKept) {
            $this->close();
        }
        return $response;
    }

    /**
     * Closes the kept connection. The next request opens another one.
     */
    public function close(): void
    {
        $this->socket?->close();
        $this->socket = null;
    }

    private function send(string $request, Deadline $deadline): void
    {
        // No server sends before a request, so any input means that the server has closed the kept
        // connection.
        if ($this->socket !== null && $this->socket->poll() !== null) {
            $this->close();
        }
        if ($this->socket !== null) {
            try {
                $this->socket->write($request, $deadline);
                return;
            } catch (TimeoutException $error) {
                throw $error;
            } catch (NetworkException $error) {
                if ($error->mayHaveRun) {
                    throw $error;
                }
                $this->close();
            }
        }
        $timeout = min($this->connectTimeout, $deadline->remaining());
        $this->socket = Socket::connect($this->address, $timeout, $this->caFile);
        $this->socket->write($request, $deadline);
    }
}

namespace Veche;

/**
 * Outcome of {@see Connection::join()}.
 */
final class Joined
{
    /**
     * @param string|null $position Position in the channel at which the subscription begins, as
     *     `EPOCH:OFFSET`; null if the channel keeps no history.
     * @param bool|null $recovered Whether all publications after `since` are being sent; null
     *     without `since`.
     */
    public function __construct(public readonly ?string $position, public readonly ?bool $recovered)
    {
    }
}

namespace Veche;

use JsonException;
use Veche\Exception\CallerException;

/**
 * A JSON text that is sent as it is, without being decoded and encoded again.
 *
 * ```php
 * $veche->publish('prices', new Veche\Json('{"EUR":1.10}'));    // the client gets 1.10, not 1.1
 * ```
 */
final class Json
{
    private const FLAGS = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE
        | JSON_PRESERVE_ZERO_FRACTION;

    /** The text on one line. */
    public readonly string $text;

    /**
     * @throws CallerException if the text is not valid JSON
     */
    public function __construct(string $text)
    {
        self::decode($text);
        // A raw line end in JSON is white space, since strings contain only escaped ones, so a space can replace it.
        $this->text = strtr(trim($text), "\r\n", '  ');
    }

    /**
     * Encodes a value.
     *
     * @internal
     * @throws CallerException if JSON can't express it
     */
    public static function encode(mixed $value): string
    {
        if ($value instanceof self) {
            return $value->text;
        }
        try {
            return json_encode($value, self::FLAGS);
        } catch (JsonException $error) {
            $hint = $error->getCode() === JSON_ERROR_UTF8 ? '; wrap bytes in Veche\Binary' : '';
            $why = "the value can't be encoded as JSON: {$error->getMessage()}$hint";
            throw new CallerException($why, 0, false, $error);
        }
    }

    private static function decode(string $text): void
    {
        try {
            json_decode($text, false, 512, JSON_THROW_ON_ERROR);
        } catch (JsonException $error) {
            throw new CallerException("bad JSON: {$error->getMessage()}", 0, false, $error);
        }
    }
}

namespace Veche;

use Psr\Log\LoggerInterface;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Exception\VecheException;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Net\Socket;
use Veche\Result\Fields;
use Veche\Result\Published;

/**
 * Pushes over the line port (`role = "push"`): one line of JSON over a TCP connection that is kept.
 *
 * It needs no key and costs less than HTTP, and it can only push and publish.
 *
 * ```php
 * $veche = new Veche\LineClient('127.0.0.1:1234');
 * $handed = $veche->push('tester01', 'hello')->handed;
 * ```
 *
 * With `acknowledge: false` nothing waits for an answer: a push is one write. A refusal is then thrown by a later push,
 * or by {@see flush()}.
 */
final class LineClient implements Publisher
{
    private const LINE_BYTES_MAX = 1 << 20;

    private readonly Address $address;
    private ?Socket $socket = null;
    private string $buffer = '';
    private int $lastId = 0;

    /**
     * @param string $address Of the push listener, such as `127.0.0.1:1234`, or `tls://push.example.org:1234`.
     * @param bool $acknowledge Wait for the server's answer to each push.
     * @param float $timeout Seconds for one push.
     * @param float $connectTimeout Seconds for opening the connection.
     * @param LoggerInterface|null $logger Receives refusals if `acknowledge` is false; without a
     *     logger the next call throws them.
     * @param string|null $caFile Certificates to trust for TLS instead of the system's.
     * @throws CallerException
     */
    public function __construct(
        string $address,
        private readonly bool $acknowledge = true,
        private readonly float $timeout = 5.0,
        private readonly float $connectTimeout = 2.0,
        private readonly ?LoggerInterface $logger = null,
        private readonly ?string $caFile = null,
    ) {
        $this->address = Address::parse(str_contains($address, '://') ? $address : "tcp://$address", ['tcp', 'tls']);
    }

    public function push(string|array $users, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::push($users, $data, $options));
    }

    public function publish(string $channel, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::publish($channel, $data, $options));
    }

    /**
     * Publishes one message to several channels. `handed` is the sum over all of them, or null if the number is unknown
     * for one of them, as with the engine on Redis; `nodes` is null for several channels.
     *
     * @param list<string> $channels Up to 1,024.
     * @throws VecheException
     */
    public function broadcast(array $channels, mixed $data, ?PublishOptions $options = null): Published
    {
        return $this->run(Command::broadcast($channels, $data, $options));
    }

    /**
     * Waits until the server has carried out all lines so far, and throws the first refusal.
     *
     * Call it after the last push if `acknowledge` is false.
     *
     * @throws VecheException
     */
    public function flush(): void
    {
        if ($this->socket !== null) {
            // Lines are answered in order, so the answer to this line means that all earlier ones
            // were handled.
            $this->ask(Command::push('veche-php-flush', '', new PublishOptions(skipHistory: true)));
        }
    }

    /**
     * Closes the connection. The next push opens another one.
     */
    public function close(): void
    {
        $this->socket?->close();
        $this->socket = null;
        $this->buffer = '';
    }

    private function run(Command $command): Published
    {
        if ($this->acknowledge) {
            return $this->ask($command);
        }
        $this->send($command->body() . "\n", Deadline::in($this->timeout));
        return new Published(null);
    }

    private function ask(Command $command): Published
    {
        $deadline = Deadline::in($this->timeout);
        $id = ++$this->lastId;
        $this->send($command->body(['id' => $id]) . "\n", $deadline);
        try {
            // Skips the response to an earlier malformed line, which has no id, and the late response to a line that
            // timed out.
            while (($answer = self::decode($this->line($deadline)))->value('id') !== $id) {
                $this->refused($answer);
                if ($deadline->isOver()) {
                    throw $this->late();
                }
            }
        } catch (NetworkException | ServerException $error) {
            $this->close();
            throw $error;
        }
        if ($answer->has('error')) {
            throw self::error($answer);
        }
        return Published::from($answer->object('result'));
    }

    private function send(string $line, Deadline $deadline): void
    {
        if (strlen($line) > self::LINE_BYTES_MAX) {
            throw new CallerException('the line is longer than the 1 MiB that a push listener takes');
        }
        $this->drain();
        try {
            $this->open($deadline)->write($line, $deadline);
        } catch (NetworkException $error) {
            // The server may have received a part of the line. It would take further bytes for the rest, so the
            // connection is closed; the server then ignores the part.
            $this->close();
            throw $error;
        }
    }

    private function open(Deadline $deadline): Socket
    {
        $timeout = max(0.001, min($this->connectTimeout, $deadline->remaining()));
        return $this->socket ??= Socket::connect($this->address, $timeout, $this->caFile);
    }

    /**
     * Reads pending input: errors of earlier lines, or the end of the connection after a restart of the server.
     */
    private function drain(): void
    {
        $bytes = $this->socket?->poll();
        if ($bytes === null) {
            return;
        }
        $this->buffer .= $bytes;
        $lines = explode("\n", $this->buffer);
        $this->buffer = (string) array_pop($lines);
        if ($bytes === '') {
            $this->close();
        }
        foreach ($lines as $line) {
            $this->refused(self::decode($line));
        }
    }

    private function refused(Fields $answer): void
    {
        if (!$answer->has('error')) {
            return;
        }
        $error = self::error($answer);
        if ($this->logger === null) {
            throw $error;
        }
        $this->logger->error('Veche refused a line: {error}', ['error' => $error->getMessage(), 'exception' => $error]);
    }

    private function line(Deadline $deadline): string
    {
        while (($end = strpos($this->buffer, "\n")) === false) {
            $bytes = $this->socket?->read($deadline);
            if ($bytes === null) {
                throw $this->late();
            }
            if ($bytes === '') {
                throw new NetworkException("$this->address closed the connection before it answered", 0, true);
            }
            $this->buffer .= $bytes;
        }
        $line = substr($this->buffer, 0, $end);
        $this->buffer = substr($this->buffer, $end + 1);
        return $line;
    }

    private function late(): TimeoutException
    {
        return new TimeoutException("no answer from $this->address within $this->timeout s", 0, true);
    }

    private static function decode(string $line): Fields
    {
        return Fields::decode($line)
            ?? throw new ServerException('unexpected answer: not a JSON object; is this a push listener?', 0, true);
    }

    private static function error(Fields $answer): VecheException
    {
        $error = $answer->object('error');
        return ErrorCode::exception($error->int('code'), $error->string('message'), true);
    }
}

namespace Veche\Net;

use Veche\Exception\CallerException;

/**
 * Scheme, host, port and path of a URL.
 *
 * @internal
 */
final class Address
{
    /** Schemes with their default ports; 0 if a scheme has no default port. */
    private const PORTS = ['http' => 80, 'https' => 443, 'ws' => 80, 'wss' => 443, 'tcp' => 0, 'tls' => 0];

    private function __construct(
        public readonly string $scheme,
        public readonly string $host,
        public readonly int $port,
        public readonly string $target,
    ) {
    }

    /**
     * @param list<string> $schemes The accepted schemes.
     * @throws CallerException
     */
    public static function parse(string $url, array $schemes): self
    {
        $expected = "expected {$schemes[0]}://HOST:PORT";
        $parts = parse_url($url);
        if (!is_array($parts) || !isset($parts['scheme'], $parts['host'])) {
            throw new CallerException("bad address \"$url\": $expected");
        }
        $scheme = strtolower($parts['scheme']);
        $port = $parts['port'] ?? self::PORTS[$scheme] ?? 0;
        $problem = match (true) {
            !in_array($scheme, $schemes, true) => $expected,
            $port === 0 => 'the port is missing',
            isset($parts['user']) || isset($parts['pass']) => 'a user and a password are not allowed',
            isset($parts['fragment']) => 'a fragment is not allowed',
            preg_match('/[\x00-\x20\x7f]/', $url) === 1 => 'it contains a space or a control character',
            default => null,
        };
        if ($problem !== null) {
            throw new CallerException("bad address \"$url\": $problem");
        }
        $query = isset($parts['query']) ? "?{$parts['query']}" : '';
        return new self($scheme, $parts['host'], $port, ($parts['path'] ?? '/') . $query);
    }

    public function isTls(): bool
    {
        return in_array($this->scheme, ['https', 'wss', 'tls'], true);
    }

    /**
     * Returns the value of the header `Host`.
     */
    public function authority(): string
    {
        return $this->port === self::PORTS[$this->scheme] ? $this->host : "$this->host:$this->port";
    }

    public function __toString(): string
    {
        return "$this->host:$this->port";
    }
}

namespace Veche\Net;

/**
 * The time at which an operation has to be complete.
 *
 * @internal
 */
final class Deadline
{
    private function __construct(private readonly float $at)
    {
    }

    public static function in(float $seconds): self
    {
        return new self(self::now() + $seconds);
    }

    /**
     * Returns the seconds that are left, at least 0.
     */
    public function remaining(): float
    {
        return max(0.0, $this->at - self::now());
    }

    public function isOver(): bool
    {
        return $this->at <= self::now();
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}

namespace Veche\Net;

use Veche\Exception\NetworkException;
use Veche\Exception\TimeoutException;

/**
 * A TCP or TLS connection whose reads and writes have deadlines.
 *
 * @internal
 */
final class Socket
{
    private const READ_BYTES = 65536;

    /**
     * @param resource $stream
     */
    private function __construct(private $stream, private readonly Address $address)
    {
    }

    /**
     * Connects, and performs the TLS handshake if the address requires one.
     *
     * @param string|null $caFile Certificates to trust instead of the system's.
     * @throws NetworkException
     */
    public static function connect(Address $address, float $timeout, ?string $caFile = null): self
    {
        $ssl = ['peer_name' => trim($address->host, '[]'), 'verify_peer' => true, 'verify_peer_name' => true];
        if ($caFile !== null) {
            $ssl['cafile'] = $caFile;
        }
        $context = stream_context_create(['ssl' => $ssl, 'socket' => ['tcp_nodelay' => true]]);
        $url = ($address->isTls() ? 'tls' : 'tcp') . "://$address";
        $deadline = Deadline::in($timeout);
        $said = [];
        set_error_handler(static function (int $level, string $message) use (&$said): bool {
            $said[] = preg_replace('/^stream_socket_client\(\): /', '', $message);
            return true;
        });
        try {
            $stream = stream_socket_client($url, $code, $why, $timeout, STREAM_CLIENT_CONNECT, $context);
        } finally {
            restore_error_handler();
        }
        if ($stream === false) {
            $reason = $why !== '' ? $why : ($said[0] ?? 'unknown error');
            if ($deadline->isOver()) {
                throw new TimeoutException("cannot connect to $address: no answer within $timeout s");
            }
            throw new NetworkException("cannot connect to $address: $reason");
        }
        stream_set_blocking($stream, false);
        stream_set_read_buffer($stream, 0);
        return new self($stream, $address);
    }

    /**
     * Writes all bytes.
     *
     * @throws NetworkException
     */
    public function write(string $bytes, Deadline $deadline): void
    {
        $done = 0;
        $length = strlen($bytes);
        while ($done < $length) {
            $written = @fwrite($this->stream, $done === 0 ? $bytes : substr($bytes, $done));
            if ($written === false) {
                throw new NetworkException("the connection to $this->address broke", 0, $done > 0);
            }
            $done += $written;
            if ($written === 0 && !$this->wait(false, $deadline)) {
                throw new TimeoutException("$this->address accepted no data in time", 0, $done > 0);
            }
        }
    }

    /**
     * Returns at least one byte, or an empty string at the end of the stream; null if nothing arrived in time.
     */
    public function read(Deadline $deadline): ?string
    {
        while (true) {
            $bytes = @fread($this->stream, self::READ_BYTES);
            if ($bytes !== false && $bytes !== '') {
                return $bytes;
            }
            if ($bytes === false || feof($this->stream)) {
                return '';
            }
            if (!$this->wait(true, $deadline)) {
                return null;
            }
        }
    }

    /**
     * Returns the data that have already arrived, without waiting: null if there are none, an empty string at the end
     * of the stream.
     */
    public function poll(): ?string
    {
        return $this->read(Deadline::in(0));
    }

    public function close(): void
    {
        if (is_resource($this->stream)) {
            fclose($this->stream);
        }
    }

    private function wait(bool $isRead, Deadline $deadline): bool
    {
        // The loop is needed because a signal ends a call early, and because one call waits for at
        // most an hour.
        do {
            $left = min($deadline->remaining(), 3600.0);
            $read = $isRead ? [$this->stream] : [];
            $write = $isRead ? [] : [$this->stream];
            $except = [];
            $seconds = (int) $left;
            $ready = @stream_select($read, $write, $except, $seconds, (int) (($left - $seconds) * 1e6));
        } while ($ready !== 1 && !$deadline->isOver());
        return $ready === 1;
    }
}

namespace Veche\Pool;

/**
 * The effect of a statement on the database.
 */
final class Changes
{
    /**
     * @param int $affected Rows that were changed.
     * @param int|null $lastId The first id that the database has generated for a new row.
     */
    public function __construct(public readonly int $affected, public readonly ?int $lastId = null)
    {
    }
}

namespace Veche\Pool;

use Veche\Exception\VecheException;
use Veche\Json;
use Veche\Worker\Engine;

/**
 * HTTP requests over Veche's connections: other handlers of the worker run during a request.
 *
 * ```php
 * $app->message(function (Veche\Connection $conn, string $data) use ($app): void {
 *     $response = $app->http()->get('https://api.example.com/weather?city=' . urlencode($data));
 *     $conn->send($response->status === 200 ? $response->body : 'not known');
 * });
 * ```
 *
 * Any status is a response. Redirects are followed, and a body is at most 16 MiB.
 */
final class Http
{
    /**
     * @internal {@see \Veche\App::http()} makes one.
     */
    public function __construct()
    {
    }

    /**
     * Makes a GET request.
     *
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole call, including redirects.
     * @throws VecheException if there is no response
     */
    public function get(string $url, array $headers = [], float $timeout = 30.0): HttpResponse
    {
        return $this->request('GET', $url, '', $headers, $timeout);
    }

    /**
     * Makes a POST request.
     *
     * @param mixed $body A string is sent as it is, anything else as JSON.
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole call, including redirects.
     * @throws VecheException if there is no response
     */
    public function post(string $url, mixed $body, array $headers = [], float $timeout = 30.0): HttpResponse
    {
        if (!is_string($body)) {
            $body = Json::encode($body);
            $headers += ['Content-Type' => 'application/json'];
        }
        return $this->request('POST', $url, $body, $headers, $timeout);
    }

    /**
     * Makes a request with any method.
     *
     * @param array<string, string> $headers
     * @param float $timeout Seconds for the whole call, including redirects.
     * @throws VecheException if there is no response
     */
    public function request(
        string $method,
        string $url,
        string $body = '',
        array $headers = [],
        float $timeout = 30.0,
    ): HttpResponse {
        $pair = static fn (string $name, string $value): array => [$name, $value];
        $pairs = array_map($pair, array_keys($headers), $headers);
        $head = ['method' => $method, 'url' => $url, 'headers' => $pairs ?: null, 'timeout' => $timeout];
        $result = Engine::current()->call('http', $head, $body === '' ? null : $body);
        return new HttpResponse(
            $result->head['status'],
            (string) $result->part(0),
            $result->head['headers'] ?? [],
            $result->head['url'] ?? $url,
        );
    }
}

namespace Veche\Pool;

use JsonException;

/**
 * A response of another server.
 */
final class HttpResponse
{
    /**
     * @param int $status Such as 200.
     * @param string $body The whole body.
     * @param list<array{string, string}> $headers Names in lower case, and values.
     * @param string $url The URL of the response, after all redirects.
     */
    public function __construct(
        public readonly int $status,
        public readonly string $body = '',
        public readonly array $headers = [],
        public readonly string $url = '',
    ) {
    }

    /**
     * Returns the first header with this name, which is compared without regard to case.
     */
    public function header(string $name): ?string
    {
        foreach ($this->headers as [$one, $value]) {
            if ($one === strtolower($name)) {
                return $value;
            }
        }
        return null;
    }

    /**
     * Returns the body as JSON, with objects as arrays.
     *
     * @throws JsonException if the body is not JSON
     */
    public function json(): mixed
    {
        return json_decode($this->body, true, 512, JSON_THROW_ON_ERROR);
    }
}

namespace Veche\Pool;

use Veche\Exception\VecheException;
use Veche\Worker\Engine;
use Veche\Worker\Frame;
use Veche\Worker\Values;

/**
 * A MySQL or MariaDB database over Veche's pool of connections. It needs no driver, and other
 * handlers of the worker run during a statement.
 *
 * ```php
 * $db = $app->mysql('shop');
 * $app->message(function (Veche\Connection $conn, string $data) use ($db): void {
 *     $name = $db->value('SELECT name FROM users WHERE id = ?', (int) $data);
 *     $conn->send($name ?? 'nobody');
 * });
 * ```
 *
 * Each statement may use another connection, so a transaction can't span several statements.
 * Numbers are int or float and other values are strings; whole numbers beyond 2^53, decimals and
 * dates are strings too.
 */
final class Mysql
{
    /**
     * @internal {@see \Veche\App::mysql()} makes one.
     */
    public function __construct(private readonly string $database)
    {
    }

    /**
     * Returns all rows of a result, each with its values by column.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @return list<array<string, mixed>>
     * @throws VecheException
     */
    public function rows(string $sql, mixed ...$values): array
    {
        return self::table($this->ask('rows', $sql, $values));
    }

    /**
     * Returns the first row of a result; null where there is none.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @return array<string, mixed>|null
     * @throws VecheException
     */
    public function row(string $sql, mixed ...$values): ?array
    {
        return self::table($this->ask('row', $sql, $values))[0] ?? null;
    }

    /**
     * Returns the first value of the first row; null where there is none.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @throws VecheException
     */
    public function value(string $sql, mixed ...$values): mixed
    {
        return Values::decode((string) $this->ask('value', $sql, $values)->part(0))[0] ?? null;
    }

    /**
     * Carries out a statement that changes something.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @throws VecheException
     */
    public function execute(string $sql, mixed ...$values): Changes
    {
        $head = $this->ask('changes', $sql, $values)->head;
        return new Changes($head['affected'] ?? 0, $head['last_id'] ?? null);
    }

    /**
     * @param array<mixed> $values
     */
    private function ask(string $wanted, string $sql, array $values): Frame
    {
        $head = ['database' => $this->database, 'sql' => $sql, 'wanted' => $wanted];
        return Engine::current()->call('mysql', $head, $values === [] ? null : Values::encode($values));
    }

    /**
     * @return list<array<string, mixed>>
     */
    private static function table(Frame $result): array
    {
        $columns = $result->head['columns'] ?? [];
        $values = Values::decode((string) $result->part(0));
        if ($columns === [] || $values === []) {
            return [];
        }
        $row = static fn (array $values): array => array_combine($columns, $values);
        return array_map($row, array_chunk($values, count($columns)));
    }
}

namespace Veche\Pool;

use Veche\Exception\VecheException;
use Veche\Worker\Engine;
use Veche\Worker\Values;

/**
 * A Redis database over Veche's connections. It needs no extension, and other handlers of the
 * worker run during a command.
 *
 * ```php
 * $cache = $app->redis('cache');
 * $app->message(fn (Veche\Connection $conn) => $conn->send((string) $cache->call('INCR', 'messages')));
 * ```
 */
final class Redis
{
    /**
     * @internal {@see \Veche\App::redis()} makes one.
     */
    public function __construct(private readonly string $database)
    {
    }

    /**
     * Executes a command and returns its result: null, a boolean, a number, a string, or an array
     * of these.
     *
     * Commands that would change a shared connection, such as `SELECT`, `MULTI` and `SUBSCRIBE`, are refused; a script
     * (`EVAL`) is atomic.
     *
     * @throws VecheException
     */
    public function call(string $command, string|int|float ...$arguments): mixed
    {
        $words = Values::encode([$command, ...$arguments]);
        $result = Engine::current()->call('redis', ['database' => $this->database], $words);
        return Values::decode((string) $result->part(0))[0] ?? null;
    }
}

namespace Veche;

/**
 * A place in the history of a channel. Offsets of different epochs can't be compared.
 *
 * As a string it is `EPOCH:OFFSET`, the form in which clients of push routes pass `since`.
 */
final class Position
{
    public function __construct(public readonly int $offset, public readonly string $epoch)
    {
    }

    public function __toString(): string
    {
        return "$this->epoch:$this->offset";
    }

    /**
     * @internal
     * @return array{offset: int, epoch: string}
     */
    public function parameters(): array
    {
        return ['offset' => $this->offset, 'epoch' => $this->epoch];
    }
}

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

namespace Veche;

/**
 * An HTTP request: a plain one, or the handshake of a WebSocket.
 *
 * ```php
 * $app->request(fn (Veche\Request $request) => match ("$request->method $request->path") {
 *     'GET /orders' => Veche\Response::json(orders($request->user, page: (int) $request->query('page'))),
 *     'POST /orders' => Veche\Response::json(order(json_decode($request->body, true)), 201),
 *     default => new Veche\Response(404, "not found\n"),
 * });
 * ```
 */
final class Request
{
    /**
     * @param string $method Such as `GET`.
     * @param string $path The path in normal form.
     * @param string $queryString The query without the `?`, still encoded.
     * @param list<array{string, string}> $headers Names in lower case, and values.
     * @param array<string, string> $parameters Parameters of the route's path.
     * @param string $remote Address of the client.
     * @param string $body The body; empty for handshakes.
     * @param string|null $user The user that the route's identity has named.
     */
    public function __construct(
        public readonly string $method,
        public readonly string $path,
        public readonly string $queryString = '',
        public readonly array $headers = [],
        public readonly array $parameters = [],
        public readonly string $remote = '',
        public readonly string $body = '',
        public readonly ?string $user = null,
    ) {
    }

    /**
     * Returns the first header with this name, which is compared without regard to case.
     */
    public function header(string $name): ?string
    {
        foreach ($this->headers as [$one, $value]) {
            if ($one === strtolower($name)) {
                return $value;
            }
        }
        return null;
    }

    /**
     * Returns a value of the query.
     */
    public function query(string $name): ?string
    {
        parse_str($this->queryString, $values);
        $value = $values[$name] ?? null;
        return is_string($value) ? $value : null;
    }

    /**
     * Returns a cookie.
     */
    public function cookie(string $name): ?string
    {
        foreach (explode(';', $this->header('cookie') ?? '') as $pair) {
            [$one, $value] = explode('=', trim($pair), 2) + [1 => ''];
            if ($one === $name) {
                return urldecode($value);
            }
        }
        return null;
    }

    /**
     * Returns a parameter of the route's path, such as `room` of `/chat/:room`.
     */
    public function parameter(string $name): ?string
    {
        return $this->parameters[$name] ?? null;
    }

    /**
     * @internal
     * @param array<string, mixed> $head
     */
    public static function from(array $head, string $body = '', ?string $user = null): self
    {
        return new self(
            $head['method'],
            $head['path'],
            $head['query'] ?? '',
            $head['headers'] ?? [],
            array_column($head['params'] ?? [], 1, 0),
            $head['remote'] ?? '',
            $body,
            $user,
        );
    }
}

namespace Veche;

use Veche\Exception\CallerException;

/**
 * The answer to a request. As the answer to a handshake, it refuses the connection.
 *
 * ```php
 * $app->request(fn (Veche\Request $request) => Veche\Response::json(['path' => $request->path]));
 * $app->open(fn (Veche\Connection $conn) => $conn->user === null ? new Veche\Response(403) : null);
 * ```
 */
final class Response
{
    public readonly string $body;

    /** Path of a file; null if this object has the body itself. */
    public readonly ?string $file;

    /** @var iterable<string>|null */
    public readonly ?iterable $stream;

    /**
     * @param array<string, string|list<string>> $headers
     * @param string|iterable<string> $body The parts of an iterable are sent as they are produced,
     *     no faster than the client reads.
     * @throws CallerException
     */
    public function __construct(
        public readonly int $status = 200,
        string|iterable $body = '',
        public readonly array $headers = [],
        ?string $file = null,
    ) {
        if ($status < 200 || $status > 599) {
            throw new CallerException('a status must be between 200 and 599');
        }
        $this->file = $file;
        $this->body = is_string($body) ? $body : '';
        $this->stream = is_string($body) ? null : $body;
    }

    /**
     * Returns a response with a value as JSON.
     */
    public static function json(mixed $value, int $status = 200): self
    {
        return new self($status, Json::encode($value), ['Content-Type' => 'application/json']);
    }

    /**
     * Returns a response whose body is a file in the application's folder of files. Veche reads the
     * file.
     *
     * @param string $path A relative path without names that begin with a dot.
     * @param array<string, string|list<string>> $headers
     */
    public static function file(string $path, array $headers = []): self
    {
        return new self(200, '', $headers, $path);
    }

    /**
     * Returns a response in parts.
     *
     * ```php
     * $app->request(fn () => Veche\Response::stream((function () {
     *     foreach (orders() as $order) {
     *         yield implode(',', $order) . "\n";
     *     }
     * })(), headers: ['Content-Type' => 'text/csv']));
     * ```
     *
     * @param iterable<string> $parts
     * @param array<string, string|list<string>> $headers
     */
    public static function stream(iterable $parts, int $status = 200, array $headers = []): self
    {
        return new self($status, $parts, $headers);
    }

    /**
     * @internal
     * @return list<array{string, string}>
     */
    public function headerList(): array
    {
        $list = [];
        foreach ($this->headers as $name => $values) {
            foreach ((array) $values as $value) {
                $list[] = [(string) $name, $value];
            }
        }
        return $list;
    }
}

namespace Veche\Result;

/**
 * A connection as other clients see it.
 */
final class ClientInfo
{
    /**
     * @param string $user Name of the user; empty for anonymous clients.
     * @param string $client Id of the connection.
     * @param mixed $connectionInfo `info` of the connection's token.
     * @param mixed $channelInfo `info` of the subscription.
     */
    public function __construct(
        public readonly string $user,
        public readonly string $client,
        public readonly mixed $connectionInfo = null,
        public readonly mixed $channelInfo = null,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->string('user'),
            $fields->string('client'),
            $fields->value('conn_info'),
            $fields->value('chan_info'),
        );
    }
}

namespace Veche\Result;

/**
 * A connection as the server knows it.
 */
final class ConnectionInfo
{
    /**
     * @param string $user Name of the user; empty for anonymous clients.
     * @param string $handler Handler of the route: `push`, `centrifuge`, `lua` and so on.
     * @param string $transport Such as `websocket`.
     * @param string $protocol Such as `json`; empty where the handler has none.
     * @param string $route Path of the route.
     * @param string $address Address of the client.
     * @param string $appName Name that the client's SDK gave.
     * @param string $appVersion Version that the client's SDK gave.
     * @param list<string> $channels Channels that it is subscribed to.
     */
    public function __construct(
        public readonly string $user,
        public readonly string $handler,
        public readonly string $transport,
        public readonly string $protocol,
        public readonly string $route,
        public readonly string $address,
        public readonly string $appName,
        public readonly string $appVersion,
        public readonly array $channels,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->string('user'),
            $fields->string('handler', ''),
            $fields->string('transport', ''),
            $fields->string('protocol', ''),
            $fields->string('route', ''),
            $fields->string('address', ''),
            $fields->string('app_name', ''),
            $fields->string('app_version', ''),
            array_map(strval(...), array_keys($fields->object('state')->array('channels'))),
        );
    }
}

namespace Veche\Result;

use Veche\Exception\ServerException;

/**
 * Typed access to the members of a decoded answer.
 *
 * @internal
 */
final class Fields
{
    /**
     * @param array<array-key, mixed> $values
     */
    public function __construct(private readonly array $values)
    {
    }

    /**
     * Decodes a JSON object. Returns null for any other text.
     */
    public static function decode(string $json): ?self
    {
        $values = json_decode($json, true, 512, JSON_BIGINT_AS_STRING);
        return is_array($values) ? new self($values) : null;
    }

    public function has(string $name): bool
    {
        return isset($this->values[$name]);
    }

    public function value(string $name): mixed
    {
        return $this->values[$name] ?? null;
    }

    public function int(string $name, ?int $default = null): int
    {
        $value = $this->values[$name] ?? $default;
        return is_int($value) ? $value : throw self::unexpected($name, 'an integer');
    }

    public function optionalInt(string $name): ?int
    {
        return $this->has($name) ? $this->int($name) : null;
    }

    public function string(string $name, ?string $default = null): string
    {
        $value = $this->values[$name] ?? $default;
        return is_string($value) ? $value : throw self::unexpected($name, 'a string');
    }

    public function optionalString(string $name): ?string
    {
        return $this->has($name) ? $this->string($name) : null;
    }

    public function bool(string $name, bool $default): bool
    {
        $value = $this->values[$name] ?? $default;
        return is_bool($value) ? $value : throw self::unexpected($name, 'a boolean');
    }

    public function object(string $name): self
    {
        return new self($this->array($name));
    }

    /**
     * Returns the result of `$each` for each element of a list or of an object of objects.
     *
     * @template T
     * @param callable(self): T $each
     * @return array<array-key, T>
     */
    public function map(string $name, callable $each): array
    {
        $found = [];
        foreach ($this->array($name) as $key => $element) {
            if (!is_array($element)) {
                throw self::unexpected($name, 'a list of objects');
            }
            $found[$key] = $each(new self($element));
        }
        return $found;
    }

    /**
     * @return array<array-key, mixed>
     */
    public function array(string $name): array
    {
        $value = $this->values[$name] ?? null;
        return is_array($value) ? $value : throw self::unexpected($name, 'a list or an object');
    }

    private static function unexpected(string $name, string $kind): ServerException
    {
        return new ServerException("unexpected answer: \"$name\" is not $kind", 0, true);
    }
}

namespace Veche\Result;

use Veche\Position;

/**
 * A page of a channel's history.
 */
final class History
{
    /**
     * @param list<Publication> $publications
     * @param Position $position The latest position of the channel, even if the page ends before
     *     that position.
     */
    public function __construct(public readonly array $publications, public readonly Position $position)
    {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            array_values($fields->map('publications', Publication::from(...))),
            new Position($fields->int('offset'), $fields->string('epoch')),
        );
    }
}

namespace Veche\Result;

/**
 * A server process.
 */
final class Node
{
    /**
     * @param string $uid Id of the process.
     * @param string $name Name of the machine.
     * @param string $version Version of Veche.
     * @param int $clients Connections.
     * @param int $users Different users.
     * @param int $channels Channels with subscribers.
     * @param int $subscriptions Subscriptions.
     * @param int $uptime Seconds since the start.
     */
    public function __construct(
        public readonly string $uid,
        public readonly string $name,
        public readonly string $version,
        public readonly int $clients,
        public readonly int $users,
        public readonly int $channels,
        public readonly int $subscriptions,
        public readonly int $uptime,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->string('uid'),
            $fields->string('name'),
            $fields->string('version'),
            $fields->int('num_clients'),
            $fields->int('num_users'),
            $fields->int('num_channels'),
            $fields->int('num_subs'),
            $fields->int('uptime'),
        );
    }
}

namespace Veche\Result;

/**
 * Numbers of subscribers of a channel.
 */
final class PresenceStats
{
    /**
     * @param int $clients Connections.
     * @param int $users Different users; all anonymous clients count as one.
     */
    public function __construct(public readonly int $clients, public readonly int $users)
    {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self($fields->int('num_clients'), $fields->int('num_users'));
    }
}

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

namespace Veche\Result;

use Veche\Position;

/**
 * Outcome of a publication.
 */
final class Published
{
    /**
     * @param int|null $handed Connections whose outbox accepted the message. Null if no response was requested, or if
     *     the server does not know the number, as with the engine on Redis. A client may not have read the message yet.
     * @param Position|null $position Position in the channel's history, if the channel has one.
     * @param bool $taken False for a repeated idempotency key and for a version that is not newer.
     * @param string|null $note Explains why no connection was reached.
     * @param int|null $nodes With the engine on Redis: nodes with subscribers of the channel. Null with the engine in
     *     memory, and if the number is unknown, as for several users or channels in one call.
     */
    public function __construct(
        public readonly ?int $handed,
        public readonly ?Position $position = null,
        public readonly bool $taken = true,
        public readonly ?string $note = null,
        public readonly ?int $nodes = null,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        $position = $fields->has('offset') ? new Position($fields->int('offset'), $fields->string('epoch')) : null;
        return new self(
            $fields->optionalInt('handed'),
            $position,
            $fields->bool('taken', true),
            $fields->optionalString('note'),
            $fields->optionalInt('nodes'),
        );
    }
}

namespace Veche\Result;

use Veche\Exception\VecheException;

/**
 * Reply to one command of a batch.
 */
final class Reply
{
    /**
     * @param mixed $result What the client's method for this command returns; null if the command failed or returns
     *     nothing.
     * @param VecheException|null $error Why the command failed.
     */
    public function __construct(public readonly mixed $result, public readonly ?VecheException $error = null)
    {
    }

    /**
     * Returns the result, or throws the error.
     *
     * @throws VecheException
     */
    public function get(): mixed
    {
        return $this->error === null ? $this->result : throw $this->error;
    }
}

namespace Veche\Result;

/**
 * Whether a user is connected.
 */
final class UserStatus
{
    /**
     * @param bool $online Whether the user has a connection.
     * @param int $connections Number of connections.
     * @param int|null $lastSeen When the last connection ended, in milliseconds since 1970, if the
     *     server remembers it.
     * @param bool $blocked Whether `blockUser` is in force.
     */
    public function __construct(
        public readonly bool $online,
        public readonly int $connections,
        public readonly ?int $lastSeen = null,
        public readonly bool $blocked = false,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            $fields->bool('online', false),
            $fields->int('connections'),
            $fields->optionalInt('last_seen'),
            $fields->bool('blocked', false),
        );
    }
}

namespace Veche\Testing;

use Closure;
use LogicException;
use Throwable;
use Veche\App;
use Veche\Pool\Changes;
use Veche\Pool\HttpResponse;
use Veche\Response;
use Veche\Worker\Engine;
use Veche\Worker\Frame;
use Veche\Worker\FrameDecoder;
use Veche\Worker\Values;

/**
 * Runs an application without a server: the tester speaks Veche's side of the protocol in memory.
 *
 * ```php
 * $tester = new Veche\Testing\AppTester($app);
 * $ann = $tester->open('/chat/7?user=ann', parameters: ['room' => '7']);
 * $ann->say('hello');
 * self::assertSame(['hello'], $ann->received());
 * ```
 *
 * Publications and pushes reach the tester's own connections. `Veche\sleep` takes no time. Calls of `$app->client()` go
 * to the {@see FakeClient} in `$client`.
 */
final class AppTester
{
    public readonly FakeClient $client;

    /** @var list<string> What handlers have written to the log, and why they failed. */
    public array $log = [];

    /**
     * @var array<string, int> Accepted tokens, with the seconds until each expires. Other tokens
     *     are refused.
     */
    public array $tokens = [];

    /**
     * Answers statements of `$app->mysql()`: gets the name of the database, the statement and its values, and returns
     * rows as arrays by column, a value, or {@see Changes}, like the method that was called.
     *
     * @var (Closure(string, string, list<mixed>): mixed)|null
     */
    public ?Closure $mysql = null;

    /**
     * Answers commands of `$app->redis()`: gets the name of the database and the command's words.
     *
     * @var (Closure(string, list<mixed>): mixed)|null
     */
    public ?Closure $redis = null;

    /**
     * Answers requests of `$app->http()`: gets the method, the URL and the body.
     *
     * @var (Closure(string, string, string): HttpResponse)|null
     */
    public ?Closure $http = null;

    private string $streamed = '';
    /** @var array<string, mixed> The effect `begin` of a response in parts, with its status and headers. */
    private array $begun = [];
    private Engine $engine;
    private FrameDecoder $decoder;
    private int $lastId = 0;
    /** @var array<string, TestConnection> */
    private array $connections = [];

    /**
     * @param array<string, mixed> $options Options of the application, as in its configuration.
     */
    public function __construct(App $app, array $options = [])
    {
        $this->client = new FakeClient();
        $app->useClient($this->client);
        $this->engine = $app->engine();
        $this->decoder = new FrameDecoder();
        $this->decoder->feed($this->engine->takeOutput());
        $hello = $this->decoder->next()?->head ?? throw new LogicException('no hello');
        $this->give([
            'type' => 'welcome',
            'version' => 1,
            'codec' => 'json',
            'app' => 'test',
            'instance' => 1,
            'events' => $hello['events'],
            'calls' => [],
            'head_bytes_max' => 1 << 20,
            'payload_bytes_max' => 16 << 20,
            'options' => (object) $options,
        ]);
        $this->event('start', []);
    }

    /**
     * Returns a tester of the application that a program runs, such as an `app.php`.
     *
     * ```php
     * $tester = Veche\Testing\AppTester::load(__DIR__ . '/app.php');
     * ```
     *
     * @param array<string, mixed> $options Options of the application, as in its configuration.
     */
    public static function load(string $program, array $options = []): self
    {
        $app = null;
        App::handOver(static function (App $one) use (&$app): void {
            $app = $one;
        });
        try {
            (static fn (): mixed => require $program)();
        } finally {
            App::handOver(null);
        }
        return new self($app ?? throw new LogicException("$program runs no application"), $options);
    }

    /**
     * Opens a connection. If the application refuses it, the connection's `refusedWith` is set.
     *
     * @param string $target Path and query.
     * @param string|null $user The user, if the route determines one.
     * @param array<string, string> $headers
     * @param array<string, string> $parameters Parameters of the route's path.
     */
    public function open(
        string $target = '/',
        ?string $user = null,
        array $headers = [],
        array $parameters = [],
    ): TestConnection {
        $connection = new TestConnection($this, '0.' . (count($this->connections) + 1) . '.1', $user);
        $this->connections[$connection->id] = $connection;
        $request = self::requestHead('GET', $target, $headers, $parameters);
        $answer = $this->event('open', ['connection' => $connection->id, 'user' => $user, 'request' => $request]);
        $reply = $answer->head['reply'] ?? [];
        $connection->user = $reply['user'] ?? $user;
        $connection->protocol = $reply['protocol'] ?? null;
        $connection->refusedWith = isset($answer->head['failed']) ? 500 : $reply['status'] ?? null;
        if ($connection->refusedWith !== null) {
            unset($this->connections[$connection->id]);
        }
        return $connection;
    }

    /**
     * Makes an HTTP request.
     *
     * @param array<string, string> $headers
     * @param array<string, string> $parameters Parameters of the route's path.
     * @param string|null $user The user, if the route determines one.
     */
    public function request(
        string $method,
        string $target,
        string $body = '',
        array $headers = [],
        array $parameters = [],
        ?string $user = null,
    ): Response {
        $request = self::requestHead($method, $target, $headers, $parameters);
        $this->streamed = '';
        $this->begun = [];
        $head = ['connection' => '0.0.1', 'user' => $user, 'request' => $request, 'data' => 0];
        $answer = $this->event('request', $head, $body);
        if (isset($answer->head['failed'])) {
            return new Response(500, "internal error\n");
        }
        $reply = $answer->head['reply'] ?? $this->begun;
        $found = [];
        foreach ($reply['headers'] ?? [] as [$name, $value]) {
            $found[$name][] = $value;
        }
        $single = static fn (array $values): array|string => count($values) === 1 ? $values[0] : $values;
        $content = $answer->part($reply['body'] ?? null) ?? $this->streamed;
        return new Response($reply['status'] ?? 200, $content, array_map($single, $found));
    }

    /**
     * Makes the application decide on a command of a client of Centrifugo's protocol.
     *
     * @param string $event Such as `subscribe`.
     * @param array<string, mixed> $head Such as `['channel' => 'room:1']`.
     * @param mixed $data Sent as JSON.
     * @return array<string, mixed> The reply: `result`, `error` or `disconnect`. Data in a result are decoded.
     */
    public function command(string $event, array $head = [], mixed $data = null, ?string $user = null): array
    {
        $client = ['id' => '0.0.2', 'transport' => 'websocket', 'protocol' => 'json', 'remote' => '127.0.0.1'];
        $head += ['client' => $client, 'user' => $user, 'data_kind' => 'json', 'data' => 0];
        $answer = $this->event($event, $head, json_encode($data, JSON_THROW_ON_ERROR));
        $reply = $answer->head['reply'] ?? [];
        foreach (['info', 'data', 'meta'] as $name) {
            if (isset($reply['result'][$name])) {
                $part = (string) $answer->part($reply['result'][$name]);
                $reply['result'][$name] = isset($reply['result']["{$name}_kind"]) ? $part : json_decode($part, true);
            }
        }
        return $reply;
    }

    /**
     * Stops the application.
     */
    public function stop(): void
    {
        $this->event('stop', []);
    }

    /**
     * @internal
     */
    public function message(TestConnection $from, string $data, string $kind): void
    {
        self::demandOpen($from);
        $answer = $this->event('message', self::about($from) + ['data_kind' => $kind, 'data' => 0], $data);
        if (isset($answer->head['failed'])) {
            $from->closeCode = 1011;
        }
    }

    /**
     * @internal
     */
    public function close(TestConnection $from, int $code, string $reason): void
    {
        self::demandOpen($from);
        // The connection is removed before the event, so that handlers do not find it among the user's
        // connections.
        unset($this->connections[$from->id]);
        $from->closeCode = $code;
        $this->event('close', self::about($from) + ['code' => $code, 'reason' => $reason]);
    }

    private static function demandOpen(TestConnection $from): void
    {
        if ($from->closeCode !== null || $from->refusedWith !== null) {
            throw new LogicException('the connection is closed');
        }
    }

    /**
     * @return array<string, mixed>
     */
    private static function about(TestConnection $from): array
    {
        $attributes = $from->attributes === [] ? null : $from->attributes;
        return ['connection' => $from->id, 'user' => $from->user, 'attributes' => $attributes];
    }

    /**
     * @param array<string, mixed> $head
     */
    private function event(string $event, array $head, string $data = ''): Frame
    {
        $id = ++$this->lastId;
        $present = array_filter($head, static fn (mixed $one): bool => $one !== null);
        $this->give(['type' => 'event', 'id' => $id, 'event' => $event] + $present, $data);
        while (true) {
            $this->decoder->feed($this->engine->takeOutput());
            while (($frame = $this->decoder->next()) !== null) {
                $this->carryOut($frame, $head['connection'] ?? '');
                if ($frame->head['type'] === 'call') {
                    $this->answer($frame, $head['connection'] ?? '');
                }
                if ($frame->head['type'] === 'answer' && $frame->head['id'] === $id) {
                    return $frame;
                }
            }
            $wakesAt = $this->engine->wakesAt();
            if ($wakesAt !== null) {
                $this->engine->wake($wakesAt);
            }
        }
    }

    /**
     * @param array<string, mixed> $head
     */
    private function give(array $head, string $payload = ''): void
    {
        $parts = $payload === '' ? [] : [$payload];
        $this->engine->receive(Frame::encode($head, $parts, 1 << 20, 16 << 20));
    }

    /**
     * Answers a call. Tokens that are not in {@see $tokens} are refused.
     */
    private function answer(Frame $call, string $own): void
    {
        $head = $call->head;
        $of = $this->connections[$head['connection'] ?? $own] ?? null;
        $result = ['type' => 'result', 'id' => $head['id']];
        $refused = static fn (string $why): array => ['error' => ['kind' => 'refused', 'message' => $why]];
        if ($head['call'] === 'part') {
            $this->streamed .= $call->payload;
        }
        if ($head['call'] === 'subscribe' && $of !== null) {
            $of->channels[$head['channel']] = true;
        }
        if (in_array($head['call'], ['mysql', 'redis', 'http'], true)) {
            $this->outside($call);
            return;
        }
        $isUsers = static fn (TestConnection $one): bool => $one->user === ($head['user'] ?? null);
        $this->give($result + match ($head['call']) {
            'connections' => ['connections' => array_keys(array_filter($this->connections, $isUsers))],
            'connection' => ['open' => $of !== null && $of->closeCode === null],
            'renew' => isset($this->tokens[$head['token']])
                ? ['expires_in' => $this->tokens[$head['token']]]
                : $refused('the token is not valid'),
            'subscribe' => isset($head['since']) ? ['position' => 'fake:0', 'recovered' => false] : [],
            'part' => [],
            default => $refused('calls of the API go to the fake client'),
        });
    }

    /**
     * Answers a call to another server with the result of the test's closure.
     */
    private function outside(Frame $call): void
    {
        $head = $call->head;
        $result = ['type' => 'result', 'id' => $head['id']];
        try {
            $answer = $this->{$head['call']}
                ?? throw new LogicException("the test must set \$tester->{$head['call']} to answer this call");
            [$more, $data] = match ($head['call']) {
                'mysql' => self::rows(
                    $head['wanted'],
                    $answer($head['database'], $head['sql'], Values::decode($call->payload)),
                ),
                'redis' => [[], Values::one($answer($head['database'], Values::decode($call->payload)))],
                'http' => self::response($answer($head['method'], $head['url'], $call->payload)),
            };
            $this->give($result + $more + ['data' => 0], $data);
        } catch (Throwable $error) {
            $this->give($result + ['error' => ['kind' => 'refused', 'message' => $error->getMessage()]]);
        }
    }

    /**
     * @return array{array<string, mixed>, string}
     */
    private static function rows(string $wanted, mixed $answer): array
    {
        if ($wanted === 'value') {
            return [[], Values::one($answer)];
        }
        if ($wanted === 'changes') {
            return [['affected' => $answer->affected, 'last_id' => $answer->lastId], ''];
        }
        $rows = $wanted === 'row' ? array_filter([$answer]) : $answer;
        $columns = array_keys($rows[0] ?? []);
        return [['columns' => $columns], Values::encode(array_merge(...array_map(array_values(...), $rows)))];
    }

    /**
     * @return array{array<string, mixed>, string}
     */
    private static function response(HttpResponse $answer): array
    {
        $head = ['status' => $answer->status, 'headers' => $answer->headers, 'url' => $answer->url];
        return [$head, $answer->body];
    }

    private function carryOut(Frame $frame, string $own): void
    {
        foreach ($frame->head['effects'] ?? [] as $effect) {
            $of = $this->connections[$effect['connection'] ?? $own] ?? null;
            $data = (string) $frame->part($effect['data'] ?? null);
            match ($effect['effect']) {
                'send' => $of?->deliver($data),
                'push' => $this->deliver(
                    static fn (TestConnection $one): bool => $one->user === $effect['user'],
                    $data,
                ),
                'publish' => $this->deliver(
                    static fn (TestConnection $one): bool => isset($one->channels[$effect['channel']]),
                    $data,
                ),
                'begin' => $this->begun = $effect,
                'log' => $this->log[] = $effect['text'],
                default => $of === null ? null : self::change($of, $effect),
            };
        }
        if (isset($frame->head['failed'])) {
            $this->log[] = $frame->head['failed'];
        }
    }

    /**
     * @param callable(TestConnection): bool $isMeant
     */
    private function deliver(callable $isMeant, string $data): void
    {
        foreach (array_filter($this->connections, $isMeant) as $connection) {
            $connection->deliver($data);
        }
    }

    /**
     * @param array<string, mixed> $effect
     */
    private static function change(TestConnection $of, array $effect): void
    {
        switch ($effect['effect']) {
            case 'subscribe':
                $of->channels[$effect['channel']] = true;
                break;
            case 'unsubscribe':
                unset($of->channels[$effect['channel']]);
                break;
            case 'attributes':
                $set = array_merge($of->attributes, $effect['set']);
                $of->attributes = array_filter($set, static fn (mixed $one): bool => $one !== null);
                break;
            case 'close':
                $of->closeCode = $effect['code'] ?? 1000;
                $of->closeReason = $effect['reason'] ?? '';
                break;
        }
    }

    /**
     * @param array<string, string> $headers
     * @param array<string, string> $parameters
     * @return array<string, mixed>
     */
    private static function requestHead(string $method, string $target, array $headers, array $parameters): array
    {
        [$path, $query] = explode('?', $target, 2) + [1 => ''];
        $pairs = static fn (array $values): array => array_map(
            static fn (string $name, string $value): array => [$name, $value],
            array_keys($values),
            $values,
        );
        return [
            'method' => $method,
            'path' => $path,
            'query' => $query,
            'headers' => $pairs(array_change_key_case($headers)),
            'params' => $pairs($parameters),
            'remote' => '127.0.0.1',
        ];
    }
}

namespace Veche\Testing;

use Throwable;
use Veche\AbstractClient;
use Veche\Binary;
use Veche\Command;
use Veche\Exception\VecheException;
use Veche\Result\Fields;
use Veche\Result\Reply;

/**
 * A client without a server, for tests of an application that pushes. It records commands, and refuses the same wrong
 * arguments as {@see \Veche\Client}.
 *
 * ```php
 * $veche = new Veche\Testing\FakeClient();
 * $veche->connect('ann');
 * (new OrderShipped($veche))($order);
 * self::assertSame([['shipped' => 7]], $veche->pushedTo('ann'));
 * ```
 */
final class FakeClient extends AbstractClient
{
    /** @var list<Command> */
    private array $commands = [];
    /** @var array<string, int> */
    private array $connections = [];
    /** @var array<string, int> */
    private array $subscribers = [];
    /** @var list<Throwable> */
    private array $failures = [];
    /** @var array<string, list<mixed>> */
    private array $answers = [];

    public function run(Command $command): mixed
    {
        if ($this->failures !== []) {
            throw array_shift($this->failures);
        }
        if ($command->method === 'batch') {
            return $this->runBatch($command);
        }
        $this->commands[] = $command;
        if (isset($this->answers[$command->method][0])) {
            return array_shift($this->answers[$command->method]);
        }
        return $command->result(new Fields($this->result($command)));
    }

    /**
     * Lets a user have connections, which `handed` and `userStatus` then count.
     */
    public function connect(string $user, int $connections = 1): void
    {
        $this->connections[$user] = ($this->connections[$user] ?? 0) + $connections;
    }

    /**
     * Lets a channel have subscribers, which `handed` and `presenceStats` then count.
     */
    public function addSubscribers(string $channel, int $connections = 1): void
    {
        $this->subscribers[$channel] = ($this->subscribers[$channel] ?? 0) + $connections;
    }

    /**
     * Makes the next call throw. Several failures are thrown one after the other.
     *
     * ```php
     * $veche->failNext(new Veche\Exception\NetworkException('no server'));
     * ```
     */
    public function failNext(VecheException $error): void
    {
        $this->failures[] = $error;
    }

    /**
     * Sets what the next call of a method returns.
     *
     * ```php
     * $veche->answerNext('user_status', new Veche\Result\UserStatus(true, 2));
     * ```
     *
     * @param string $method Name of the call in the API, such as `user_status`.
     */
    public function answerNext(string $method, mixed $result): void
    {
        $this->answers[$method][] = $result;
    }

    /**
     * Returns the commands so far; the commands of a batch are listed individually.
     *
     * @param string|null $method Only those of this name in the API, such as `publish`.
     * @return list<Command>
     */
    public function commands(?string $method = null): array
    {
        $isMeant = static fn (Command $one): bool => $method === null || $one->method === $method;
        return array_values(array_filter($this->commands, $isMeant));
    }

    /**
     * Returns the data of all pushes to a user, in order and unchanged.
     *
     * @return list<mixed>
     */
    public function pushedTo(string $user): array
    {
        return $this->data('user', $user);
    }

    /**
     * Returns the data of all publications to a channel, in order and unchanged.
     *
     * @return list<mixed>
     */
    public function publishedTo(string $channel): array
    {
        return $this->data('channel', $channel);
    }

    /**
     * Forgets the commands so far.
     */
    public function reset(): void
    {
        $this->commands = [];
    }

    /**
     * @return list<mixed>
     */
    private function data(string $kind, string $name): array
    {
        $found = [];
        foreach ($this->commands as $command) {
            if ($command->publishes() && in_array($name, self::targets($command, $kind), true)) {
                $found[] = isset($command->parameters['binary'])
                    ? new Binary(base64_decode($command->parameters['binary']))
                    : $command->parameters['data'];
            }
        }
        return $found;
    }

    /**
     * @return list<string>
     */
    private static function targets(Command $command, string $kind): array
    {
        $single = $command->parameters[$kind] ?? null;
        return $single === null ? $command->parameters["{$kind}s"] ?? [] : [$single];
    }

    /**
     * @return list<Reply>
     */
    private function runBatch(Command $batch): array
    {
        return array_map(function (Command $one): Reply {
            try {
                return new Reply($this->run($one));
            } catch (VecheException $error) {
                return new Reply(null, $error);
            }
        }, $batch->commands);
    }

    /**
     * Returns the result as the server would write it.
     *
     * @return array<string, mixed>
     */
    private function result(Command $command): array
    {
        $parameters = $command->parameters;
        $user = $parameters['user'] ?? '';
        $channel = $parameters['channel'] ?? '';
        $connections = $this->connections[$user] ?? 0;
        $subscribers = $this->subscribers[$channel] ?? 0;
        return match ($command->method) {
            'push' => ['handed' => $this->count('user', $command)],
            'publish' => ['handed' => $this->count('channel', $command)],
            'broadcast' => ['responses' => array_map(
                fn (string $one): array => ['result' => ['handed' => $this->subscribers[$one] ?? 0]],
                $parameters['channels'],
            )],
            'disconnect', 'block_user' => $this->end($user, $parameters),
            'user_status' => ['online' => $connections > 0, 'connections' => $connections],
            'history' => ['publications' => [], 'offset' => 0, 'epoch' => 'fake'],
            'presence' => ['presence' => []],
            'presence_stats' => ['num_clients' => $subscribers, 'num_users' => $subscribers],
            'channels' => ['channels' => array_map(
                static fn (int $count): array => ['num_clients' => $count],
                $this->subscribers,
            )],
            'connections' => ['connections' => []],
            'info' => ['nodes' => []],
            default => [],
        };
    }

    private function count(string $kind, Command $command): int
    {
        $known = $kind === 'user' ? $this->connections : $this->subscribers;
        return array_sum(array_map(
            static fn (string $name): int => $known[$name] ?? 0,
            self::targets($command, $kind),
        ));
    }

    /**
     * @param array<string, mixed> $parameters
     * @return array<string, int>
     */
    private function end(string $user, array $parameters): array
    {
        if (isset($parameters['client']) || isset($parameters['session']) || isset($parameters['whitelist'])) {
            return [];
        }
        $ended = $this->connections[$user] ?? 0;
        unset($this->connections[$user]);
        return ['disconnected' => $ended];
    }
}

namespace Veche\Testing;

/**
 * The client's end of a connection to an application under test.
 *
 * ```php
 * $ann = $tester->open('/ws', user: 'ann');
 * $ann->say('leave');
 * self::assertSame([4000, 'as you wish'], [$ann->closeCode, $ann->closeReason]);
 * ```
 */
final class TestConnection
{
    /** Close code that the application has chosen; null while the connection is open. */
    public ?int $closeCode = null;

    public string $closeReason = '';

    /** @var array<string, true> */
    public array $channels = [];

    /** @var array<string, bool|int|float|string> */
    public array $attributes = [];

    /** @var list<string> */
    private array $inbox = [];

    /**
     * @param int|null $refusedWith Status of a handshake that was refused.
     * @internal {@see AppTester::open()} creates connections.
     */
    public function __construct(
        private readonly AppTester $tester,
        public readonly string $id,
        public ?string $user = null,
        public ?string $protocol = null,
        public ?int $refusedWith = null,
    ) {
    }

    /**
     * Sends a text message and returns when the application has handled it.
     */
    public function say(string $text): void
    {
        $this->tester->message($this, $text, 'text');
    }

    /**
     * Sends a binary message and returns when the application has handled it.
     */
    public function sayBinary(string $bytes): void
    {
        $this->tester->message($this, $bytes, 'binary');
    }

    /**
     * Closes the connection.
     */
    public function hangUp(int $code = 1000, string $reason = ''): void
    {
        $this->tester->close($this, $code, $reason);
    }

    /**
     * Returns the messages that have arrived since the last call.
     *
     * @return list<string>
     */
    public function received(): array
    {
        [$received, $this->inbox] = [$this->inbox, []];
        return $received;
    }

    /**
     * @internal
     */
    public function deliver(string $message): void
    {
        if ($this->closeCode === null) {
            $this->inbox[] = $message;
        }
    }
}

namespace Veche\Token;

use OpenSSLAsymmetricKey;
use Veche\Exception\CallerException;
use Veche\Json;

/**
 * A key that signs tokens: a secret (HS256, HS384, HS512), an RSA key (RS256, RS384, RS512), or a key on P-256, P-384
 * or P-521 (ES256, ES384, ES512).
 *
 * ```php
 * $key = Veche\Token\Key::secret(trim(file_get_contents('/etc/veche/jwt.secret')));
 * $key = Veche\Token\Key::pem(file_get_contents('/etc/shop/private.pem'));
 * ```
 */
final class Key
{
    /** The length in bytes of r and of s in a signature, by algorithm. */
    private const EC_BYTES = ['ES256' => 32, 'ES384' => 48, 'ES512' => 66];
    private const EC_CURVES = ['prime256v1' => 'ES256', 'secp384r1' => 'ES384', 'secp521r1' => 'ES512'];

    private function __construct(
        public readonly string $algorithm,
        private readonly string|OpenSSLAsymmetricKey $key,
        public readonly ?string $id,
    ) {
    }

    /**
     * Creates a key from a secret that the server knows too (`secret_file` of `[jwt]`).
     *
     * @param string $algorithm `HS256`, `HS384` or `HS512`.
     * @param string|null $id `kid` of the tokens' header.
     * @throws CallerException
     */
    public static function secret(string $secret, string $algorithm = 'HS256', ?string $id = null): self
    {
        if ($secret === '') {
            throw new CallerException('the secret is empty');
        }
        if (!in_array($algorithm, ['HS256', 'HS384', 'HS512'], true)) {
            throw new CallerException("$algorithm is not an algorithm for a secret");
        }
        return new self($algorithm, $secret, $id);
    }

    /**
     * Creates a key from a private key whose public half the server knows (`key_file` or `jwks` of `[jwt]`). Requires
     * ext-openssl.
     *
     * @param string $pem The private key.
     * @param string|null $algorithm By default the algorithm of the key's curve, or RS256 for an RSA key.
     * @param string|null $id `kid` of the tokens' header.
     * @throws CallerException
     */
    public static function pem(
        string $pem,
        ?string $algorithm = null,
        ?string $passphrase = null,
        ?string $id = null,
    ): self {
        if (!extension_loaded('openssl')) {
            throw new CallerException('ext-openssl is not loaded');
        }
        $key = openssl_pkey_get_private($pem, $passphrase);
        if ($key === false) {
            throw new CallerException('the text is not a private key in PEM, or the passphrase is wrong');
        }
        $details = openssl_pkey_get_details($key);
        $allowed = match ($details['type']) {
            OPENSSL_KEYTYPE_RSA => ['RS256', 'RS384', 'RS512'],
            OPENSSL_KEYTYPE_EC => array_filter([self::EC_CURVES[$details['ec']['curve_name']] ?? null]),
            default => [],
        };
        if ($allowed === []) {
            throw new CallerException('the key must be RSA or on P-256, P-384 or P-521');
        }
        $algorithm ??= $allowed[0];
        if (!in_array($algorithm, $allowed, true)) {
            throw new CallerException("$algorithm is not an algorithm for this key");
        }
        return new self($algorithm, $key, $id);
    }

    /**
     * Returns a signed token with these claims (RFC 7515, compact form).
     *
     * @param array<string, mixed> $claims
     * @throws CallerException if the claims can't be expressed in JSON
     */
    public function sign(array $claims): string
    {
        $header = ['alg' => $this->algorithm, 'typ' => 'JWT'] + ($this->id === null ? [] : ['kid' => $this->id]);
        $signed = self::base64(Json::encode($header)) . '.' . self::base64(Json::encode((object) $claims));
        return "$signed." . self::base64($this->signature($signed));
    }

    private function signature(string $signed): string
    {
        $hash = 'sha' . substr($this->algorithm, 2);
        if (is_string($this->key)) {
            return hash_hmac($hash, $signed, $this->key, true);
        }
        if (!openssl_sign($signed, $signature, $this->key, $hash)) {
            throw new CallerException('openssl can\'t sign with this key: ' . openssl_error_string());
        }
        $bytes = self::EC_BYTES[$this->algorithm] ?? null;
        return $bytes === null ? $signature : self::concatenated($signature, $bytes);
    }

    /**
     * Converts an ECDSA signature from DER, a sequence of two integers, to the concatenation of r and s (RFC 7518,
     * section 3.4).
     */
    private static function concatenated(string $der, int $bytes): string
    {
        // The sequence of P-521 is longer than 127 bytes, so its length takes two bytes.
        $at = ord($der[1]) === 0x81 ? 3 : 2;
        $numbers = '';
        for ($i = 0; $i < 2; $i++) {
            $length = ord($der[$at + 1]);
            $number = ltrim(substr($der, $at + 2, $length), "\0");
            $numbers .= str_pad($number, $bytes, "\0", STR_PAD_LEFT);
            $at += 2 + $length;
        }
        return $numbers;
    }

    private static function base64(string $bytes): string
    {
        return rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
    }
}

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

namespace Veche\WebSocket;

use Veche\Exception\CallerException;
use Veche\Exception\ClosedException;
use Veche\Exception\NetworkException;
use Veche\Exception\ProtocolException;
use Veche\Exception\TimeoutException;
use Veche\Exception\VecheException;
use Veche\Net\Address;
use Veche\Net\Deadline;
use Veche\Net\Socket;

/**
 * A WebSocket client for back ends (RFC 6455): it blocks, with timeouts, and answers pings while it waits.
 *
 * ```php
 * $socket = Veche\WebSocket\Client::connect('ws://127.0.0.1:8080/echo');
 * $socket->send('hello');
 * echo $socket->receive(timeout: 5)->data;
 * $socket->close();
 * ```
 *
 * It supports no extensions, so messages are not compressed.
 */
final class Client
{
    /** Maximum number of control frames that a call handles after its time is over. */
    private const CONTROL_FRAMES_MAX = 100;

    private bool $isClosed = false;

    private function __construct(
        private readonly Socket $socket,
        private readonly Receiver $receiver,
        private readonly float $timeout,
        public readonly string $protocol,
    ) {
    }

    /**
     * Connects and makes the handshake.
     *
     * @param string $url `ws://…` or `wss://…`.
     * @param array<string, string> $headers Further headers of the handshake, such as `Authorization`.
     * @param list<string> $protocols Subprotocols to offer; `$protocol` of the client is the one that was chosen.
     * @param float $timeout Seconds for the handshake, and for each later send.
     * @param int $messageBytesMax Maximum length of a received message in bytes.
     * @param int $fragmentsMax Maximum number of frames of a received message.
     * @param string|null $caFile Certificates to trust for wss instead of the system's.
     * @throws VecheException
     */
    public static function connect(
        string $url,
        array $headers = [],
        array $protocols = [],
        float $timeout = 5.0,
        int $messageBytesMax = 16 << 20,
        int $fragmentsMax = 1000,
        ?string $caFile = null,
    ): self {
        $address = Address::parse($url, ['ws', 'wss']);
        $handshake = new Handshake($address, $headers, $protocols, base64_encode(random_bytes(16)));
        $deadline = Deadline::in($timeout);
        $socket = Socket::connect($address, $timeout, $caFile);
        try {
            $socket->write($handshake->request(), $deadline);
            do {
                $bytes = $socket->read($deadline);
                if ($bytes === null) {
                    throw new TimeoutException("$address did not complete the handshake within $timeout s");
                }
                if ($bytes === '') {
                    throw new NetworkException("$address closed the connection during the handshake");
                }
                $opened = $handshake->take($bytes);
            } while ($opened === null);
        } catch (VecheException $error) {
            $socket->close();
            throw $error;
        }
        [$protocol, $rest] = $opened;
        $receiver = new Receiver($messageBytesMax, $fragmentsMax);
        $receiver->feed($rest);
        return new self($socket, $receiver, $timeout, $protocol);
    }

    /**
     * Sends a text message.
     *
     * @throws CallerException if it is not UTF-8
     * @throws NetworkException
     */
    public function send(string $text): void
    {
        if (preg_match('//u', $text) !== 1) {
            throw new CallerException('a text message has to be UTF-8; use sendBinary for bytes');
        }
        $this->write(Frame::encode(Opcode::Text, $text));
    }

    /**
     * Sends a binary message.
     *
     * @throws NetworkException
     */
    public function sendBinary(string $bytes): void
    {
        $this->write(Frame::encode(Opcode::Binary, $bytes));
    }

    /**
     * Sends a ping. {@see receive()} reads and skips the pong.
     *
     * @param string $payload At most 125 bytes.
     * @throws CallerException
     * @throws NetworkException
     */
    public function ping(string $payload = ''): void
    {
        if (strlen($payload) > 125) {
            throw new CallerException('a ping may have at most 125 bytes');
        }
        $this->write(Frame::encode(Opcode::Ping, $payload));
    }

    /**
     * Waits for the next message. Pings that arrive meanwhile are answered.
     *
     * @param float|null $timeout Seconds; null: no limit. After a timeout the connection can still be used.
     * @throws TimeoutException
     * @throws ClosedException when the connection has ended
     * @throws ProtocolException if the server breaks RFC 6455; the connection is closed then
     */
    public function receive(?float $timeout = null): Message
    {
        $message = $this->tryReceive($timeout);
        return $message ?? throw new TimeoutException("no message within $timeout s");
    }

    /**
     * Does the same as {@see receive()}, but returns null if no message arrives in time. With a
     * timeout of 0 it does not wait.
     *
     * @throws ClosedException
     * @throws ProtocolException
     */
    public function tryReceive(?float $timeout = 0.0): ?Message
    {
        $deadline = Deadline::in($timeout ?? INF);
        // A message may have arrived already behind some control frames, so these are skipped even
        // after the deadline; their number is limited because a peer could send them endlessly.
        for ($passed = 0; $passed < self::CONTROL_FRAMES_MAX || !$deadline->isOver(); $passed++) {
            $event = $this->event($deadline);
            if ($event === null) {
                return null;
            }
            if ($event->kind === Opcode::Text || $event->kind === Opcode::Binary) {
                return new Message($event->data, $event->kind === Opcode::Binary);
            }
        }
        return null;
    }

    /**
     * Closes the connection and waits for the server's Close frame, for at most a second.
     *
     * Messages that arrive meanwhile are dropped. Closing again does nothing.
     *
     * @param int $code 1000, or from 3000 to 4999.
     * @param string $reason At most 123 bytes.
     * @throws CallerException
     */
    public function close(int $code = 1000, string $reason = ''): void
    {
        if ($code !== 1000 && ($code < 3000 || $code > 4999)) {
            throw new CallerException('a close code must be 1000 or between 3000 and 4999');
        }
        if (strlen($reason) > 123 || preg_match('//u', $reason) !== 1) {
            throw new CallerException('a close reason must be UTF-8 of at most 123 bytes');
        }
        if ($this->isClosed) {
            return;
        }
        $deadline = Deadline::in(1.0);
        try {
            $this->write(Frame::close($code, $reason));
            do {
                $event = $this->event($deadline);
            } while ($event !== null && !$deadline->isOver());
        } catch (VecheException) {
            // The connection ends in any case.
        }
        $this->end();
    }

    /**
     * Returns the next event, after answering it if necessary. Returns null if the deadline passes first.
     */
    private function event(Deadline $deadline): ?Event
    {
        if ($this->isClosed) {
            throw new ClosedException(1006, 'the connection has already ended');
        }
        try {
            while (($event = $this->receiver->next()) === null) {
                $bytes = $this->socket->read($deadline);
                if ($bytes === null) {
                    return null;
                }
                if ($bytes === '') {
                    $this->end();
                    throw new ClosedException(1006, 'the connection ended without a Close frame');
                }
                $this->receiver->feed($bytes);
            }
        } catch (ProtocolException $error) {
            $this->fail($error);
        }
        if ($event->kind === Opcode::Ping) {
            $this->write(Frame::encode(Opcode::Pong, $event->data));
        }
        if ($event->kind === Opcode::Close) {
            $this->write(Frame::close($event->code));
            $this->end();
            throw new ClosedException($event->code, $event->data);
        }
        return $event;
    }

    private function fail(ProtocolException $error): never
    {
        try {
            $this->write(Frame::close($error->getCode()));
        } catch (NetworkException | ClosedException) {
            // `$error` describes the cause, so it is thrown instead of the failure to send the Close frame.
        }
        $this->end();
        throw $error;
    }

    private function write(string $frame): void
    {
        if ($this->isClosed) {
            throw new ClosedException(1006, 'the connection has already ended');
        }
        try {
            $this->socket->write($frame, Deadline::in($this->timeout));
        } catch (NetworkException $error) {
            // A part of the frame may have been sent, so no other frame can follow.
            $this->end();
            throw $error;
        }
    }

    private function end(): void
    {
        $this->isClosed = true;
        $this->socket->close();
    }
}

namespace Veche\WebSocket;

/**
 * An item found by a {@see Receiver}: a message, or a control frame.
 *
 * @internal
 */
final class Event
{
    /**
     * @param Opcode $kind Text and Binary for messages; never Continuation.
     * @param string $data Of a Close: the reason.
     * @param int $code Of a Close: its code, or 1005 if it has none.
     */
    public function __construct(
        public readonly Opcode $kind,
        public readonly string $data,
        public readonly int $code = 0,
    ) {
    }
}

namespace Veche\WebSocket;

/**
 * Encodes frames of a client: unfragmented and masked.
 *
 * @internal
 */
final class Frame
{
    /**
     * @param string|null $key Four bytes; by default random ones, as section 10.3 of RFC 6455 asks for.
     */
    public static function encode(Opcode $opcode, string $payload, ?string $key = null, bool $isFinal = true): string
    {
        $key ??= random_bytes(4);
        $length = strlen($payload);
        $head = chr(($isFinal ? 0x80 : 0) | $opcode->value) . match (true) {
            $length < 126 => chr(0x80 | $length),
            $length < 65536 => "\xfe" . pack('n', $length),
            default => "\xff" . pack('J', $length),
        };
        return $head . $key . self::mask($payload, $key);
    }

    public static function mask(string $payload, string $key): string
    {
        $length = strlen($payload);
        // XOR of two strings has the length of the shorter one.
        return $length === 0 ? '' : $payload ^ str_repeat($key, intdiv($length + 3, 4));
    }

    /**
     * Encodes a Close frame. For the codes 1005 and 1006 the frame has no code.
     */
    public static function close(int $code, string $reason = ''): string
    {
        $payload = in_array($code, [1005, 1006], true) ? '' : pack('n', $code) . $reason;
        return self::encode(Opcode::Close, $payload);
    }
}

namespace Veche\WebSocket;

use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ProtocolException;
use Veche\Exception\RateLimitException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Net\Address;

/**
 * The HTTP request that opens a WebSocket, and the check of its response (RFC 6455, section 4.1). It does no I/O.
 *
 * @internal
 */
final class Handshake
{
    private const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    private const HEAD_BYTES_MAX = 65536;
    private const OURS = [
        'host', 'upgrade', 'connection', 'sec-websocket-key', 'sec-websocket-version', 'sec-websocket-protocol',
        'sec-websocket-extensions', 'content-length', 'transfer-encoding',
    ];

    private string $received = '';

    /**
     * @param array<string, string> $headers
     * @param list<string> $protocols
     * @param string $key Base64 of 16 bytes.
     * @throws CallerException
     */
    public function __construct(
        private readonly Address $address,
        private readonly array $headers,
        private readonly array $protocols,
        private readonly string $key,
    ) {
        foreach ($headers as $name => $value) {
            $isName = preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', (string) $name) === 1;
            if (!$isName || preg_match('/[\r\n\0]/', $value) === 1) {
                throw new CallerException("bad header \"$name\"");
            }
            if (in_array(strtolower((string) $name), self::OURS, true)) {
                throw new CallerException("the header $name is reserved for the handshake");
            }
        }
        foreach ($protocols as $protocol) {
            if (preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', $protocol) !== 1) {
                throw new CallerException("bad subprotocol \"$protocol\"");
            }
        }
    }

    public function request(): string
    {
        $lines = [
            "GET {$this->address->target} HTTP/1.1",
            "Host: {$this->address->authority()}",
            'Upgrade: websocket',
            'Connection: Upgrade',
            "Sec-WebSocket-Key: $this->key",
            'Sec-WebSocket-Version: 13',
        ];
        if ($this->protocols !== []) {
            $lines[] = 'Sec-WebSocket-Protocol: ' . implode(', ', $this->protocols);
        }
        foreach ($this->headers as $name => $value) {
            $lines[] = "$name: $value";
        }
        return implode("\r\n", $lines) . "\r\n\r\n";
    }

    /**
     * Takes bytes of the response. Returns null until its head is complete, then the chosen
     * subprotocol, or an empty string for none, and the bytes after the head.
     *
     * @return array{string, string}|null
     * @throws VecheException if the server refuses
     */
    public function take(string $bytes): ?array
    {
        $this->received .= $bytes;
        $end = strpos($this->received, "\r\n\r\n");
        if ($end === false) {
            if (strlen($this->received) > self::HEAD_BYTES_MAX) {
                throw self::broken('the head of the response is too long');
            }
            return null;
        }
        $lines = explode("\r\n", substr($this->received, 0, $end));
        $rest = substr($this->received, $end + 4);
        if (preg_match('#^HTTP/1\.1 (\d{3})(?: (.*))?$#', $lines[0], $status) !== 1) {
            throw self::broken('the response has no status line');
        }
        $headers = [];
        foreach (array_slice($lines, 1) as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[strtolower($name)] = trim($value);
        }
        if ($status[1] !== '101') {
            throw self::refusal((int) $status[1], $status[2] ?? '', $headers, $rest);
        }
        $this->check($headers);
        return [$headers['sec-websocket-protocol'] ?? '', $rest];
    }

    /**
     * @param array<string, string> $headers
     */
    private function check(array $headers): void
    {
        $accept = base64_encode(sha1($this->key . self::GUID, true));
        $chosen = $headers['sec-websocket-protocol'] ?? null;
        $problem = match (true) {
            strtolower($headers['upgrade'] ?? '') !== 'websocket' => 'no Upgrade: websocket',
            !preg_match('/(?:^|,)\s*upgrade\s*(?:,|$)/i', $headers['connection'] ?? '') => 'no Connection: Upgrade',
            ($headers['sec-websocket-accept'] ?? '') !== $accept => 'a wrong Sec-WebSocket-Accept',
            isset($headers['sec-websocket-extensions']) => 'an extension that was not offered',
            $chosen !== null && !in_array($chosen, $this->protocols, true) => 'a subprotocol that was not offered',
            default => null,
        };
        if ($problem !== null) {
            throw self::broken("the response has $problem");
        }
    }

    /**
     * @param array<string, string> $headers
     */
    private static function refusal(int $status, string $words, array $headers, string $body): VecheException
    {
        $why = trim(strtok($body, "\n") ?: $words);
        $message = "the handshake was refused with status $status: $why";
        $seconds = $headers['retry-after'] ?? '';
        $retryAfter = preg_match('/^\d{1,6}$/', $seconds) === 1 ? (float) $seconds : null;
        return match (true) {
            $status === 429 => new RateLimitException($message, $status, $retryAfter),
            $status >= 500 => new UnavailableException($message, $status, $retryAfter),
            default => new CallerException($message, $status),
        };
    }

    private static function broken(string $why): ProtocolException
    {
        return new ProtocolException("the WebSocket handshake failed: $why", 1002);
    }
}

namespace Veche\WebSocket;

/**
 * A message: text, or bytes.
 */
final class Message
{
    public function __construct(public readonly string $data, public readonly bool $isBinary = false)
    {
    }
}

namespace Veche\WebSocket;

/**
 * The kind of a frame (RFC 6455, section 5.2).
 *
 * @internal
 */
enum Opcode: int
{
    case Continuation = 0;
    case Text = 1;
    case Binary = 2;
    case Close = 8;
    case Ping = 9;
    case Pong = 10;

    public function isControl(): bool
    {
        return $this->value >= self::Close->value;
    }
}

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

namespace Veche\WebSocket;

/**
 * Validates a text that arrives in parts.
 *
 * @internal
 */
final class Utf8
{
    /** The beginning of an incomplete character. */
    private string $open = '';

    /**
     * Validates the next part. Returns false as soon as no further bytes can make the text valid.
     */
    public function feed(string $part): bool
    {
        $text = $this->open . $part;
        // A character has at most four bytes, so an incomplete one has at most three.
        for ($cut = 0; $cut <= min(3, strlen($text)); $cut++) {
            $whole = $cut === 0 ? $text : substr($text, 0, -$cut);
            if (preg_match('//u', $whole) === 1) {
                $this->open = substr($text, strlen($whole));
                return $cut === 0 || self::isPrefix($this->open);
            }
        }
        return false;
    }

    /**
     * Returns whether the text may end here.
     */
    public function isComplete(): bool
    {
        return $this->open === '';
    }

    /**
     * Returns whether the bytes are the beginning of one character (RFC 3629, section 4).
     */
    private static function isPrefix(string $bytes): bool
    {
        $pattern = '/^(?:[\xc2-\xdf]|\xe0(?:[\xa0-\xbf])?|[\xe1-\xec\xee\xef](?:[\x80-\xbf])?|\xed(?:[\x80-\x9f])?'
            . '|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3](?:[\x80-\xbf][\x80-\xbf]?)?'
            . '|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?)$/D';
        return preg_match($pattern, $bytes) === 1;
    }
}

namespace Veche\Worker;

use Closure;
use Veche\Binary;
use Veche\Exception\CallerException;
use Veche\Json;

/**
 * The effects that a handler requests, in order, and their data.
 *
 * @internal
 */
class Effects
{
    /** Maximum number of effects in one frame. */
    private const EFFECTS_MAX = 4096;

    /** @var list<array<string, mixed>|string> Effects as arrays, or as JSON. */
    private array $heads = [];
    /** @var list<string> */
    private array $parts = [];
    private int $bytes = 0;

    /**
     * @param int $id The id of the event.
     * @param Closure(self): void $flush Sends the effects so far; is called when a frame has no room for more.
     */
    public function __construct(
        public int $id,
        protected Closure $flush,
        protected int $bytesMax,
    ) {
    }

    /**
     * @param array<string, mixed>|string $head An effect, or its JSON. The caller has passed its data to
     *     {@see keep()}.
     */
    public function add(array|string $head): void
    {
        $this->heads[] = $head;
        if (count($this->heads) === self::EFFECTS_MAX) {
            ($this->flush)($this);
        }
    }

    /**
     * Adds data and returns the number of the part that contains the data. Data equal to the last part are not
     * added again, so that a message to many connections is transferred once.
     */
    public function keep(string $data): int
    {
        $count = count($this->parts);
        if ($count > 0 && $this->parts[$count - 1] === $data) {
            return $count - 1;
        }
        $length = strlen($data);
        if ($this->heads !== [] && $this->bytes + $length > $this->bytesMax) {
            ($this->flush)($this);
        }
        $this->parts[] = $data;
        $this->bytes += $length;
        return count($this->parts) - 1;
    }

    /**
     * Adds the data of a publication: text, bytes, or anything else as JSON. Returns the members of an effect that
     * refer to the data.
     *
     * @return array{data: int, data_kind?: string}
     */
    public function data(mixed $data): array
    {
        return match (true) {
            is_string($data) => ['data' => $this->keep($data)],
            $data instanceof Binary => ['data_kind' => 'binary', 'data' => $this->keep($data->bytes)],
            default => ['data_kind' => 'json', 'data' => $this->keep(Json::encode($data))],
        };
    }

    public function isEmpty(): bool
    {
        return $this->heads === [];
    }

    /**
     * Returns the members `effects` and `parts` of a frame's head as JSON, each with a comma before it, and the
     * parts. Then removes all effects.
     *
     * @return array{string, list<string>}
     * @throws CallerException if JSON can't express an effect
     */
    public function take(): array
    {
        $heads = $this->heads;
        $parts = $this->parts;
        $this->heads = [];
        $this->parts = [];
        $this->bytes = 0;
        if (count($heads) === 1 && is_string($heads[0]) && count($parts) <= 1) {
            return [",\"effects\":[$heads[0]]", $parts];
        }
        $json = '';
        foreach ($heads as $head) {
            $json .= ($json === '' ? ',"effects":[' : ',') . (is_string($head) ? $head : Json::encode($head));
        }
        if ($json !== '') {
            $json .= ']';
        }
        if (count($parts) > 1) {
            $json .= ',"parts":[' . implode(',', array_map(strlen(...), $parts)) . ']';
        }
        return [$json, $parts];
    }
}

namespace Veche\Worker;

use Closure;
use Fiber;
use Throwable;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Json;

/**
 * A worker's side of the runtime protocol: bytes in, handlers in Fibers, bytes out. It does no I/O and reads no clock.
 *
 * Events of one connection are handled in order, one at a time. At most `concurrency` events are handled at once.
 *
 * @internal
 */
final class Engine
{
    private const VERSION = 1;

    private static ?self $current = null;

    /** @var array<string, true>|null Names of the events that are handled; null: all. */
    private readonly ?array $events;
    /** @var Closure(Effects): void Writes the effects of a running handler. */
    private readonly Closure $flush;
    private FrameDecoder $decoder;
    /** @var list<string> Pieces of output, joined only when taken, so that payloads are copied once. */
    private array $output = [];
    /** @var array<int, Handling> Events that have begun, by id. */
    private array $running = [];
    /**
     * @var array<int, Handling> Events that have not begun, by id, in the order of their arrival.
     */
    private array $waiting = [];
    /** @var array<string, true> Connections whose event is being handled. */
    private array $busy = [];
    /** @var array<int, Handling> Handlers that wait for the result of a call, by the call's id. */
    private array $calls = [];
    /** @var list<array{float, Handling}> Sleeping handlers, each with the time at which it continues. */
    private array $timers = [];
    /** @var list<Fiber<mixed, mixed, mixed, mixed>> Fibers without an event, for reuse. */
    private array $idle = [];
    private ?Handling $active = null;
    /** Number of nested Fibers, each resumed by the previous one. */
    private int $depth = 0;
    private int $lastCall = 0;
    private bool $isStopped = false;
    private int $headBytesMax = 1 << 20;
    private int $payloadBytesMax = 16 << 20;
    /** @var array<string, mixed> The members of Veche's welcome. */
    private array $welcome = [];

    /**
     * @param list<string>|null $events Names of the events that are handled; null: all events, and no hello is sent.
     * @param Closure(Handling): array<string, mixed> $handle Returns further members of the answer's head. The
     *     `Handling` keeps the data to which these members refer.
     * @param bool $canCall Whether handlers can make calls, because results can arrive.
     */
    public function __construct(
        ?array $events,
        private readonly int $concurrency,
        private readonly Closure $handle,
        public readonly bool $canCall = true,
    ) {
        $this->decoder = new FrameDecoder();
        $this->events = $events === null ? null : array_fill_keys($events, true);
        $this->flush = function (Effects $effects): void {
            [$members, $parts] = $effects->take();
            $this->join('{"type":"effects","id":' . $effects->id . $members . '}', $parts);
        };
        if ($events === null) {
            return;
        }
        $this->write(array_filter([
            'type' => 'hello',
            'versions' => [self::VERSION],
            'sdk' => 'veche-php/0.1.0',
            'pid' => getmypid() ?: null,
            'events' => $events,
            'concurrency' => $concurrency > 1 ? $concurrency : null,
        ], static fn (mixed $one): bool => $one !== null));
    }

    /**
     * Returns the engine of the current handler.
     *
     * @throws CallerException outside of handlers
     */
    public static function current(): self
    {
        return self::$current ?? throw new CallerException('this call is only possible in a handler of a worker');
    }

    /**
     * Accepts bytes from Veche, and runs handlers as far as possible.
     *
     * @throws VecheException if Veche refuses the worker, or if the peer is not Veche
     */
    public function receive(string $bytes): void
    {
        $this->decoder->feed($bytes);
        $this->begin();
    }

    /**
     * Returns the bytes to be written, and removes them from the engine.
     */
    public function takeOutput(): string
    {
        $output = implode('', $this->output);
        $this->output = [];
        return $output;
    }

    /**
     * Returns the time at which the next sleeping handler is due; null if none sleeps.
     */
    public function wakesAt(): ?float
    {
        return $this->timers === [] ? null : min(array_column($this->timers, 0));
    }

    /**
     * Continues handlers whose sleep is over.
     */
    public function wake(float $now): void
    {
        $due = array_filter($this->timers, static fn (array $timer): bool => $timer[0] <= $now);
        usort($due, static fn (array $a, array $b): int => $a[0] <=> $b[0]);
        $this->timers = array_values(array_filter($this->timers, static fn (array $timer): bool => $timer[0] > $now));
        foreach ($due as [, $handling]) {
            $this->resume($handling, null);
        }
        $this->begin();
    }

    /**
     * Returns whether the worker has to end: it was requested to stop, and no event is being handled.
     */
    public function isOver(): bool
    {
        return $this->isStopped && $this->running === [] && $this->waiting === [];
    }

    /**
     * Returns the members of Veche's welcome, such as `app`, `instance` and `options`.
     *
     * @return array<string, mixed>
     */
    public function welcome(): array
    {
        return $this->welcome;
    }

    /**
     * Returns the effects of the current handler.
     */
    public function effects(): Effects
    {
        return $this->active();
    }

    /**
     * Suspends the current handler until `$time`, in seconds.
     */
    public function sleepUntil(float $time): void
    {
        $handling = $this->active();
        $this->timers[] = [$time, $handling];
        Fiber::suspend();
    }

    /**
     * Makes a call and suspends the current handler until the result arrives.
     *
     * @param array<string, mixed> $head Members of the call's frame; members that are null are left out.
     * @throws VecheException if it fails
     */
    public function call(string $call, array $head, ?string $data = null): Frame
    {
        if (!$this->canCall) {
            $why = match ($call) {
                'mysql', 'redis', 'http' => 'the pools of Veche need runtime = "php"; use a PHP extension instead',
                'api' => '[[app]] needs api_url and api_key_file',
                default => 'this call needs runtime = "php"',
            };
            throw new CallerException("$call: not possible under FastCGI: $why");
        }
        $handling = $this->active();
        $id = ++$this->lastCall;
        // Effects that the handler requested earlier are sent before the call.
        if (!$handling->isEmpty()) {
            ($this->flush)($handling);
        }
        $members = ['type' => 'call', 'id' => $id, 'event' => $handling->id, 'call' => $call] + $head;
        $members += ['data' => $data === null ? null : 0];
        $this->write(
            array_filter($members, static fn (mixed $one): bool => $one !== null),
            $data === null ? [] : [$data],
        );
        $this->calls[$id] = $handling;
        $result = Fiber::suspend();
        $error = $result->head['error'] ?? null;
        if ($error !== null) {
            throw self::fault($call, $error);
        }
        return $result;
    }

    /**
     * Writes the answers of handlers that are interrupted by the end of the process. The answers also announce that the
     * process accepts no further events.
     */
    public function fail(string $why): void
    {
        foreach ($this->running as $handling) {
            $this->answer($handling, ['failed' => $why, 'last' => true]);
        }
    }

    private function active(): Handling
    {
        return $this->active ?? throw new CallerException('this call is only possible in a handler of a worker');
    }

    /**
     * Accepts a frame. Returns the event in it, if there is one.
     */
    private function take(Frame $frame): ?Handling
    {
        $head = $frame->head;
        switch ($head['type']) {
            case 'event':
                $handling = new Handling($frame, $this->flush, $this->payloadBytesMax);
                if ($handling->event === 'stop') {
                    $this->isStopped = true;
                }
                return $handling;
            case 'welcome':
                $this->welcome = $head;
                $this->headBytesMax = $head['head_bytes_max'] ?? $this->headBytesMax;
                $this->payloadBytesMax = $head['payload_bytes_max'] ?? $this->payloadBytesMax;
                return null;
            case 'refuse':
                throw new CallerException('Veche refuses this worker: ' . ($head['message'] ?? 'Veche gave no reason'));
            case 'result':
                $waiting = $this->calls[$head['id']] ?? null;
                unset($this->calls[$head['id']]);
                if ($waiting !== null) {
                    $this->resume($waiting, $frame);
                }
                return null;
            case 'cancel':
                // A cancellation is ignored, since the server expects an answer to a cancelled event too.
                return null;
            default:
                throw new ServerException("Veche sent a frame of the unknown type \"{$head['type']}\"");
        }
    }

    /**
     * Starts the handlers of all events that {@see next()} returns.
     */
    private function begin(): void
    {
        while (($handling = $this->next()) !== null) {
            $this->enter($handling);
            $handling->fiber = array_pop($this->idle) ?? new Fiber($this->work(...));
            $this->resume($handling, $handling);
        }
    }

    /**
     * Returns the next event whose handler may start now. Decodes frames until there is such an event.
     */
    private function next(): ?Handling
    {
        while (true) {
            if ($this->waiting !== [] && count($this->running) < $this->concurrency) {
                foreach ($this->waiting as $place => $handling) {
                    if ($handling->subject === null || !isset($this->busy[$handling->subject])) {
                        unset($this->waiting[$place]);
                        return $handling;
                    }
                }
            }
            $frame = $this->decoder->next();
            if ($frame === null) {
                return null;
            }
            $handling = $this->take($frame);
            if ($handling === null) {
                continue;
            }
            if ($this->waiting === [] && count($this->running) < $this->concurrency) {
                if ($handling->subject === null || !isset($this->busy[$handling->subject])) {
                    return $handling;
                }
            }
            // Ids increase in the order of arrival.
            $this->waiting[$handling->id] = $handling;
        }
    }

    private function enter(Handling $handling): void
    {
        $this->running[$handling->id] = $handling;
        // With a concurrency of 1, a connection never has two events at once.
        if ($this->concurrency > 1 && $handling->subject !== null) {
            $this->busy[$handling->subject] = true;
        }
    }

    /**
     * Handles events one after the other. A switch of Fibers costs more than most handlers, so a Fiber continues with
     * the next event itself; if a handler suspends it, another Fiber takes over. A Fiber that another Fiber has
     * resumed returns to that Fiber.
     */
    private function work(Handling $handling): never
    {
        while (true) {
            try {
                $isHandled = $this->events === null || isset($this->events[$handling->event]);
                $this->answer($handling, $isHandled ? ($this->handle)($handling) : []);
            } catch (Throwable $error) {
                $this->answer($handling, ['failed' => self::described($error)]);
            }
            $fiber = $handling->fiber;
            $handling->fiber = null;
            $next = $this->depth === 1 ? $this->next() : null;
            if ($next === null) {
                $this->idle[] = $fiber;
                $handling = Fiber::suspend();
                continue;
            }
            $this->enter($next);
            $next->fiber = $fiber;
            $this->active = $next;
            $handling = $next;
        }
    }

    private function resume(Handling $handling, Handling|Frame|null $with): void
    {
        $before = $this->active;
        $outer = self::$current;
        $this->active = $handling;
        self::$current = $this;
        $this->depth++;
        try {
            $fiber = $handling->fiber;
            $fiber->isStarted() ? $fiber->resume($with) : $fiber->start($with);
        } finally {
            $this->depth--;
            $this->active = $before;
            self::$current = $outer;
        }
    }

    /**
     * @param array<string, mixed> $members
     */
    private function answer(Handling $handling, array $members): void
    {
        $head = '{"type":"answer","id":' . $handling->id;
        try {
            [$effects, $parts] = $handling->take();
            $rest = $members === [] ? '' : ',' . substr(Json::encode($members), 1, -1);
            $this->join("$head$effects$rest}", $parts);
        } catch (CallerException $error) {
            // The answer is too long or can't be expressed in JSON, so none of it is carried out.
            $last = array_intersect_key($members, ['last' => true]);
            $this->write(['type' => 'answer', 'id' => $handling->id, 'failed' => $error->getMessage()] + $last);
        }
        unset($this->running[$handling->id]);
        if ($this->concurrency > 1 && $handling->subject !== null) {
            unset($this->busy[$handling->subject]);
        }
    }

    /**
     * @param array<string, mixed> $head
     * @param list<string> $parts
     */
    private function write(array $head, array $parts = []): void
    {
        $this->output[] = Frame::encode($head, $parts, $this->headBytesMax, $this->payloadBytesMax);
    }

    /**
     * @param list<string> $parts
     */
    private function join(string $head, array $parts): void
    {
        $payload = count($parts) === 1 ? $parts[0] : implode('', $parts);
        $this->output[] = Frame::prefix($head, $payload, $this->headBytesMax, $this->payloadBytesMax) . $head;
        $this->output[] = $payload;
    }

    /**
     * @param array<string, mixed> $error
     */
    private static function fault(string $call, array $error): VecheException
    {
        $message = "$call: " . ($error['message'] ?? 'the call failed');
        $code = $error['code'] ?? 0;
        $name = is_string($code) ? $code : null;
        $number = is_int($code) ? $code : 0;
        return match ($error['kind'] ?? '') {
            'timeout' => new TimeoutException($message, $number, true, null, $name),
            'unreachable' => new NetworkException($message, $number, false, null, $name),
            'connection_lost' => new NetworkException($message, $number, true, null, $name),
            'pool_full' => new UnavailableException($message, $number, null, null, $name),
            'broken' => new ServerException($message, $number, true, null, $name),
            default => ($error['retryable'] ?? false)
                ? new UnavailableException($message, $number, null, null, $name)
                : new CallerException($message, $number, false, null, $name),
        };
    }

    /**
     * Returns an error with its location and its trace, for the log.
     */
    public static function described(Throwable $error): string
    {
        return sprintf(
            "%s: %s in %s:%d\n%s",
            $error::class,
            $error->getMessage(),
            $error->getFile(),
            $error->getLine(),
            $error->getTraceAsString(),
        );
    }
}

namespace Veche\Worker;

use JsonException;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;
use Veche\Json;

/**
 * A frame between Veche and a worker: a head in JSON and a payload of bytes, which consists of parts.
 *
 * Objects that are created for each event have no readonly properties, because PHP initializes such properties more
 * slowly.
 *
 * @internal
 */
final class Frame
{
    /** Length of the prefix before the head: the lengths of head and payload, little-endian. */
    public const PREFIX_BYTES = 8;

    /**
     * The parts of the head of a message's event as Veche writes it: the beginning, the text after the event's id, the
     * text before the user, and the end for a text and for a binary message.
     */
    private const EVENT = '{"type":"event","id":';
    private const CONNECTION = ',"event":"message","connection":"';
    private const USER = '","user":"';
    private const TEXT = '","data_kind":"text","data":0}';
    private const BINARY = '","data_kind":"binary","data":0}';

    /**
     * @param array<string, mixed> $head
     */
    public function __construct(public array $head, public string $payload = '')
    {
    }

    /**
     * Encodes a frame. Parts are numbered from 0; if there are several, the head has their lengths.
     *
     * @param array<string, mixed> $head
     * @param list<string> $parts
     * @throws CallerException if the head or the payload is longer than Veche takes
     */
    public static function encode(array $head, array $parts, int $headBytesMax, int $payloadBytesMax): string
    {
        if (count($parts) > 1) {
            $head['parts'] = array_map(strlen(...), $parts);
        }
        $json = Json::encode($head);
        $payload = count($parts) === 1 ? $parts[0] : implode('', $parts);
        return self::prefix($json, $payload, $headBytesMax, $payloadBytesMax) . $json . $payload;
    }

    /**
     * Returns the prefix for an encoded head and its payload.
     *
     * @throws CallerException if the head or the payload is longer than Veche takes
     */
    public static function prefix(string $head, string $payload, int $headBytesMax, int $payloadBytesMax): string
    {
        $headBytes = strlen($head);
        $payloadBytes = strlen($payload);
        if ($headBytes > $headBytesMax || $payloadBytes > $payloadBytesMax) {
            throw new CallerException('the frame has more effects or data than Veche accepts');
        }
        return pack('VV', $headBytes, $payloadBytes);
    }

    /**
     * @throws ServerException if the head is no JSON object
     */
    public static function read(string $head, string $payload): self
    {
        $values = self::message($head);
        if ($values !== null) {
            return new self($values, $payload);
        }
        try {
            $values = json_decode($head, true, 64, JSON_THROW_ON_ERROR | JSON_BIGINT_AS_STRING);
        } catch (JsonException $error) {
            throw new ServerException("the head of a frame is not JSON: {$error->getMessage()}", 0, false, $error);
        }
        if (!is_array($values) || !is_string($values['type'] ?? null)) {
            throw new ServerException('the head of a frame has no type');
        }
        return new self($values, $payload);
    }

    /**
     * Returns the part with the given number; null if `$number` is null.
     *
     * @throws ServerException if the frame has no part with this number
     */
    public function part(?int $number): ?string
    {
        $lengths = $this->head['parts'] ?? [];
        if ($number === null || ($lengths === [] && $number === 0)) {
            return $number === null ? null : $this->payload;
        }
        if (!isset($lengths[$number]) || array_sum($lengths) !== strlen($this->payload)) {
            throw new ServerException("a frame has no part $number");
        }
        return substr($this->payload, array_sum(array_slice($lengths, 0, $number)), $lengths[$number]);
    }

    /**
     * Decodes the head of a message's event. Returns null if it has other fields or another form,
     * so that it must be decoded as JSON.
     *
     * @return array<string, mixed>|null
     */
    private static function message(string $head): ?array
    {
        if (!str_starts_with($head, self::EVENT)) {
            return null;
        }
        $kind = 'text';
        $end = -strlen(self::TEXT);
        if (!str_ends_with($head, self::TEXT)) {
            if (!str_ends_with($head, self::BINARY)) {
                return null;
            }
            $kind = 'binary';
            $end = -strlen(self::BINARY);
        }
        $at = strpos($head, self::CONNECTION);
        if ($at === false) {
            return null;
        }
        $digits = substr($head, strlen(self::EVENT), $at - strlen(self::EVENT));
        $id = (int) $digits;
        $connection = substr($head, $at + strlen(self::CONNECTION), $end);
        if ((string) $id !== $digits || $connection === '') {
            return null;
        }
        // A JSON string without quotes and escapes is equal to its value.
        if (strpbrk($connection, '"\\') === false) {
            return [
                'type' => 'event', 'id' => $id, 'event' => 'message', 'connection' => $connection,
                'data_kind' => $kind, 'data' => 0,
            ];
        }
        [$connection, $user] = explode(self::USER, $connection, 2) + [1 => '"'];
        if (strpbrk($connection, '"\\') !== false || strpbrk($user, '"\\') !== false) {
            return null;
        }
        return [
            'type' => 'event', 'id' => $id, 'event' => 'message', 'connection' => $connection, 'user' => $user,
            'data_kind' => $kind, 'data' => 0,
        ];
    }
}

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

namespace Veche\Worker;

use Closure;
use Fiber;

/**
 * An event that a handler processes, and the effects that the handler requests.
 *
 * @internal
 */
final class Handling extends Effects
{
    public string $event;
    /** The connection or client whose events are handled in order; null if the event has none. */
    public ?string $subject;
    /** @var Fiber<mixed, mixed, mixed, mixed>|null */
    public ?Fiber $fiber = null;

    /**
     * @param Closure(Effects): void $flush
     */
    public function __construct(public Frame $frame, Closure $flush, int $bytesMax)
    {
        $head = $frame->head;
        // The fields are set here because a call of parent::__construct() would take a tenth of the time that a message
        // costs.
        $this->id = $head['id'];
        $this->flush = $flush;
        $this->bytesMax = $bytesMax;
        $this->event = $head['event'];
        $this->subject = $head['connection'] ?? $head['client']['id'] ?? null;
    }
}

namespace Veche\Worker;

use Veche\Exception\VecheException;

/**
 * Handles the event of a FastCGI request: the request's body is the event's frame, and the response's body has the
 * frames of the handler.
 *
 * @internal
 */
final class RequestRunner
{
    public const VERSION = '1';

    private bool $isWritten = false;

    public function __construct(private readonly Engine $engine)
    {
    }

    /**
     * Returns whether this process serves a request made by Veche. Clients of a web server can't imitate Veche:
     * their headers reach PHP as `HTTP_…`.
     *
     * @param array<string, mixed> $server `$_SERVER`.
     */
    public static function isMeant(array $server): bool
    {
        return PHP_SAPI !== 'cli' && isset($server['VECHE_PROTOCOL']);
    }

    /**
     * Returns the frames that result from an event's frame, up to its answer.
     *
     * @throws VecheException if `$frame` is not the frame of an event
     */
    public function handle(string $frame): string
    {
        $this->engine->takeOutput();
        $this->engine->receive($frame);
        while (($wakesAt = $this->engine->wakesAt()) !== null) {
            usleep((int) max(0, ($wakesAt - Runner::now()) * 1e6));
            $this->engine->wake(Runner::now());
        }
        return $this->engine->takeOutput();
    }

    /**
     * Serves the request. Output of handlers goes to the log.
     *
     * @param array<string, mixed> $server `$_SERVER`.
     */
    public function run(array $server, string $body): void
    {
        ob_start();
        // With `display_errors`, PHP would print fatal errors between the frames in spite of output buffers. Fatal
        // errors are logged in any case.
        ini_set('display_errors', '0');
        if ($server['VECHE_PROTOCOL'] !== self::VERSION) {
            $this->write(501, 'this SDK speaks version ' . self::VERSION . " of the runtime protocol\n");
            return;
        }
        register_shutdown_function($this->interrupted(...));
        try {
            $frames = $this->handle($body);
        } catch (VecheException $error) {
            $this->write(400, $error->getMessage() . "\n");
            return;
        }
        $this->write(200, $frames);
    }

    /**
     * Answers an event whose handler has ended the process.
     */
    private function interrupted(): void
    {
        if (!$this->isWritten) {
            $this->engine->fail(Runner::endOfProcess());
            $this->write(200, $this->engine->takeOutput());
        }
    }

    private function write(int $status, string $body): void
    {
        $this->isWritten = true;
        $printed = '';
        while (ob_get_level() > 0) {
            $printed = ob_get_clean() . $printed;
        }
        if ($printed !== '') {
            error_log(rtrim($printed));
        }
        http_response_code($status);
        header('Content-Type: ' . ($status === 200 ? 'application/octet-stream' : 'text/plain'));
        header('Content-Length: ' . strlen($body));
        echo $body;
    }
}

namespace Veche\Worker;

use Veche\Exception\NetworkException;

/**
 * Transfers bytes between an {@see Engine} and Veche's descriptor.
 *
 * @internal
 */
final class Runner
{
    private const READ_BYTES = 262144;
    private const FATAL = E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR;

    /** The runner of this process while it runs. */
    private static ?self $current = null;
    private static bool $isWatching = false;

    /**
     * @param resource $stream
     */
    public function __construct(private $stream, private readonly Engine $engine)
    {
        // A blocking read returns as soon as bytes arrive. A write may block, since Veche never
        // stops reading.
        stream_set_blocking($stream, true);
        // With PHP's default_socket_timeout a read would end early, which an idle worker would take
        // for the end of the stream.
        stream_set_timeout($stream, -1);
        stream_set_read_buffer($stream, 0);
        stream_set_write_buffer($stream, 0);
    }

    /**
     * Runs until Veche stops the worker or ends. If a handler ends the process, its event is
     * answered first.
     */
    public function run(): void
    {
        self::watchEnd();
        self::$current = $this;
        $this->loop();
        self::$current = null;
    }

    /**
     * Makes the runner answer the current events if the process ends during a handler. PHP calls shutdown functions in
     * the order in which they were registered, so this is called before the application registers its own.
     */
    public static function watchEnd(): void
    {
        if (!self::$isWatching) {
            self::$isWatching = true;
            register_shutdown_function(static fn () => self::$current?->interrupted());
        }
    }

    private function loop(): void
    {
        while (true) {
            $this->write($this->engine->takeOutput());
            if ($this->engine->isOver()) {
                return;
            }
            $wakesAt = $this->engine->wakesAt();
            if ($wakesAt === null || $this->await($wakesAt)) {
                $bytes = fread($this->stream, self::READ_BYTES);
                if ($bytes === '' || $bytes === false) {
                    return;
                }
                $this->engine->receive($bytes);
            }
            if ($wakesAt !== null) {
                $this->engine->wake(self::now());
            }
        }
    }

    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /**
     * Returns the reason why the process ends during a handler.
     */
    public static function endOfProcess(): string
    {
        $last = error_get_last();
        return $last !== null && ($last['type'] & self::FATAL) !== 0
            ? "{$last['message']} in {$last['file']}:{$last['line']}"
            : 'a handler has ended the process by exit or die';
    }

    private function interrupted(): void
    {
        $this->engine->fail(self::endOfProcess());
        @fwrite($this->stream, $this->engine->takeOutput());
    }

    private function await(float $until): bool
    {
        $left = max(0.0, $until - self::now());
        $seconds = (int) $left;
        $read = [$this->stream];
        $write = $except = [];
        return @stream_select($read, $write, $except, $seconds, (int) ceil(($left - $seconds) * 1e6)) === 1;
    }

    private function write(string $bytes): void
    {
        while ($bytes !== '') {
            $written = @fwrite($this->stream, $bytes);
            if ($written === false || $written === 0) {
                throw new NetworkException('Veche closed the connection to this worker', 0, true);
            }
            $bytes = substr($bytes, $written);
        }
    }
}

namespace Veche\Worker;

use Veche\Binary;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;

/**
 * Converts values of databases to and from bytes, in the form of the runtime protocol.
 *
 * @internal
 */
final class Values
{
    private const NULL = 0;
    private const FALSE = 1;
    private const TRUE = 2;
    private const NUMBER = 3;
    private const BYTES = 4;
    private const LIST = 5;
    private const MAP = 6;
    private const ERROR = 7;

    /** Up to this value every integer is exact as a 64-bit float. */
    private const WHOLE_MAX = 1 << 53;

    private int $at = 0;

    private function __construct(private readonly string $bytes)
    {
    }

    /**
     * @param iterable<mixed> $values
     * @throws CallerException
     */
    public static function encode(iterable $values): string
    {
        $bytes = '';
        foreach ($values as $value) {
            $bytes .= self::one($value);
        }
        return $bytes;
    }

    /**
     * @return list<mixed>
     * @throws ServerException
     */
    public static function decode(string $bytes): array
    {
        $reader = new self($bytes);
        $values = [];
        while ($reader->at < strlen($bytes)) {
            $values[] = $reader->next();
        }
        return $values;
    }

    /**
     * Encodes one value. It may also be a list or a map, which occur in results of Redis.
     */
    public static function one(mixed $value): string
    {
        return match (true) {
            $value === null => chr(self::NULL),
            is_bool($value) => chr($value ? self::TRUE : self::FALSE),
            is_int($value) && abs($value) > self::WHOLE_MAX => self::one((string) $value),
            is_int($value), is_float($value) => pack('Ce', self::NUMBER, $value),
            is_string($value) => pack('CV', self::BYTES, strlen($value)) . $value,
            $value instanceof Binary => self::one($value->bytes),
            is_array($value) && array_is_list($value)
                => pack('CV', self::LIST, count($value)) . self::encode($value),
            is_array($value) => pack('CV', self::MAP, count($value)) . implode('', array_map(
                static fn (string|int $key, mixed $one): string => self::one((string) $key) . self::one($one),
                array_keys($value),
                $value,
            )),
            default => throw new CallerException('a value must be null, a boolean, a number or a string'),
        };
    }

    private function next(): mixed
    {
        $kind = ord($this->take(1));
        switch ($kind) {
            case self::NULL:
                return null;
            case self::FALSE:
            case self::TRUE:
                return $kind === self::TRUE;
            case self::NUMBER:
                $number = unpack('e', $this->take(8))[1];
                $isWhole = floor($number) === $number && abs($number) <= self::WHOLE_MAX;
                return $isWhole ? (int) $number : $number;
            case self::BYTES:
                return $this->take($this->count());
            case self::LIST:
                return array_map(fn (): mixed => $this->next(), array_fill(0, $this->count(), null));
            case self::MAP:
                $map = [];
                for ($left = $this->count(); $left > 0; $left--) {
                    $key = $this->next();
                    $map[is_string($key) || is_int($key) ? $key : self::one($key)] = $this->next();
                }
                return $map;
            case self::ERROR:
                return new CallerException($this->take($this->count()));
            default:
                throw new ServerException("a value of the unknown kind $kind");
        }
    }

    private function count(): int
    {
        return unpack('V', $this->take(4))[1];
    }

    private function take(int $length): string
    {
        $taken = substr($this->bytes, $this->at, $length);
        $this->at += $length;
        return strlen($taken) === $length ? $taken : throw new ServerException('a truncated value');
    }
}

namespace Veche\Worker;

use Veche\AbstractClient;
use Veche\Command;
use Veche\Exception\VecheException;
use Veche\Result\Reply;

/**
 * Calls of the API from within a handler, over the worker's own socket: without a key and HTTP. A call suspends its
 * handler.
 *
 * @internal
 */
final class WorkerClient extends AbstractClient
{
    public function run(Command $command): mixed
    {
        if ($command->method === 'batch') {
            return array_map($this->reply(...), $command->commands);
        }
        $result = Engine::current()->call('api', ['method' => $command->method], $command->body());
        return $command->answered((string) $result->part($result->head['data'] ?? 0));
    }

    /**
     * Within a worker process each command of a batch is a separate call.
     */
    private function reply(Command $command): Reply
    {
        try {
            return new Reply($this->run($command));
        } catch (VecheException $error) {
            return new Reply(null, $error);
        }
    }
}
