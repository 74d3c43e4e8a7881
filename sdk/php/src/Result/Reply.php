<?php

declare(strict_types=1);

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
