<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

use RuntimeException;

/**
 * Debian's php-fpm with one pool of two processes, and a FastCGI client with what the tests need.
 */
final class Fpm
{
    private const BEGIN_REQUEST = 1;
    private const END_REQUEST = 3;
    private const PARAMS = 4;
    private const STDIN = 5;
    private const STDOUT = 6;
    private const STDERR = 7;

    public readonly string $socket;
    private readonly Process $process;

    private function __construct(string $binary, public readonly string $folder)
    {
        $this->socket = "$folder/fpm.sock";
        file_put_contents("$folder/fpm.conf", implode("\n", [
            '[global]', 'daemonize = no', "error_log = $folder/fpm.log", "pid = $folder/fpm.pid",
            '[www]', "listen = $this->socket", 'pm = static', 'pm.max_children = 2', 'clear_env = no',
            'user = ' . (posix_getpwuid(posix_geteuid())['name'] ?? 'root'), '',
        ]));
        // -R permits root. Without php.ini (-n) all installations behave alike.
        $this->process = new Process([$binary, '-R', '-n', '-F', '-y', "$folder/fpm.conf"], $folder, "$folder/out.log");
        for ($i = 0; $i < 500 && !file_exists($this->socket); $i++) {
            usleep(10000);
        }
    }

    /**
     * Starts a php-fpm; null if none is installed.
     */
    public static function start(): ?self
    {
        $binaries = glob('/usr/sbin/php-fpm*') ?: [];
        if ($binaries === []) {
            return null;
        }
        $folder = sys_get_temp_dir() . '/veche-fpm-' . getmypid() . '-' . bin2hex(random_bytes(4));
        mkdir($folder);
        return new self($binaries[0], $folder);
    }

    public function stop(): void
    {
        $this->process->stop();
        array_map(unlink(...), glob("$this->folder/*") ?: []);
        rmdir($this->folder);
    }

    /**
     * Makes one request.
     *
     * @param array<string, string> $params
     * @return array{int, string, string} Status, body, and what came on STDERR.
     */
    public function ask(string $script, array $params, string $body): array
    {
        $stream = stream_socket_client("unix://$this->socket") ?: throw new RuntimeException('no php-fpm');
        stream_set_timeout($stream, 10);
        $params += [
            'SCRIPT_FILENAME' => $script,
            'REQUEST_METHOD' => 'POST',
            'CONTENT_TYPE' => 'application/octet-stream',
            'CONTENT_LENGTH' => (string) strlen($body),
        ];
        $pairs = '';
        foreach ($params as $name => $value) {
            $pairs .= pack('NN', strlen($name) | 1 << 31, strlen($value) | 1 << 31) . $name . $value;
        }
        $request = self::record(self::BEGIN_REQUEST, pack('nC6', 1, 0, 0, 0, 0, 0, 0));
        $request .= self::record(self::PARAMS, $pairs) . self::record(self::PARAMS, '');
        foreach (str_split($body, 60000) as $part) {
            $request .= $part === '' ? '' : self::record(self::STDIN, $part);
        }
        fwrite($stream, $request . self::record(self::STDIN, ''));
        return self::response($stream);
    }

    private static function record(int $type, string $content): string
    {
        return pack('CCnnCC', 1, $type, 1, strlen($content), 0, 0) . $content;
    }

    /**
     * @param resource $stream
     * @return array{int, string, string}
     */
    private static function response($stream): array
    {
        $got = [self::STDOUT => '', self::STDERR => ''];
        while (true) {
            $head = unpack('Cversion/Ctype/nid/nlength/Cpadding', self::read($stream, 8));
            $content = self::read($stream, $head['length']);
            self::read($stream, $head['padding']);
            if ($head['type'] === self::END_REQUEST) {
                break;
            }
            $got[$head['type']] .= $content;
        }
        [$headers, $body] = explode("\r\n\r\n", $got[self::STDOUT], 2) + [1 => ''];
        $status = preg_match('/^Status: (\d+)/mi', $headers, $found) === 1 ? (int) $found[1] : 200;
        return [$status, $body, $got[self::STDERR]];
    }

    /**
     * @param resource $stream
     */
    private static function read($stream, int $length): string
    {
        $bytes = '';
        while (strlen($bytes) < $length) {
            $part = fread($stream, $length - strlen($bytes));
            if ($part === false || $part === '') {
                throw new RuntimeException('php-fpm has ended the connection, or is silent');
            }
            $bytes .= $part;
        }
        return $bytes;
    }
}
