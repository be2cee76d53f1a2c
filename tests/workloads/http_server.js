// A plain HTTP server on the Unix socket or port given; the upstream of nginx in the tests.
'use strict';
const http = require('http');

const server = http.createServer((request, response) => response.end('hello\n'));
server.keepAliveTimeout = 60000; // connections outlive the test
server.listen(process.argv[2]);
