// A Node cluster that answers on a Unix socket: queue_cluster.js PATH WORKERS rr|none
'use strict';
const cluster = require('cluster');
const http = require('http');

const [path, workers, policy] = process.argv.slice(2);
cluster.schedulingPolicy = policy === 'rr' ? cluster.SCHED_RR : cluster.SCHED_NONE;

if (cluster.isPrimary || cluster.isMaster) {
  let listening = 0;
  cluster.on('listening', (worker) => {
    listening += 1;
    process.stdout.write(`${worker.process.pid}\n`);
    if (listening === Number(workers)) process.stdout.write('ready\n');
  });
  for (let i = 0; i < Number(workers); i += 1) cluster.fork();
} else {
  http.createServer((request, response) => {
    response.setHeader('Connection', 'close');
    response.end(`${process.pid}`);
  }).listen(path);
}
