<?php

declare(strict_types=1);

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
