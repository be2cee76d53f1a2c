// Sleeps in a known function: `disk` (fsync of its own file) or `timer`. Computes in one of a library: `verify`.
const crypto = require('crypto')
const fs = require('fs')

const file = fs.openSync(process.argv[3], 'w')

function plantedDump() {
  fs.writeSync(file, Buffer.alloc(1 << 20), 0, 1 << 20, 0)
  fs.fsyncSync(file)
}

function plantedVerify() {
  crypto.pbkdf2Sync('secret', 'salt', 20000, 32, 'sha256')
}

const planted = process.argv[2] === 'disk' ? plantedDump : plantedVerify
for (;;) planted()
