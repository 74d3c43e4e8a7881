<?php

declare(strict_types=1);

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
