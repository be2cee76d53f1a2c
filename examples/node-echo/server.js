// The benchmark's server: node server.js ADDRESS. Greets, then sends back what it receives. As
// there, Nagle's algorithm is on; `nodelay` as a further word turns it off.
'use strict';
const net = require('net');
const { addressed } = require('./address');

const [where, ...words] = process.argv.slice(2);
net.createServer({ noDelay: words.includes('nodelay') }, (socket) => {
  socket.on('error', () => {});
  socket.on('data', (data) => socket.write(data));
  socket.write('start sending now!');
}).listen(addressed(where));
