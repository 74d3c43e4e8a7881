<?php

declare(strict_types=1);

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
