<?php

declare(strict_types=1);

/**
 * Runs a program with its arguments. Errors go to standard error, and the exit status is 1.
 *
 * @param list<string> $names Names of the arguments.
 * @param callable(string ...): void $program
 */
function program(array $names, callable $program): never
{
    $arguments = array_slice($_SERVER['argv'], 1);
    if (count($arguments) !== count($names)) {
        fwrite(STDERR, "usage: php {$_SERVER['argv'][0]} " . implode(' ', $names) . "\n");
        exit(2);
    }
    try {
        $program(...$arguments);
    } catch (Veche\Exception\VecheException $error) {
        fwrite(STDERR, $error->getMessage() . "\n");
        exit(1);
    }
    exit(0);
}

/**
 * Sends one order over a WebSocket, and prints the server's error if there is one.
 *
 * @param array<string, string> $order
 */
function order(string $url, array $order): void
{
    $socket = Veche\WebSocket\Client::connect($url);
    $socket->send(json_encode($order, JSON_THROW_ON_ERROR));
    // A successful order gets no answer.
    $complaint = $socket->tryReceive(0.2);
    $socket->close();
    echo $complaint === null ? "sent\n" : "refused: $complaint->data\n";
}

/**
 * Returns an address from the environment.
 */
function address(string $name, string $default): string
{
    return getenv($name) ?: $default;
}
