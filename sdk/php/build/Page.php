<?php

declare(strict_types=1);

namespace Veche\Build;

use ReflectionClass;
use ReflectionEnum;
use ReflectionMethod;
use ReflectionNamedType;
use ReflectionParameter;
use ReflectionUnionType;
use RuntimeException;

/**
 * The reference page of the SDK.
 *
 * A method without a comment is omitted if an interface or the parent class describes it. Members marked with
 * `@internal` are omitted too.
 */
final class Page
{
    private const GROUPS = [
        'Pushing' => [
            'Veche\Client', 'Veche\LineClient', 'Veche\Publisher', 'Veche\ClientInterface', 'Veche\Command',
            'Veche\PublishOptions', 'Veche\Binary', 'Veche\Json', 'Veche\Position',
        ],
        'Applications' => [
            'Veche\App', 'Veche\Connection', 'Veche\Joined', 'Veche\Request', 'Veche\Response', 'Veche\Hook',
            'Veche\Pool',
        ],
        'Results' => 'Veche\Result',
        'Errors' => ['Veche\Fault', 'Veche\ErrorCode', 'Veche\Exception'],
        'Tokens' => 'Veche\Token',
        'WebSocket client' => 'Veche\WebSocket',
        'Tests of your application' => 'Veche\Testing',
        'Transports' => 'Veche\Http',
    ];

    private const INTRODUCTION = <<<'MARKDOWN'
        # PHP SDK

        The classes of [`sdk/php`](../../sdk/php), for PHP 8.1 and newer. How to begin is in its
        [README](../../sdk/php/README.md). What the constructor of a result takes are its public properties.

        This page is generated from the sources by `php sdk/php/build/reference.php`.

        MARKDOWN;

    /** @var list<ReflectionClass<object>> */
    private readonly array $classes;

    /** Namespace of the described class, in which names in its comments are looked up first. */
    private string $namespace = 'Veche';

    /**
     * @param list<string> $names
     */
    public function __construct(array $names)
    {
        $classes = array_map(static fn (string $name): ReflectionClass => new ReflectionClass($name), $names);
        $isPublic = static fn (ReflectionClass $one): bool
            => !str_contains((string) $one->getDocComment(), '@internal') && $one->name !== 'Veche\AbstractClient';
        $this->classes = array_values(array_filter($classes, $isPublic));
    }

    public function render(): string
    {
        $page = self::INTRODUCTION;
        $shown = 0;
        foreach (self::GROUPS as $title => $members) {
            $page .= "\n## $title\n";
            foreach ($this->group((array) $members) as $class) {
                $page .= "\n" . $this->describe($class);
                $shown++;
            }
        }
        if ($shown !== count($this->classes)) {
            throw new RuntimeException('a public class belongs to no group');
        }
        return $page;
    }

    /**
     * @param list<string> $members Classes and namespaces.
     * @return list<ReflectionClass<object>>
     */
    private function group(array $members): array
    {
        $found = [];
        foreach ($members as $member) {
            foreach ($this->classes as $class) {
                if ($class->name === $member || $class->getNamespaceName() === $member && $member !== 'Veche') {
                    $found[] = $class;
                }
            }
        }
        return $found;
    }

    /**
     * @param ReflectionClass<object> $class
     */
    private function describe(ReflectionClass $class): string
    {
        $this->namespace = $class->getNamespaceName();
        $comment = Comment::of($class->getDocComment());
        if ($comment->text === '') {
            throw new RuntimeException("$class->name has no comment");
        }
        $kind = match (true) {
            $class->isInterface() => 'interface',
            $class->isEnum() => 'enum',
            default => 'class',
        };
        $page = "### $class->name\n\n*$kind*{$this->parents($class)}\n\n{$this->linked($comment->text)}\n";
        $page .= $this->constants($class);
        foreach ($class->getMethods(ReflectionMethod::IS_PUBLIC) as $method) {
            if ($method->getDeclaringClass()->name === $class->name) {
                $page .= $this->method($method);
            }
        }
        return $page;
    }

    /**
     * @param ReflectionClass<object> $class
     */
    private function parents(ReflectionClass $class): string
    {
        $parent = $class->getParentClass();
        $isShown = fn (string $name): bool => in_array($name, array_column($this->classes, 'name'), true);
        $parents = $parent !== false && $isShown($parent->name) ? [$parent->name] : [];
        if ($parents === []) {
            $all = array_filter($class->getInterfaces(), $isShown, ARRAY_FILTER_USE_KEY);
            $isImplied = static fn (ReflectionClass $one): bool
                => array_filter($all, static fn (ReflectionClass $other): bool => $other->isSubclassOf($one)) !== [];
            $parents = array_keys(array_filter($all, static fn (ReflectionClass $one): bool => !$isImplied($one)));
        }
        $links = array_map($this->link(...), $parents);
        return $links === [] ? '' : ', is a ' . implode(' and a ', $links);
    }

