<?php
// Says in which functions it is, a line each and an empty one, and waits there for a line: with its
// file and its first line, as PHP itself tells them.
namespace Größe;

function name_of($frame)
{
    $name = preg_replace('/\{closure:.*\}$/s', '{closure}', $frame['function']);
    $name = preg_replace('/^(require|include)(_once)?$/', 'include', $name);
    return (isset($frame['class']) ? explode("\0", $frame['class'])[0] . '::' : '') . $name;
}

function reflected($frame, $closure)
{
    if (strpos($frame['function'], '{closure') !== false) {
        return new \ReflectionFunction($closure);
    }
    if (isset($frame['class'])) {
        return new \ReflectionMethod($frame['class'], $frame['function']);
    }
    return function_exists($frame['function']) ? new \ReflectionFunction($frame['function']) : null;
}

function waits($closure)
{
    echo "fgets\t\t\n";
    foreach (debug_backtrace() as $frame) {
        $told = reflected($frame, $closure);
        // The code of a file, or of an eval(), has called the one before.
        [$file, $line] = $told ? [$told->getFileName(), $told->getStartLine()] : [$called_from, 1];
        $called_from = $frame['file'] ?? null;
        echo implode("\t", [name_of($frame), $file, $line]), "\n";
    }
    echo "{main}\t$called_from\t1\n\n";
    fgets(STDIN);
}

class Wächter
{
    public static function wächst()
    {
        $calls = function ($each) use (&$calls) {
            return waits($calls);
        };
        // A function in C is between these.
        return array_map($calls, [1]);
    }

    public function __get($name)
    {
        return self::wächst();
    }
}

function 値段()
{
    $anonymous = new class extends Wächter {
        public function asks()
        {
            return $this->missing;
        }
    };
    yield $anonymous->asks();
}

function begins()
{
    foreach (値段() as $found) {
        return $found;
    }
}

function sorts($a, $b)
{
    return eval('return \Größe\begins() ? 0 : 1;');
}

$numbers = [2, 1];
usort($numbers, 'Größe\sorts');
