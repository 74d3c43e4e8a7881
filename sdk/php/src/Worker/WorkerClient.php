<?php

declare(strict_types=1);

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
