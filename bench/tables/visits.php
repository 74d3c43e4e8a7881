<?php
// visits.php rows|columns|fixed FILE: stores the visits as an array of arrays, as one array per
// column, or as one SplFixedArray per column. Indexes are arrays of sorted lists of ids; with
// `fixed`, an SplFixedArray of sorted ids, and another with the start of each key. Prints a line of
// JSON.

[, $kind, $file] = $argv;
$count = (int) getenv("ROWS");
ini_set("memory_limit", "-1");
set_error_handler(fn($level, $words, $file, $line) => throw new ErrorException($words, 0, $level, $file, $line));

function memory(string $name): int
{
    preg_match("/^$name:\s*(\d+)/m", file_get_contents("/proc/self/status"), $found);
    return 1024 * (int) $found[1];
}

function settled(): int
{
    gc_collect_cycles();
    gc_mem_caches();
    return memory("VmRSS");
}

function lines(string $file): Generator
{
    $handle = fopen($file, "r");
    fgets($handle);
    while (($line = fgets($handle)) !== false) {
        yield array_map("intval", explode(",", $line));
    }
}

$before = settled();
$rows = 0;
$visits = $location = $user = $visited_at = $mark = [];
if ($kind === "fixed") {
    [$location, $user, $visited_at, $mark] = array_map(fn() => new SplFixedArray($count + 1), range(1, 4));
}
foreach (lines($file) as [$id, $its_location, $its_user, $at, $its_mark]) {
    if ($kind === "rows") {
        $visits[$id] = ["location" => $its_location, "user" => $its_user, "visited_at" => $at, "mark" => $its_mark];
    } else {
        $location[$id] = $its_location;
        $user[$id] = $its_user;
        $visited_at[$id] = $at;
        $mark[$id] = $its_mark;
    }
    $rows++;
}
$with_rows = settled();

$value = $kind === "rows"
    ? fn(string $column, int $id) => $visits[$id][$column]
    : fn(string $column, int $id) => match ($column) {
        "user" => $user[$id], "location" => $location[$id], "visited_at" => $visited_at[$id], "mark" => $mark[$id],
    };
$by_date = fn(int $a, int $b) => $value("visited_at", $a) <=> $value("visited_at", $b);

function lists(string $column, int $rows, Closure $value, Closure $by_date): array
{
    $index = [];
    for ($id = 1; $id <= $rows; $id++) {
        $index[$value($column, $id)][] = $id;
    }
    foreach ($index as &$list) {
        usort($list, $by_date);
    }
    return $index;
}

function ranges(string $column, int $rows, Closure $value, Closure $by_date): array
{
    $keys = 0;
    for ($id = 1; $id <= $rows; $id++) {
        $keys = max($keys, $value($column, $id));
    }
    $begins = SplFixedArray::fromArray(array_fill(0, $keys + 2, 0));
    for ($id = 1; $id <= $rows; $id++) {
        $begins[$value($column, $id) + 1] = $begins[$value($column, $id) + 1] + 1;
    }
    for ($key = 1; $key < $keys + 2; $key++) {
        $begins[$key] = $begins[$key] + $begins[$key - 1];
    }
    $next = clone $begins;
    $ids = new SplFixedArray($rows);
    for ($id = 1; $id <= $rows; $id++) {
        $key = $value($column, $id);
        $ids[$next[$key]] = $id;
        $next[$key] = $next[$key] + 1;
    }
    for ($key = 0; $key <= $keys; $key++) {
        $list = [];
        for ($at = $begins[$key]; $at < $begins[$key + 1]; $at++) {
            $list[] = $ids[$at];
        }
        usort($list, $by_date);
        foreach ($list as $place => $id) {
            $ids[$begins[$key] + $place] = $id;
        }
    }
    return [$begins, $ids];
}

$make = $kind === "fixed" ? "ranges" : "lists";
$by_user = $make("user", $rows, $value, $by_date);
$by_location = $make("location", $rows, $value, $by_date);
$with_indexes = settled();
$highest = memory("VmHWM");
$cpu_s = round(getrusage()["ru_utime.tv_sec"] + getrusage()["ru_utime.tv_usec"] / 1e6, 1);

$of = function (array $index, int $key) use ($kind): iterable {
    if ($kind !== "fixed") {
        return $index[$key] ?? [];
    }
    [$begins, $ids] = $index;
    $found = [];
    for ($at = $begins[$key]; $at < $begins[$key + 1]; $at++) {
        $found[] = $ids[$at];
    }
    return $found;
};
$order = $marks = 0;
$last = min(1000, max(1, intdiv($rows, 11)));
for ($key = 1; $key <= $last; $key++) {
    foreach ($of($by_user, $key) as $place => $id) {
        $order += ($place + 1) * $value("visited_at", $id);
    }
    foreach ($of($by_location, $key) as $id) {
        $marks += $key * $value("mark", $id);
    }
}
echo json_encode(compact("rows", "before", "with_rows", "with_indexes", "highest", "cpu_s", "order", "marks")), "\n";
