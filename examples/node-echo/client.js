// The benchmark's client: node client.js ADDRESS SIZE COUNT [nodelay]. Sends COUNT packets of SIZE
// bytes, each when the one before it is back, and prints how long that took. The original counted
// events instead of bytes, so that a packet which came back in pieces counted more than once.
'use strict';
const crypto = require('crypto');
const net = require('net');
const { addressed } = require('./address');

const [where, sizeText, countText, ...words] = process.argv.slice(2);
const [size, count] = [Number(sizeText), Number(countText)];
const packet = Buffer.from(crypto.randomBytes(size).toString('base64').substring(0, size));
const greeting = Buffer.byteLength('start sending now!');

let awaited = greeting;
let begun = 0n;
let back = -1; // the greeting is no packet
let events = 0;

const options = { ...addressed(where), noDelay: words.includes('nodelay') };
const socket = net.connect(options);
socket.on('data', (data) => {
  awaited -= data.length;
  if (back >= 0) events += 1;
  if (awaited > 0) return;
  back += 1;
  if (back === 0) begun = process.hrtime.bigint();
  if (back < count) {
    awaited = size;
    socket.write(packet);
    return;
  }
  const ms = Number(process.hrtime.bigint() - begun) / 1e6;
  console.log(JSON.stringify({ ms, packets: back, events }));
  socket.end();
});
