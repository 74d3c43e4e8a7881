<?php
// Pushes a message to all connections of a user, without any extension: php push.php tester01 "hello"

declare(strict_types=1);

if ($argc !== 3) {
    fwrite(STDERR, "usage: php push.php USER MESSAGE\n");
    exit(2);
}

/** Returns the number of connections to which Veche passed the message; null with the engine on Redis, where it is unknown. */
function push(string $user, mixed $data): ?int
{
    $body = @file_get_contents((getenv('VECHE_API') ?: 'http://127.0.0.1:8081/api') . '/push', false, stream_context_create(['http' => [
        'method' => 'POST',
        'header' => ['Content-Type: application/json', 'X-API-Key: ' . trim(file_get_contents(__DIR__ . '/api.key'))],
        'content' => json_encode(['user' => $user, 'data' => $data], JSON_THROW_ON_ERROR),
        'timeout' => 2,
        'ignore_errors' => true,
    ]]));
    $answer = json_decode($body ?: 'null', true);

    $result = $answer['result']
        ?? throw new RuntimeException($answer['error']['message'] ?? 'no answer from Veche');

    return $result['handed'] ?? null;
}

try {
    $handed = push($argv[1], $argv[2]);
    echo $handed === null ? "published\n" : "handed to $handed\n";
} catch (RuntimeException | JsonException $error) {
    fwrite(STDERR, $error->getMessage() . "\n");
    exit(1);
}
