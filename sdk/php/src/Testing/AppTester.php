<?php

declare(strict_types=1);

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
