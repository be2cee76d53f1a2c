// An HTTP server: node http.js ADDRESS [option=value …]. ADDRESS is a path or HOST:PORT.
//
//   spin_ms=T      computes for T ms in each request       stuck_ms=T  the main thread sleeps (a lock)
//   sleep_ms=T     a timer                                 pool_ms=T   computes in the thread pool
//   child_s=T      runs `sleep T`                          body=N      bytes of the reply
//   forget=1       a promise that nothing settles
//   one_in=N       only each Nth request does the above   only=N      … and only worker N
//   upstream=ADDRESS  asks an HTTP server first            query=SQL, postgres=PATH   asks PostgreSQL
//   redis=ADDRESS, command=TEXT  asks Redis                keep=0      a new upstream connection each
//   backlog=N      keepalive=0    Connection: close        workers=N   a cluster
//   log_to=PATH    writes a line of 2,000 bytes there for each request, and waits for it
//   spins=1        its loop never sleeps
//   endless_after=N  a loop that never ends, after N requests
//   hang_after=N   a child that takes a minute, waited for in the loop, after N requests
//   knobs=FILE     other options, a line each, which it reads at SIGUSR2
//   probe=ADDRESS  tries this address each 100 ms and goes on without it
'use strict';
const cluster = require('cluster');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const net = require('net');
const { execSync, spawn } = require('child_process');

const where = process.argv[2];
const parsed = (texts) => Object.fromEntries(texts.map((text) => {
  const at = text.indexOf('=');
  return [text.slice(0, at), text.slice(at + 1)];
}));
const options = parsed(process.argv.slice(3));
if (options.knobs) {
  process.on('SIGUSR2', () => {
    Object.assign(options, parsed(fs.readFileSync(options.knobs, 'utf8').trim().split('\n')));
  });
}
const number = (name, otherwise = 0) => Number(options[name] ?? otherwise);
const to = (text) => {
  if (text.startsWith('/')) return { path: text };
  const at = text.lastIndexOf(':');
  return { host: text.slice(0, at), port: Number(text.slice(at + 1)) };
};

const body = Buffer.alloc(number('body', 64), 'x');
const log = options.log_to && fs.openSync(options.log_to, 'w');
const line = `${'x'.repeat(1999)}\n`;
const still = new Int32Array(new SharedArrayBuffer(4));
let requests = 0;

function spin(ms) {
  const end = process.hrtime.bigint() + BigInt(Math.round(ms * 1e6));
  let sum = 0;
  while (process.hrtime.bigint() < end) for (let i = 0; i < 1000; i++) sum += i * i;
  return sum;
}

const agent = new http.Agent({ keepAlive: options.keep !== '0', maxSockets: 64 });
function askHttp() {
  return new Promise((resolve, reject) => {
    const { path: socketPath, host, port } = to(options.upstream);
    http.get({ socketPath, host, port, path: '/', agent }, (reply) => {
      reply.resume();
      reply.on('end', resolve);
    }).on('error', reject);
  });
}

// A connection that carries one question at a time; `ended` says whether the reply is complete.
class Line {
  constructor(address, greeting, ended) {
    this.waiting = [];
    this.ended = ended;
    this.have = Buffer.alloc(0);
    this.socket = net.connect(to(address));
    this.socket.on('data', (chunk) => this.take(chunk));
    this.socket.on('error', () => {});
    this.ready = greeting ? this.ask(greeting) : Promise.resolve();
  }
  ask(bytes) {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.socket.write(bytes);
    });
  }
  take(chunk) {
    this.have = Buffer.concat([this.have, chunk]);
    if (!this.ended(this.have)) return;
    this.have = Buffer.alloc(0);
    this.waiting.shift()();
  }
}

