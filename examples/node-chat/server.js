// The guide's chat server: node server.js ADDRESS. ADDRESS is a path or HOST:PORT. Every line of
// one client goes to all clients, the sender included. `nodelay` as a further word turns Nagle's
// algorithm off. Says `ready` when it listens, and at SIGTERM how many lines it passed on.
'use strict';
const net = require('net');
const { addressed, linesOf } = require('./lines');

const [where, ...words] = process.argv.slice(2);
const clients = new Set();
const passed = { lines: 0, sent: 0 };

function broadcast(line) {
  passed.lines += 1;
  for (const client of clients) {
    client.write(line + '\n');
    passed.sent += 1;
  }
}

const server = net.createServer({ noDelay: words.includes('nodelay') }, (socket) => {
  clients.add(socket);
  linesOf(socket, broadcast);
  const gone = () => clients.delete(socket);
  socket.on('error', gone);
  socket.on('close', gone);
});
server.listen(addressed(where), () => console.log('ready'));

process.on('SIGTERM', () => {
  console.log(JSON.stringify(passed));
  process.exit(0);
});
