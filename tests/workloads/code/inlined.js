// Functions that V8 inlines in the one that calls them, each with work of C++ of another length; "spins" is said
// first. On "end" it says what each has had, in nanoseconds by the clock of its process.
const crypto = require('crypto')

const data = Buffer.alloc(1 << 18, 'abc')
const spent = { hashes: 0n, digests: 0n, sorts: 0n }
const now = process.hrtime.bigint

function hashes() {
  return crypto.pbkdf2Sync('a', 'b', 1500, 32, 'sha256')
}

function digests() {
  return crypto.createHash('sha512').update(data).digest('hex')
}

function sorts() {
  const numbers = []
  for (let each = 0; each < 2000; each++) numbers.push((each * 7919) % 10007)
  numbers.sort()
  return numbers[0]
}

function handler() {
  const began = now()
  hashes()
  const hashed = now()
  digests()
  const digested = now()
  sorts()
  spent.hashes += hashed - began
  spent.digests += digested - hashed
  spent.sorts += now() - digested
}

// Until V8 has optimized it.
for (let count = 0; count < 1000; count++) handler()
for (const name in spent) spent[name] = 0n

let ends = false
process.stdin.on('data', () => (ends = true))

function round() {
  for (let count = 0; count < 5; count++) handler()
  if (!ends) return setImmediate(round)
  console.log(JSON.stringify(Object.fromEntries(Object.entries(spent).map(([name, ns]) => [name, Number(ns)]))))
  process.exit(0)
}

console.log('spins')
round()
