<?php

declare(strict_types=1);

namespace Veche\Worker;

use Veche\Exception\VecheException;

/**
 * Handles the event of a FastCGI request: the request's body is the event's frame, and the response's body has the
 * frames of the handler.
 *
 * @internal
 */
final class RequestRunner
{
    public const VERSION = '1';

    private bool $isWritten = false;

    public function __construct(private readonly Engine $engine)
    {
    }

    /**
     * Returns whether this process serves a request made by Veche. Clients of a web server can't imitate Veche:
     * their headers reach PHP as `HTTP_…`.
     *
     * @param array<string, mixed> $server `$_SERVER`.
     */
    public static function isMeant(array $server): bool
    {
        return PHP_SAPI !== 'cli' && isset($server['VECHE_PROTOCOL']);
    }

    /**
     * Returns the frames that result from an event's frame, up to its answer.
     *
     * @throws VecheException if `$frame` is not the frame of an event
     */
    public function handle(string $frame): string
    {
        $this->engine->takeOutput();
        $this->engine->receive($frame);
        while (($wakesAt = $this->engine->wakesAt()) !== null) {
            usleep((int) max(0, ($wakesAt - Runner::now()) * 1e6));
            $this->engine->wake(Runner::now());
        }
        return $this->engine->takeOutput();
    }

    /**
     * Serves the request. Output of handlers goes to the log.
     *
     * @param array<string, mixed> $server `$_SERVER`.
     */
    public function run(array $server, string $body): void
    {
        ob_start();
        // With `display_errors`, PHP would print fatal errors between the frames in spite of output buffers. Fatal
        // errors are logged in any case.
        ini_set('display_errors', '0');
        if ($server['VECHE_PROTOCOL'] !== self::VERSION) {
            $this->write(501, 'this SDK speaks version ' . self::VERSION . " of the runtime protocol\n");
            return;
        }
        register_shutdown_function($this->interrupted(...));
        try {
            $frames = $this->handle($body);
        } catch (VecheException $error) {
            $this->write(400, $error->getMessage() . "\n");
            return;
        }
        $this->write(200, $frames);
    }

    /**
     * Answers an event whose handler has ended the process.
     */
    private function interrupted(): void
    {
        if (!$this->isWritten) {
            $this->engine->fail(Runner::endOfProcess());
            $this->write(200, $this->engine->takeOutput());
        }
    }

    private function write(int $status, string $body): void
    {
        $this->isWritten = true;
        $printed = '';
        while (ob_get_level() > 0) {
            $printed = ob_get_clean() . $printed;
        }
        if ($printed !== '') {
            error_log(rtrim($printed));
        }
        http_response_code($status);
        header('Content-Type: ' . ($status === 200 ? 'application/octet-stream' : 'text/plain'));
        header('Content-Length: ' . strlen($body));
        echo $body;
    }
}
