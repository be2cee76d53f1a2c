// `pg` against PostgreSQL: node client.js SETTINGS COUNT. SETTINGS are those of pg.Client, as
// JSON. Asks COUNT times, one after the other; begins at the first byte on stdin, stays
// connected until its end. The packages are in NODE_PATH.
'use strict';
const { Client } = require('pg');

const settings = JSON.parse(process.argv[2]);
const count = Number(process.argv[3]);

async function measure(client) {
  const tripsUs = [];
  let rows = 0;
  for (let i = 0; i < count; i++) {
    const begun = process.hrtime.bigint();
    const reply = await client.query('SELECT id, name FROM items WHERE id = $1', [1 + (i % 100)]);
    tripsUs.push(Number(process.hrtime.bigint() - begun) / 1000);
    rows += reply.rows.length;
  }
  return { rows, tripsUs };
}

async function main() {
  const client = new Client(settings);
  await client.connect();
  const { processID: backend } = client;
  const [{ addr }] = (await client.query('SELECT inet_server_addr()::text AS addr')).rows;
  console.log(JSON.stringify({ backend, addr }));
  await new Promise((resolve) => process.stdin.once('data', resolve));
  const measured = await measure(client);
  console.log(JSON.stringify(measured));
  await new Promise((resolve) => process.stdin.once('end', resolve));
  await client.end();
  process.exit(0);
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
