<?php

declare(strict_types=1);

/**
 * Names and hashes of passwords, in a file of JSON. A site has a table in its database here.
 */
final class Accounts
{
    private const NAME = '/^[\p{L}\p{N}_-]{1,20}$/u';

    public function __construct(private readonly string $file)
    {
    }

    /**
     * Makes an account. Returns why that is not possible, or null.
     */
    public function create(string $name, string $password): ?string
    {
        if (preg_match(self::NAME, $name) !== 1) {
            return 'A name has 1 to 20 letters, digits, “_” and “-”.';
        }
        // bcrypt takes no more bytes, and none that is zero.
        if (preg_match('/^[^\0]{8,72}$/', $password) !== 1) {
            return 'A password has 8 to 72 bytes.';
        }
        $hash = password_hash($password, PASSWORD_BCRYPT);
        return $this->locked(LOCK_EX, function (array $hashes) use ($name, $hash): array {
            return isset($hashes[$name]) ? [$hashes, 'That name is taken.'] : [$hashes + [$name => $hash], null];
        });
    }

    /**
     * Checks a password. Returns why the login is refused, or null.
     */
    public function check(string $name, string $password): ?string
    {
        $hash = $this->locked(LOCK_SH, fn (array $hashes): array => [$hashes, $hashes[$name] ?? null]);
        // As long for a name that is not there, so that the time does not say which names are.
        $isRight = password_verify($password, $hash ?? '$2y$10$abcdefghijklmnopqrstuuE4vjUMQrtUZ4Au3VbPhe4mfLgWLnOa6');
        return $hash !== null && $isRight ? null : 'Wrong name or password.';
    }

    /**
     * Runs a step on the hashes while no other process changes them. The step returns them as they are to be, and the
     * result.
     *
     * @param callable(array<string, string>): array{array<string, string>, ?string} $step
     */
    private function locked(int $lock, callable $step): ?string
    {
        if (!is_dir(dirname($this->file))) {
            @mkdir(dirname($this->file), 0700, true);
        }
        $guard = fopen("$this->file.lock", 'c') ?: throw new RuntimeException("$this->file.lock can't be opened");
        flock($guard, $lock);
        $text = is_file($this->file) ? (string) file_get_contents($this->file) : '{}';
        $before = json_decode($text, true, flags: JSON_THROW_ON_ERROR);
        [$after, $result] = $step($before);
        if ($after !== $before) {
            // A new file in place of the old one: a crash in the middle loses no account.
            file_put_contents("$this->file.new", json_encode((object) $after, JSON_THROW_ON_ERROR));
            rename("$this->file.new", $this->file);
        }
        fclose($guard);
        return $result;
    }
}
