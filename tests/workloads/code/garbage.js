'use strict';
// Keeps objects and makes garbage. "old": so many that the heap is nearly full; "young": each for
// a moment only, but longer than a small young generation lasts.
const how = process.argv[2];
const kept = new Array(how === 'old' ? 400000 : 6000).fill(null);
for (let i = 0; how === 'old' && i < kept.length; i++) kept[i] = { i, next: null };
process.stdout.write('spins\n');
for (let i = 0; ; i++) kept[(i * 7919) % kept.length] = { i, next: null };
