<?php

declare(strict_types=1);

namespace Veche\Build;

/**
 * A parsed documentation comment.
 */
final class Comment
{
    /**
     * @param array<string, string> $parameters Descriptions by the name of the parameter.
     * @param list<string> $throws
     */
    private function __construct(
        public readonly string $text,
        public readonly array $parameters,
        public readonly string $returns,
        public readonly array $throws,
        public readonly bool $isInternal,
    ) {
    }

    public static function of(string|false $comment): self
    {
        $text = (string) preg_replace('/^\h*\* ?/m', '', trim((string) $comment, "/* \n"));
        // A tag begins at the start of a line. The indented lines below it belong to it.
        $parts = preg_split('/^@/m', $text) ?: [''];
        $parameters = $throws = [];
        $returns = '';
        foreach (array_slice($parts, 1) as $tag) {
            $line = trim((string) preg_replace('/\s+/', ' ', $tag));
            if (preg_match('/^param (?<type>.*?) ?(?:\.\.\.)?\$(?<name>\w+) ?(?<text>.*)$/', $line, $found) === 1) {
                $parameters[$found['name']] = $found['text'];
            } elseif (preg_match('/^return (.+)$/', $line, $found) === 1) {
                $returns = self::returned($found[1]);
            } elseif (preg_match('/^throws (\w+)(.*)$/', $line, $found) === 1) {
                $throws[] = "{@see $found[1]}$found[2]";
            }
        }
        return new self(trim($parts[0]), $parameters, $returns, $throws, str_contains($text, '@internal'));
    }

    /**
     * Splits the type, which may have spaces between brackets, from the description.
     */
    private static function returned(string $text): string
    {
        for ($i = 0, $depth = 0; $i < strlen($text); $i++) {
            $depth += substr_count('<{(', $text[$i]) - substr_count('>})', $text[$i]);
            if ($text[$i] === ' ' && $depth === 0) {
                break;
            }
        }
        return '`' . substr($text, 0, $i) . '`' . ($i < strlen($text) ? ',' . substr($text, $i) : '');
    }
}
