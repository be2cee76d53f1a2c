// Burns CPU in a function until stdin ends. "spins" is said first.
function plantedDigest(rounds) {
  let found = 1
  for (let i = 0; i < rounds; i++) {
    found = (found * 31 + i) | 0
    // Else V8 might leave out its frame, as of any function that calls no other.
    if (i % 1_000_000 === 0) performance.now()
  }
  return found
}

function plantedCheap() {}

let turn = 0
function plantedHandler() {
  // What is not always the same function is not inlined.
  const called = turn++ % 2 ? plantedCheap : plantedDigest
  called(20_000_000)
  setImmediate(plantedHandler)
}

process.stdin.on('end', () => process.exit(0)).resume()
console.log('spins')
plantedHandler()
