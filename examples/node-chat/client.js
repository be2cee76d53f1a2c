// The guide's client: node client.js ADDRESS ID SECONDS EVERY_MS [nodelay]. Sends a line with the
// time each EVERY_MS and measures until the line comes back by way of the server. It begins at the
// first byte on stdin and stays connected until its end; its last line is every round trip, in
// microseconds.
'use strict';
const net = require('net');
const { addressed, linesOf } = require('./lines');

const [where, id, seconds, everyMs, ...words] = process.argv.slice(2);
const tripsUs = [];
const sent = { count: 0 };

function receive(line) {
  const message = JSON.parse(line);
  if (message.id !== id) return; // the other client's
  tripsUs.push(Number(process.hrtime.bigint() - BigInt(message.sentNs)) / 1000);
  finishWhenComplete();
}

function send() {
  sent.count += 1;
  const sentNs = process.hrtime.bigint().toString();
  socket.write(JSON.stringify({ id, text: 'hello', sentNs }) + '\n');
}

let over = false;
function finishWhenComplete() {
  if (!over || tripsUs.length < sent.count) return;
  console.log(JSON.stringify({ sent: sent.count, tripsUs }));
  process.stdin.once('end', () => process.exit(0));
}

const options = { ...addressed(where), noDelay: words.includes('nodelay') };
const socket = net.connect(options, () => console.log('connected'));
linesOf(socket, receive);

function begin() {
  const timer = setInterval(send, Number(everyMs));
  setTimeout(() => {
    clearInterval(timer);
    over = true;
    finishWhenComplete();
  }, Number(seconds) * 1000);
}
process.stdin.once('data', begin);
