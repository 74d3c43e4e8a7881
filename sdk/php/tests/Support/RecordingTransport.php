<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

use Veche\Exception\VecheException;
use Veche\Http\Response;
use Veche\Http\Transport;

/**
 * Returns prepared responses, and records the requests.
 */
final class RecordingTransport implements Transport
{
    /** @var list<array{path: string, headers: array<string, string>, body: string}> */
    public array $sent = [];

    /** @var list<Response|VecheException> */
    private array $answers;

    public function __construct(Response|VecheException ...$answers)
    {
        $this->answers = array_values($answers);
    }

    public function post(string $path, array $headers, string $body, float $timeout): Response
    {
        $this->sent[] = ['path' => $path, 'headers' => $headers, 'body' => $body];
        $answer = array_shift($this->answers);
        if ($answer instanceof VecheException) {
            throw $answer;
        }
        return $answer ?? new Response(200, [], '{"result":{"handed":1}}');
    }
}