    /**
     * @param ReflectionClass<object> $class
     */
    private function constants(ReflectionClass $class): string
    {
        $rows = '';
        $cases = $class->isEnum() ? (new ReflectionEnum($class->name))->getCases() : [];
        foreach ([...$cases, ...$class->getReflectionConstants()] as $constant) {
            $comment = Comment::of($constant->getDocComment());
            $isCase = $constant instanceof \ReflectionEnumUnitCase;
            $isShown = $constant->isPublic() && $constant->getDeclaringClass()->name === $class->name;
            if ($isShown && $comment->text !== '' && ($isCase || !$constant->isEnumCase())) {
                $value = $isCase ? '' : ' = ' . var_export($constant->getValue(), true);
                $rows .= "- `$constant->name$value`: {$this->linked($comment->text)}\n";
            }
        }
        return $rows === '' ? '' : "\n$rows";
    }

    private function method(ReflectionMethod $method): string
    {
        $comment = Comment::of($method->getDocComment());
        $isData = $method->isConstructor() && $comment->text === '' && $comment->parameters === [];
        if ($comment->isInternal || str_starts_with($method->name, '__') && !$method->isConstructor()) {
            return '';
        }
        if ($comment->text === '' && !$method->isConstructor()) {
            // A method that an interface or the parent class describes is omitted. Methods of Command need no comment,
            // because the client's methods with the same names describe them.
            $isInherited = $this->isDescribedElsewhere($method);
            if (!$isInherited && $method->class !== 'Veche\Command') {
                throw new RuntimeException("$method->class::$method->name has no comment");
            }
            if ($isInherited) {
                return '';
            }
        }
        $text = $comment->text === '' ? '' : "\n{$this->linked($comment->text)}\n";
        $page = "\n```php\n{$this->signature($method)}\n```\n$text";
        $rows = '';
        foreach ($isData ? [] : $comment->parameters as $name => $description) {
            if ($description !== '') {
                $rows .= "- `\$$name`: {$this->linked($description)}\n";
            }
        }
        if ($comment->returns !== '') {
            $rows .= "- returns: {$this->linked($comment->returns)}\n";
        }
        foreach ($comment->throws as $thrown) {
            $rows .= "- throws {$this->linked($thrown)}\n";
        }
        return $page . ($rows === '' ? '' : "\n$rows");
    }

    private function isDescribedElsewhere(ReflectionMethod $method): bool
    {
        $class = $method->getDeclaringClass();
        $parents = [...$class->getInterfaces(), ...array_filter([$class->getParentClass()])];
        return array_filter($parents, static fn (ReflectionClass $one): bool => $one->hasMethod($method->name)) !== [];
    }

    private function signature(ReflectionMethod $method): string
    {
        $parameters = array_map($this->parameter(...), $method->getParameters());
        $start = match (true) {
            $method->isConstructor() => 'new ' . $this->short($method->class),
            $method->isStatic() => $this->short($method->class) . "::$method->name",
            default => $method->name,
        };
        $return = $method->isConstructor() ? '' : ': ' . $this->type($method->getReturnType());
        $line = "$start(" . implode(', ', $parameters) . ")$return";
        return strlen($line) <= 100 ? $line : "$start(\n    " . implode(",\n    ", $parameters) . ",\n)$return";
    }

    private function parameter(ReflectionParameter $parameter): string
    {
        $prefix = $parameter->isVariadic() ? '...' : '';
        $text = $this->type($parameter->getType()) . " $prefix\$$parameter->name";
        if (!$parameter->isOptional() || $parameter->isVariadic()) {
            return $text;
        }
        $default = $parameter->getDefaultValue();
        return "$text = " . match (true) {
            $default === [] => '[]',
            $default === null => 'null',
            is_string($default) => "'$default'",
            default => var_export($default, true),
        };
    }

    private function type(?\ReflectionType $type): string
    {
        return match (true) {
            $type === null => '',
            $type instanceof ReflectionUnionType => implode('|', array_map($this->type(...), $type->getTypes())),
            $type instanceof ReflectionNamedType => $this->named($type),
            default => (string) $type,
        };
    }

    private function named(ReflectionNamedType $type): string
    {
        $isMarked = $type->allowsNull() && !in_array($type->getName(), ['mixed', 'null'], true);
        return ($isMarked ? '?' : '') . $this->short($type->getName());
    }

    private function short(string $class): string
    {
        return substr((string) strrchr("\\$class", '\\'), 1);
    }

    private function link(string $class): string
    {
        return "[`{$this->short($class)}`](#" . strtolower(str_replace('\\', '', $class)) . ')';
    }

    /**
     * Turns `{@see Name}` and the names of thrown classes into links.
     */
    private function linked(string $text): string
    {
        $known = [];
        foreach ($this->classes as $class) {
            $name = $this->short($class->name);
            if (!isset($known[$name]) || $class->getNamespaceName() === $this->namespace) {
                $known[$name] = $class->name;
            }
        }
        $replace = function (array $found) use ($known): string {
            $name = $this->short($found[1]);
            $isClass = !isset($found[2]) && isset($known[$name]);
            return $isClass ? $this->link($known[$name]) : "`$name" . ($found[2] ?? '') . '`';
        };
        return (string) preg_replace_callback('/\{@see \\\\?([\w\\\\]+)(\(\))?\}/', $replace, $text);
    }
}
