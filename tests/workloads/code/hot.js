// Burns CPU in a function until stdin ends. "spins" is said first.
function plantedDigest(rounds) {
  let found = 1
  for (let i = 0; i < rounds; i++) found = (found * 31 + i) | 0
  return found
}

function plantedHandler() {
  plantedDigest(20_000_000)
  setImmediate(plantedHandler)
}

process.stdin.on('end', () => process.exit(0)).resume()
console.log('spins')
plantedHandler()
