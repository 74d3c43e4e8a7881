<?php

declare(strict_types=1);

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
