/*
A server of HTTP whose async functions wait, each as its request asked.

Once all wait it says so, as JSON: for each place the functions from the one that waits outwards, by
name and line, how often, and whether they have a request to answer. Then it stands still.

A request's path is the name of a method of Store. Argument: `worker`: all in a worker thread.
*/
const http = require('http');
const net = require('net');
const { Worker, isMainThread } = require('worker_threads');

const ASKED = { put: 20, arrow: 6, both: 4, passed: 3, chained: 5, raced: 3, tried: 2, context: 4, looped: 2, thenable: 1, enclosed: 3, generated: 2, uploaded: 4 };
const ON_SOCKETS = { served: 5, listens: 6 };
// What nobody could ever end V8 may free.
const kept = [];
const forEver = () => new Promise((resolve) => kept.push(resolve));

class Store {
  async lock() {
    await forEver();
  }

  async put() {
    await this.lock();
    return 1;
  }
}

const store = new Store();

const arrow = async (request, response) => {
  await Promise.resolve(1);
  await forEver();
  response.end();
};

async function first() { await forEver(); }
async function second() { await forEver(); }

async function put(request, response) {
  await store.put();
  response.end();
}

async function both(request, response) {
  await Promise.all([first(), second()]);
  response.end();
}

async function passes() {
  return store.lock();
}

async function passed(request, response) {
  await passes();
  response.end();
}

async function chained(request, response) {
  await first().then((value) => value).catch(() => 1).finally(() => 2);
  response.end();
}

async function raced(request, response) {
  await Promise.race([forEver(), second()]);
  response.end();
}

async function tried(request, response) {
  try {
    throw new Error('so');
  } catch (error) {
    await first();
  } finally {
    response.end();
  }
}

async function withContext(context, next) {
  await next();
  context.body = 'ok';
}

function context(request, response) {
  const made = Object.create({ status: 200 });
  made.state = {};
  made.res = response;
  return withContext(made, () => second());
}

async function looped(request, response) {
  async function* parts() {
    yield 1;
    await forEver();
  }
  for await (const part of parts()) response.write(String(part));
  response.end();
}

async function thenable(request, response) {
  await { then(resolve) { kept.push(resolve); } };
  response.end();
}

function enclosed(request, response) {
  const answer = async () => {
    await forEver();
    response.end();
  };
  answer();
}

async function generated(request, response) {
  async function* rows() {
    yield 1;
    await store.lock();
  }
  for await (const row of rows()) response.write(String(row));
  response.end();
}

// Waits for bytes, which the kernel sees.
async function uploaded(request, response) {
  for await (const part of request) response.write(part);
  response.end();
}

function served(socket) {
  socket.on('data', async (asked) => {
    await second();
    socket.write(asked);
  });
}

async function listens(socket) {
  for await (const asked of socket) socket.write(asked);
}

async function background() {
  for (let at = 0; ; at++) {
    if (at === 3) await forEver();
    await null;
  }
}

async function ended() {
  await null;
  return 1;
}

async function failed() {
  await null;
  throw new Error('so');
}

const SERVES = { put, arrow, both, passed, chained, raced, tried, context, looped, thenable, enclosed, generated, uploaded };
const LINES = require('fs').readFileSync(__filename, 'utf8').split('\n');
const begins = (text) => 1 + LINES.findIndex((line) => line.includes(text));
const PLACES = {
  lock: begins('async lock('),
  'store.put': begins('  async put('),
  arrow: begins('const arrow = async'),
  answer: begins('const answer = async'),
  parts: begins('async function* parts('),
  rows: begins('async function* rows('),
  '(anonymous)': begins('async (asked) =>'),
  ...Object.fromEntries(['first', 'second', 'put', 'both', 'passed', 'passes', 'chained', 'raced', 'tried', 'withContext', 'looped', 'thenable', 'generated', 'background'].map((name) => [name, begins(`async function ${name}(`)])),
};
const WAIT = [
  ['put', 'lock store.put put'],
  ['arrow', 'arrow'],
  ['both', 'first both'],
  ['both', 'second both'],
  ['passed', 'lock passed'],
  ['chained', 'first chained'],
  ['raced', 'second raced'],
  ['tried', 'first tried'],
  ['context', 'second withContext'],
  ['looped', 'parts looped'],
  ['thenable', 'thenable'],
  ['enclosed', 'answer'],
  ['generated', 'lock rows generated'],
];

function truth() {
  const told = WAIT.map(([path, names]) => [names, ASKED[path], true]);
  told.push(['second (anonymous)', ON_SOCKETS.served, true]);
  return [...told, ['background', 7, false]].map(([names, count, owing]) => [
    names.split(' ').map((name) => [name.replace('store.', ''), __filename, PLACES[name]]),
    count,
    owing,
  ]);
}

function serve() {
  let left = [...Object.values(ASKED), ...Object.values(ON_SOCKETS)].reduce((sum, count) => sum + count);
  const came = () => {
    left -= 1;
    if (left === 0) setImmediate(() => setImmediate(() => process.stdout.write(JSON.stringify({ pid: process.pid, waits: truth() }) + '\n')));
  };
  const server = http.createServer((request, response) => {
    SERVES[request.url.slice(1)](request, response);
    came();
  });
  for (let at = 0; at < 7; at++) background();
  for (let at = 0; at < 9; at++) ended(), failed().catch(() => {});
  server.listen(0, '127.0.0.1', () => {
    for (const [name, count] of Object.entries(ASKED))
      for (let at = 0; at < count; at++)
        net.connect(server.address().port, '127.0.0.1').write(`POST /${name} HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n`);
  });
  for (const [serves, count] of [[served, ON_SOCKETS.served], [listens, ON_SOCKETS.listens]]) {
    const plain = net.createServer((socket) => {
      socket.once('data', came);
      serves(socket);
    });
    plain.listen(0, '127.0.0.1', () => {
      for (let at = 0; at < count; at++) net.connect(plain.address().port, '127.0.0.1').write('x');
    });
  }
}

if (process.argv[2] === 'worker' && isMainThread) new Worker(__filename);
else serve();
