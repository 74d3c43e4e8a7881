<?php

declare(strict_types=1);

namespace Veche;

use Closure;
use Veche\Exception\CallerException;
use Veche\Hook\Decision;
use Veche\Hook\Event;
use Veche\Hook\Grant;
use Veche\Worker\Engine;
use Veche\Worker\Handling;
use Veche\Worker\Runner;
use Veche\Worker\WorkerClient;

/**
 * An application behind Veche: handlers of what happens on connections. Veche holds the connections and starts this
 * program as a worker.
 *
 * ```php
 * $app = Veche\App::create();
 * $app->message(fn (Veche\Connection $conn, string $data) => $conn->send($data));
 * $app->run();
 * ```
 *
 * With `concurrency` above 1 a worker handles several events at once, each in a Fiber: `Veche\sleep` and calls of
 * {@see client()} let others go on. Events of one connection are handled one after the other.
 */
final class App
{
    /** @var array<string, Closure> */
    private array $handlers = [];
    private ?ClientInterface $client = null;

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
        return $concurrency >= 1 ? new self($concurrency) : throw new CallerException('concurrency is at least 1');
    }

    /**
     * Sets what is done before the first event.
     *
     * @param callable(App): void $handler
     */
    public function start(callable $handler): self
    {
        return $this->on('start', fn (Handling $handling): mixed => $handler($this));
    }

    /**
     * Sets what is done before the worker ends.
     *
     * @param callable(App): void $handler
     */
    public function stop(callable $handler): self
    {
        return $this->on('stop', fn (Handling $handling): mixed => $handler($this));
    }

    /**
     * Sets what decides about handshakes. Returning nothing lets the client in; false, or a {@see Response}, refuses
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
            $connection = self::own($handling, Request::from($handling->frame->head['request']));
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
     * Sets what handles messages.
     *
     * @param callable(Connection, string, bool): mixed $handler Gets the connection, the message, and whether it is
     *     binary. What it returns means nothing.
     */
    public function message(callable $handler): self
    {
        return $this->on('message', function (Handling $handling) use ($handler): void {
            $head = $handling->frame->head;
            $data = (string) $handling->frame->part($head['data'] ?? 0);
            $handler(self::own($handling), $data, ($head['data_kind'] ?? 'text') === 'binary');
        });
    }

    /**
     * Sets what is done when a connection has ended.
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
     * Sets what answers HTTP requests: with a {@see Response}, or a string that is sent as text.
     *
     * @param callable(Request): (Response|string) $handler
     */
    public function request(callable $handler): self
    {
        return $this->on('request', function (Handling $handling) use ($handler): array {
            $head = $handling->frame->head;
            $result = $handler(Request::from($head['request'], (string) $handling->frame->part($head['data'] ?? 0)));
            $response = is_string($result)
                ? new Response(200, $result, ['Content-Type' => 'text/plain; charset=utf-8'])
                : $result;
            if (!$response instanceof Response) {
                throw new CallerException('a request handler returns a Response or a string');
            }
            return ['reply' => self::responded($response, $handling)];
        });
    }

    /**
     * Sets what decides who connects, where clients of Centrifugo's protocol come without a token.
     *
     * @param callable(Event): (Decision|null|void) $handler Nothing grants it without more.
     */
    public function connect(callable $handler): self
    {
        return $this->hook('connect', $handler);
    }

    /**
     * Sets what decides whether a connection goes on at the end of its time.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function refresh(callable $handler): self
    {
        return $this->hook('refresh', $handler);
    }

    /**
     * Sets what decides who subscribes.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function subscribe(callable $handler): self
    {
        return $this->hook('subscribe', $handler);
    }

    /**
     * Sets what decides whether a subscription goes on at the end of its time.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function subRefresh(callable $handler): self
    {
        return $this->hook('sub_refresh', $handler);
    }

    /**
     * Sets what decides about publications of clients, and may change them.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function publish(callable $handler): self
    {
        return $this->hook('publish', $handler);
    }

    /**
     * Sets what answers calls of clients, with the data of a {@see Grant}.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function rpc(callable $handler): self
    {
        return $this->hook('rpc', $handler);
    }

    /**
     * Sets what handles messages of clients that expect no answer.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function clientMessage(callable $handler): self
    {
        return $this->hook('client_message', $handler);
    }

    /**
     * Sets what is done when a client of Centrifugo's protocol is gone.
     *
     * @param callable(Event): (Decision|null|void) $handler
     */
    public function disconnect(callable $handler): self
    {
        return $this->hook('disconnect', $handler);
    }

    /**
     * Returns a client for calls of the API in handlers, such as pushes and presence. It needs no key.
     *
     * ```php
     * $app->message(fn (Veche\Connection $conn, string $data) => $app->client()->publish('room:1', $data));
     * ```
     */
    public function client(): ClientInterface
    {
        return $this->client ?? new WorkerClient();
    }

    /**
     * Has {@see client()} return another one, such as a {@see Testing\FakeClient}.
     */
    public function useClient(ClientInterface $client): void
    {
        $this->client = $client;
    }

    /**
     * Returns a connection by its id, on whatever worker of Veche it is. What is wanted of one that is gone is dropped.
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
     * Pushes to all connections of a user, without an answer. {@see client()} pushes with one.
     */
    public function pushTo(string $user, mixed $data): void
    {
        $effects = Engine::current()->effects();
        $effects->add(['effect' => 'push', 'user' => $user] + $effects->data($data));
    }

    /**
     * Publishes to all subscribers of a channel, without an answer. {@see client()} publishes with one.
     */
    public function publishTo(string $channel, mixed $data): void
    {
        $effects = Engine::current()->effects();
        $effects->add(['effect' => 'publish', 'channel' => $channel] + $effects->data($data));
    }

    /**
     * Handles events until Veche stops the worker.
     *
     * @throws CallerException if the program was not started by Veche
     */
    public function run(): void
    {
        $descriptor = getenv('VECHE_FD');
        if (!is_string($descriptor) || preg_match('/^\d{1,4}$/', $descriptor) !== 1) {
            throw new CallerException('Veche starts this program: name it as the command of an [[app]]');
        }
        $stream = fopen("php://fd/$descriptor", 'r+');
        if ($stream === false) {
            throw new CallerException("descriptor $descriptor is not open");
        }
        $engine = $this->engine();
        register_shutdown_function(static function () use ($engine, $stream): void {
            $fatal = error_get_last();
            if ($fatal !== null && ($fatal['type'] & (E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR)) !== 0) {
                $engine->fail("{$fatal['message']} in {$fatal['file']}:{$fatal['line']}");
                @fwrite($stream, $engine->takeOutput());
            }
        });
        (new Runner($stream, $engine))->run();
    }

    /**
     * Returns the application as a machine of bytes.
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

    private function on(string $event, Closure $handler): self
    {
        if (isset($this->handlers[$event])) {
            throw new CallerException("there is a handler of \"$event\" already");
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
                return $isAnswered ? ['reply' => (new Grant())->reply($handling->effects)] : [];
            }
            if (!$decision instanceof Decision) {
                throw new CallerException('a handler of a command returns a Grant, a Refusal or a Disconnection');
            }
            return ['reply' => $decision->reply($handling->effects)];
        });
    }

    private static function own(Handling $handling, ?Request $request = null): Connection
    {
        $head = $handling->frame->head;
        return new Connection(
            $handling->effects,
            $head['connection'],
            $head['user'] ?? null,
            $head['attributes'] ?? [],
            $request,
        );
    }

    /**
     * @return array<string, mixed>
     */
    private static function responded(Response $response, Handling $handling): array
    {
        $headers = $response->headerList();
        return ['status' => $response->status]
            + ($headers === [] ? [] : ['headers' => $headers])
            + ($response->body === '' ? [] : ['body' => $handling->effects->keep($response->body)]);
    }
}
