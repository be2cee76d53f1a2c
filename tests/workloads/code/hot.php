<?php
// Burns CPU in a known function until it is killed.
function planted($rounds)
{
    $found = 1;
    while ($rounds--) {
        $found = $found * 31 % 65537;
    }
    return $found;
}

while (true) {
    planted(100000);
}
