// A path or HOST:PORT, as net.listen() and net.connect() take it.
'use strict';

exports.addressed = (text) => {
  if (text.startsWith('/')) return { path: text };
  const at = text.lastIndexOf(':');
  return { host: text.slice(0, at), port: Number(text.slice(at + 1)) };
};
