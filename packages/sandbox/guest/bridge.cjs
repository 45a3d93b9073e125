"use strict";
// Runs inside a sandbox that has a network: what comes to the proxy's port on loopback goes to the
// proxy's socket, the only thing of the outside that can be reached. Says on stdout when it listens.
const { connect, createServer } = require("node:net");

const [, , socketPath, port] = process.argv;

const server = createServer({ allowHalfOpen: true }, (client) => {
  const proxy = connect({ path: socketPath, allowHalfOpen: true });
  client.on("error", () => proxy.destroy()).on("close", () => proxy.destroy());
  proxy.on("error", () => client.destroy()).on("close", () => client.destroy());
  client.pipe(proxy).pipe(client);
});
server.listen(Number(port), "127.0.0.1", () => process.stdout.write("."));