class Pool {
  constructor(size, make) {
    this.free = [];
    this.queue = [];
    for (let i = 0; i < size; i++) this.free.push(make());
  }
  async ask(bytes) {
    const line = this.free.pop() ?? await new Promise((resolve) => this.queue.push(resolve));
    await line.ready;
    await line.ask(bytes);
    const next = this.queue.shift();
    if (next) next(line); else this.free.push(line);
  }
}

// A connection for each question, as without a pool.
class Fresh {
  constructor(make, goodbye) {
    this.make = make;
    this.goodbye = goodbye;
  }
  async ask(bytes) {
    const line = this.make();
    await line.ready;
    await line.ask(bytes);
    line.socket.end(this.goodbye);
  }
}

function startupMessage() {
  const text = Buffer.from('user\0postgres\0database\0postgres\0\0');
  const head = Buffer.alloc(8);
  head.writeInt32BE(text.length + 8, 0);
  head.writeInt32BE(196608, 4);
  return Buffer.concat([head, text]);
}
function queryMessage(sql) {
  const text = Buffer.from(sql + '\0');
  const head = Buffer.alloc(5, 'Q');
  head.writeInt32BE(text.length + 4, 1);
  return Buffer.concat([head, text]);
}
const TERMINATE = Buffer.from('X\0\0\0\x04');
// ReadyForQuery: Z, length 5, one byte.
const isReady = (have) => have.length >= 6 && have[have.length - 6] === 0x5a
  && have.readInt32BE(have.length - 5) === 5;
const endsLine = (have) => have[have.length - 1] === 10;

let ask;
const makeAsk = () => {
  if (options.upstream) return askHttp;
  if (options.postgres) {
    const make = () => new Line(options.postgres, startupMessage(), isReady);
    const asked = options.keep === '0' ? new Fresh(make, TERMINATE) : new Pool(number('pool', 8), make);
    return () => asked.ask(queryMessage(options.query));
  }
  if (options.redis) {
    const pool = new Pool(number('pool', 8), () => new Line(options.redis, null, endsLine));
    return () => pool.ask(Buffer.from(options.command + '\r\n'));
  }
  return null;
};

async function work() {
  if (options.only && cluster.worker.id !== number('only')) return;
  if (requests++ % number('one_in', 1)) return;
  if (options.spin_ms) spin(number('spin_ms'));
  if (options.stuck_ms) Atomics.wait(still, 0, 0, number('stuck_ms'));
  if (requests > number('endless_after', Infinity)) {
    console.log('endless');
    for (;;);
  }
  if (requests > number('hang_after', Infinity)) {
    console.log('hangs');
    execSync('sleep 60');
  }
  if (log !== undefined) fs.writeSync(log, line);
  if (options.sleep_ms) await new Promise((resolve) => setTimeout(resolve, number('sleep_ms')));
  if (options.pool_ms) {
    const rounds = Math.round(number('pool_ms') * 2200);
    await new Promise((resolve) => crypto.pbkdf2('a', 'b', rounds, 32, 'sha256', resolve));
  }
  if (options.child_s) {
    await new Promise((resolve) => spawn('sleep', [options.child_s]).on('exit', resolve));
  }
  if (options.forget) await new Promise(() => {});
  if (ask) await ask();
}

function serve() {
  ask = makeAsk();
  if (options.probe) {
    setInterval(() => net.connect(to(options.probe)).on('error', () => {}), 100);
  }
  const server = http.createServer((request, response) => {
    work().then(() => response.end(body), () => { response.statusCode = 502; response.end(); });
  });
  if (options.spins) {
    const turn = () => setImmediate(turn);
    turn();
  }
  server.keepAliveTimeout = 120000;
  if (options.keepalive === '0') server.maxRequestsPerSocket = 1;
  server.listen({ ...to(where), backlog: number('backlog', 511) });
}

if (options.workers && cluster.isPrimary) {
  cluster.on('listening', (worker) => console.log(`worker ${worker.id} listens`));
  for (let i = 0; i < number('workers'); i++) cluster.fork();
} else {
  serve();
}
