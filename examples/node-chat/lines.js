// What server and client share: addresses, and lines out of a stream of bytes.
'use strict';

exports.addressed = (text) => {
  if (text.startsWith('/')) return { path: text };
  const at = text.lastIndexOf(':');
  return { host: text.slice(0, at), port: Number(text.slice(at + 1)) };
};

exports.linesOf = (socket, take) => {
  let rest = '';
  socket.setEncoding('utf8');
  socket.on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    lines.forEach(take);
  });
};
