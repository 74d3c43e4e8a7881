<?php
// Publishes a message to a channel, without any PHP extension: php publish.php chat:lobby "hello"

declare(strict_types=1);

if ($argc !== 3) {
    fwrite(STDERR, "usage: php publish.php CHANNEL MESSAGE\n");
    exit(2);
}

/** Returns the number of subscribers to which Veche passed the message; null with the engine on Redis, where it is unknown. */
function publish(string $channel, mixed $data): ?int
{
    $body = @file_get_contents((getenv('VECHE_API') ?: 'http://127.0.0.1:8081/api') . '/publish', false, stream_context_create(['http' => [
        'method' => 'POST',
        'header' => ['Content-Type: application/json', 'X-API-Key: ' . trim(file_get_contents(__DIR__ . '/api.key'))],
        'content' => json_encode(['channel' => $channel, 'data' => $data], JSON_THROW_ON_ERROR),
        'timeout' => 2,
        'ignore_errors' => true,
    ]]));
    $answer = json_decode($body ?: 'null', true);

    $result = $answer['result']
        ?? throw new RuntimeException($answer['error']['message'] ?? 'no answer from Veche');

    return $result['handed'] ?? null;
}

try {
    $handed = publish($argv[1], $argv[2]);
    echo $handed === null ? "published\n" : "handed to $handed\n";
} catch (RuntimeException | JsonException $error) {
    fwrite(STDERR, $error->getMessage() . "\n");
    exit(1);
}
