// Makes a container in azurite, which only the account's key allows: node container.js PORT NAME

const crypto = require('crypto');
const http = require('http');

const [port, name] = process.argv.slice(2);
const account = 'devstoreaccount1';
// Of every azurite; no secret.
const key = 'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==';
const date = new Date().toUTCString();
const headers = `x-ms-date:${date}\nx-ms-version:2023-11-03\n`;
const signed = `PUT\n\n\n\n\n\n\n\n\n\n\n\n${headers}/${account}/${account}/${name}\nrestype:container`;
const signature = crypto.createHmac('sha256', Buffer.from(key, 'base64')).update(signed).digest('base64');
const request = http.request({
  port,
  method: 'PUT',
  path: `/${account}/${name}?restype=container`,
  headers: {
    'x-ms-date': date,
    'x-ms-version': '2023-11-03',
    'Content-Length': 0,
    Authorization: `SharedKey ${account}:${signature}`,
  },
}, (answer) => {
  if (answer.statusCode !== 201) {
    answer.pipe(process.stderr);
    process.exitCode = 1;
  }
  answer.resume();
});
request.on('error', (error) => {
  console.error(error.message);
  process.exitCode = 1;
});
request.end();
