<?php
// Says in which functions it is, a line each and an empty one, and waits there for a line: with its
// file and its first line, as PHP itself tells them.
namespace Größe;

function name_of($frame)
{
    $name = preg_replace('/\{closure:.*\}$/s', '{closure}', $frame['function']);
    return (isset($frame['class']) ? explode("\0", $frame['class'])[0] . '::' : '') . $name;
}

function first_of($frame, $closure)
{
    if (strpos($frame['function'], '{closure') !== false) {
        $told = new \ReflectionFunction($closure);
    } elseif (isset($frame['class'])) {
        $told = new \ReflectionMethod($frame['class'], $frame['function']);
    } elseif (function_exists($frame['function'])) {
        $told = new \ReflectionFunction($frame['function']);
    } else {
        return ['', ''];  // an include or an eval
    }
    return [$told->getFileName(), $told->getStartLine()];
}

function waits($closure)
{
    $stack = [['fgets', '', '']];
    foreach (debug_backtrace() as $frame) {
        $stack[] = [name_of($frame), ...first_of($frame, $closure)];
    }
    foreach ($stack as $each) {
        echo implode("\t", $each), "\n";
    }
    echo "\n";
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
