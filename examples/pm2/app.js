// An application under PM2: at SIGUSR2 it writes LINES numbered lines, one each EVERY_MS.
'use strict';
const lines = Number(process.env.LINES);

process.on('SIGUSR2', () => {
  let written = 0;
  const timer = setInterval(() => {
    written += 1;
    console.log(`line ${written} of ${lines}`);
    if (written === lines) clearInterval(timer);
  }, Number(process.env.EVERY_MS));
});
setInterval(() => {}, 60000);
