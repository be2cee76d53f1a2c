// Echoes over TLS: tls_echo.js PORT FOLDER VERSION. FOLDER has `certificate` and `key`.
const fs = require('fs');
const tls = require('tls');

const [port, folder, version] = process.argv.slice(2);
const options = {
    cert: fs.readFileSync(`${folder}/certificate`),
    key: fs.readFileSync(`${folder}/key`),
    maxVersion: version,
};
tls.createServer(options, (socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
}).listen(Number(port), '127.0.0.1', () => console.log('ready'));
