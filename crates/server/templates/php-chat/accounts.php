<?php

declare(strict_types=1);

/**
 * Stores user names and password hashes in a JSON file. A real site uses a database table instead.
 */
final class Accounts
{
    private const NAME = '/^[\p{L}\p{N}_-]{1,20}$/u';

    public function __construct(private readonly string $file)
    {
    }

    /**
     * Creates an account. Returns an error message, or null if it succeeds.
     */
    public function create(string $name, string $password): ?string
    {
        if (preg_match(self::NAME, $name) !== 1) {
            return 'A name has 1 to 20 letters, digits, “_” and “-”.';
        }
        // bcrypt accepts at most 72 bytes and no zero bytes.
        if (preg_match('/^[^\0]{8,72}$/', $password) !== 1) {
            return 'A password has 8 to 72 bytes.';
        }
        $hash = password_hash($password, PASSWORD_BCRYPT);
        return $this->locked(LOCK_EX, function (array $hashes) use ($name, $hash): array {
            return isset($hashes[$name]) ? [$hashes, 'That name is taken.'] : [$hashes + [$name => $hash], null];
        });
    }

    /**
     * Checks a password. Returns an error message, or null if the password is correct.
     */
    public function check(string $name, string $password): ?string
    {
        $hash = $this->locked(LOCK_SH, fn (array $hashes): array => [$hashes, $hashes[$name] ?? null]);
        // The check of an unknown name takes as long as that of a known name, so that the response
        // time does not reveal which names exist.
        $isRight = password_verify($password, $hash ?? '$2y$10$abcdefghijklmnopqrstuuE4vjUMQrtUZ4Au3VbPhe4mfLgWLnOa6');
        return $hash !== null && $isRight ? null : 'Wrong name or password.';
    }

    /**
     * Runs $step with the hashes while the file is locked. $step returns the new hashes and the
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
            // A new file replaces the old one, so that a crash during the write loses no account.
            file_put_contents("$this->file.new", json_encode((object) $after, JSON_THROW_ON_ERROR));
            rename("$this->file.new", $this->file);
        }
        fclose($guard);
        return $result;
    }
}
